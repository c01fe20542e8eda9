//! The page-table sanitizer.
