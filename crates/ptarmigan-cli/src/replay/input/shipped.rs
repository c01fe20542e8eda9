//! The recordings that come with the command.
pub use crate::shipped::{COMPILE, SHIPPED};
