//! Every store to table memory is seen, with no hook in the code that stores. Linux on x86-64; on other hosts
//! [`Watch::new`] says [`Error::Unsupported`].
//!
//! # How
//!
//! A [`Watch`] owns memory and a [`crate::Sanitizer`]. While [`Watch::run`] runs the code under test, the memory is
//! read-only. A store faults; the `SIGSEGV` handler keeps a copy of the page, makes it writable and sets the trap flag,
//! so that the processor carries out that one instruction and raises `SIGTRAP`. That handler protects the page,
//! compares it with the copy, tells the sanitizer of each entry that changed
//! ([`crate::Sanitizer::entry_written`]), upon which walkers may walk ([`crate::Config::adversary`]), and only then
//! lets the code go on. So what is true for one instant only, as a table that is linked before it is cleared, is seen at
//! that instant, and the finding names the instruction ([`Watch::found`]).
//!
//! What is seen is what the compiled code stores, not what the source says: stores may be merged or reordered by
//! the compiler, as they would be in front of a real page walker.
//!
//! # Why the sanitizer may run in a signal handler
//!
//! It allocates memory and takes locks, which handlers of *asynchronous* signals must not, since the code they
//! interrupt may hold those locks. Here the interrupted code is known: it is at a store to table memory. POSIX
//! allows a handler to call any function unless the signal interrupted one that is not async-signal-safe. The
//! memory functions (`memcpy`, `memset`) are; an allocator, a lock, or standard output do not store to table
//! memory, unless a program puts its heap or such locks there, which it must not. The sanitizer's own hooks store
//! nothing there. A store made *inside* [`Watch::with`] finds the sanitizer taken; it is noted and handed over
//! when that call ends. The handler runs on the thread's own stack, not on its small alternate one; all
//! asynchronous signals are blocked from the fault to the end of the handler; `errno` is kept. A panic of the
//! sanitizer or of the callback is carried out of [`Watch::run`].
//!
//! # Rules
//!
//! * **Threads** that store take turns: a second one waits in its fault until the first has finished. In the
//!   window of one instruction in which a page is writable, another thread may store to it without a fault.
//!   Nothing of that is lost, since the page is compared as a whole, but it is told as part of the first store.
//! * **System calls** do not fault on read-only memory: `read` into it fails with `EFAULT`.
//! * **Handlers of asynchronous signals** must not store to the memory, nor call a [`Watch`].
//! * **`rep stos` and `rep movs`** (a large `memset` or `memcpy`) are one store for each page they write, unless
//!   [`Watch::each_repetition`] asks for more.
//! * **Handlers of others**: `SIGSEGV` and `SIGTRAP` that are not ours go to the handler installed before; a crash
//!   crashes as it did. Handlers installed later must do the same for us. The first watch installs ours, the last
//!   one to go puts back what was there. Debuggers take `SIGTRAP` for themselves: in gdb,
//!   `handle SIGSEGV SIGTRAP nostop noprint pass`.
//! * **A store costs** two signals and two `mprotect`: a few microseconds, tens of them in a virtual machine whose
//!   hypervisor intercepts the trap (`examples/watch.rs` measures). Bulk work belongs before [`Watch::run`] or under
//!   [`Watch::pause`].
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
