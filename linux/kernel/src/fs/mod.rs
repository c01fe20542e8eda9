//! Files: the tree in memory, open files and descriptors, pipes, the console, `/proc`, and the
//! initial file system.

pub mod blocking;
pub mod console;
pub mod cpio;
pub mod descriptors;
pub mod epoll;
pub mod events;
pub mod io;
pub mod keyed;
pub mod locks;
pub mod object_io;
pub mod open;
mod pagemap;
pub mod path;
pub mod pipe;
pub mod proc;
pub mod proc_pid;
pub mod tree;

pub use console::Console;
pub use descriptors::{DESCRIPTORS, Descriptors};
pub use open::{OpenFile, OpenFiles, What};
pub use pipe::{PIPE_BUF, Pipes};
pub use tree::{Device, Inode, Kind, Tree};
