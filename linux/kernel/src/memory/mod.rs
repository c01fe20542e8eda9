//! Memory: the library's machine and how it is set up, the pages of objects (files, shared
//! memory), the spaces of tasks, and the memory of programs as the kernel reads and writes it.

pub mod code;
pub mod machine;
pub mod objects;
pub mod setup;
pub mod space;
pub mod user;

pub use machine::Machine;
pub use objects::Objects;
pub use setup::set_up;
pub use space::TaskSpace;
