//! Linux on x86-64, from the bottom up: `lock`, `ram`, `registers`, `rep` and `width` know nothing of the others; `region` is one
//! watch, `list` has all of them; `step` is what happens at a store, `signals` has it called, `watch` is what users see.
mod list;
mod lock;
mod ram;
mod region;
mod registers;
mod rep;
mod signals;
mod step;
mod watch;
mod width;

pub use ram::Ram;
pub use watch::{Paused, Watch};
