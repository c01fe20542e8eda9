//! The workbench as a library.
mod error;
pub mod inspect;
mod print;
pub mod record;

pub use error::{Context, Failure};
