//! The workbench as a library.
mod bar;
pub mod bench;
mod error;
pub mod inspect;
mod measure;
pub mod print;
pub mod record;
pub mod replay;

pub use error::{Context, Failure};
