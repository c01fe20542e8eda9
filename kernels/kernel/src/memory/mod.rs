//! Memory: the library's machine and how it is set up, the pages of objects (files, shared
//! memory), and the memory of programs as the kernel reads and writes it.

pub mod machine;
pub mod objects;
pub mod setup;
pub mod user;

pub use machine::{Machine, Metadata};
pub use objects::Objects;
pub use setup::{SetUpError, set_up};
