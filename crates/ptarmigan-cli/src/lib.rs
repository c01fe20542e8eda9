//! The workbench as a library.
mod error;
pub mod inspect;
mod print;
mod progress;
pub mod record;

pub use error::{Context, Failure};
