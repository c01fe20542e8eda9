//! The workbench as a library.
pub mod bench;
mod error;
pub mod inspect;
mod print;
mod progress;
pub mod record;
pub mod replay;

pub use error::{Context, Failure};
