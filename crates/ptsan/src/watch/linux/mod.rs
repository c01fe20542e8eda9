//! Linux on x86-64. From the bottom up: `lock`, `ram`, `registers`, `rep`, `told` and `width` stand
//! alone; `region` is one watch, `list` holds all of them; `step` handles a store, `signals`
//! installs the handlers, `watch` is the interface.
mod list;
mod lock;
mod ram;
mod region;
mod registers;
mod rep;
mod signals;
mod step;
mod told;
mod watch;
mod width;

pub use ram::Ram;
pub use watch::{Paused, Watch};
