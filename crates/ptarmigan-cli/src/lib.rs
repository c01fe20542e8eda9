//! The workbench as a library.
