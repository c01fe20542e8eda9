//! Sees every store to table memory, without a hook in the code that stores. It needs Linux on
//! x86-64; on other hosts [`Watch::new`] returns [`Error::Unsupported`].
//!
//! # How
//!
//! A [`Watch`] owns memory and a [`crate::Sanitizer`]. While [`Watch::run`] runs the code under
//! test, the memory is read-only, and each store takes these steps:
//!
//! 1. The store faults. The `SIGSEGV` handler copies the page, makes it writable and sets the trap
//!    flag.
//! 2. The processor executes that one instruction and raises `SIGTRAP`.
//! 3. The `SIGTRAP` handler protects the page and compares it with the copy. It tells the sanitizer
//!    of each entry that changed ([`crate::Sanitizer::entry_written`]). Then walkers may walk
//!    ([`crate::Config::adversary`]).
//! 4. The code under test continues.
//!
//! A table that is linked before it is cleared is wrong for an instant only. It is seen at that
//! instant, and the finding names the instruction ([`Watch::found`]).
//!
//! A store that changes nothing overwrites its entry too. The width of plain stores (`mov`, vector
//! moves, `rep stos`, `rep movs`) is therefore read from the instruction.
//!
//! The watch sees what the compiled code stores, not what the source says. The compiler may merge
//! or reorder stores, as it may in front of a real page walker.
//!
//! # Why the sanitizer may run in a signal handler
//!
//! The sanitizer allocates memory and takes locks. Handlers of *asynchronous* signals must not do
//! that, because the interrupted code may hold those locks. Here the interrupted code is known: it
//! is at a store to table memory.
//!
//! * POSIX allows a handler to call any function unless the signal interrupted a function that is
//!   not async-signal-safe. The memory functions (`memcpy`, `memset`) are safe. An allocator, a
//!   lock or standard output do not store to table memory, unless a program puts its heap or such
//!   locks there, which it must not.
//! * The sanitizer's own hooks store nothing to table memory. A store made *inside* [`Watch::with`]
//!   finds the sanitizer taken; it is recorded and handed over when that call ends.
//! * The handler runs on the thread's own stack, not on its small alternate one.
//! * All asynchronous signals are blocked from the fault to the end of the handler, and `errno` is
//!   kept.
//! * A panic of the sanitizer or of the callback is carried out of [`Watch::run`].
//!
//! # Rules
//!
//! * **Threads** that store take turns: a second one waits in its fault until the first has
//!   finished. While a page is writable for one instruction, another thread may store to it without
//!   a fault. The comparison of the whole page finds that store, as a part of the first one.
//! * **System calls** do not fault on read-only memory: `read` into it fails with `EFAULT`.
//! * **Handlers of asynchronous signals** must not store to the memory, nor call a [`Watch`].
//! * **`rep stos` and `rep movs`** (a large `memset` or `memcpy`) are one store for each page they
//!   write, unless [`Watch::each_repetition`] asks for more.
//! * **Other handlers**: signals that do not belong to a watch go to the handler that was installed
//!   before; a crash crashes as it did. Handlers installed later must pass signals on in the same
//!   way. The first watch installs the handlers, the last one restores what was there. Debuggers
//!   take `SIGTRAP` for themselves: in gdb, `handle SIGSEGV SIGTRAP nostop noprint pass`.
//! * **A store costs** two signals and two `mprotect`: a few microseconds, or tens of them in a
//!   virtual machine whose hypervisor intercepts the trap (`examples/watch.rs` measures). Do bulk
//!   work before [`Watch::run`] or under [`Watch::pause`].
// The crate denies unsafe code everywhere else.
#![allow(unsafe_code)]

mod error;
mod found;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
mod linux;
mod store;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
mod unsupported;

pub use error::Error;
pub use found::FoundAt;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub use linux::{Paused, Ram, Watch};
pub use store::{Changed, Store};
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
pub use unsupported::{Paused, Ram, Watch};
