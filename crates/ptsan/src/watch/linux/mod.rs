//! Linux on x86-64. From the bottom up: `lock`, `ram`, `registers`, `rep`, `told` and `width` stand
//! alone, and so do `decode`, `effect` and, on it, `control`, for privileged instructions. `region`
//! is one watch, `list` holds all of them. `escape` starts and ends a run of kernel code; `step`
//! handles a store, and `emulate` a privileged instruction of such a run. `signals` installs the
//! handlers; `watch` and `run` are the interface.
mod control;
mod decode;
mod effect;
mod emulate;
mod escape;
mod list;
mod lock;
mod ram;
mod region;
mod registers;
mod rep;
mod run;
mod signals;
mod step;
mod watch;
mod watched_store;
mod width;

pub use ram::Ram;
pub use run::Paused;
pub use watch::Watch;
