//! Sees every store to table memory, and every flush of x86-64 kernel code, without a hook in the
//! code that does it. It needs Linux on x86-64; on other hosts [`Watch::new`] returns
//! [`Error::Unsupported`]. That includes Linux on AArch64, where a program cannot single-step
//! itself.
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
//!    of each entry that changed ([`crate::Sanitizer::entry_written`], and for `xchg` and `lock`ed
//!    instructions [`crate::Sanitizer::entry_exchanged`]). Then walkers may walk
//!    ([`crate::Config::adversary`]).
//! 4. The code under test continues.
//!
//! A table that is linked before it is cleared is wrong for an instant only. It is seen at that
//! instant, and the finding names the instruction ([`Watch::found`]).
//!
//! A store of an equal value overwrites its entry too. The width of plain stores (`mov`, vector
//! moves, `rep stos`, `rep movs`) is therefore read from the instruction.
//!
//! The watch sees the stores of the compiled code, not of the source. The compiler may merge or
//! reorder stores, as it may in front of a real page walker.
//!
//! # Memory
//!
//! [`Ram::base`] is where the code under test finds the memory, and [`Ram::start`] is the physical
//! address of its first byte. Code that adds an offset to physical addresses gets the difference.
//! Code that takes physical addresses for pointers gets [`Watch::identity`], where the two are
//! equal and page-table entries hold the very addresses that pointers have.
//!
//! # Privileged instructions
//!
//! [`Watch::run_on`] runs kernel code that was not changed at all. The thread stands for a CPU of
//! the sanitizer. The processor refuses privileged instructions to a program; the handler of that
//! fault carries them out on the state of the CPU, and calls the sanitizer's hook:
//!
//! | instruction | effect |
//! |---|---|
//! | `invlpg` | [`Flush::page`](crate::Flush::page) of the current space: global translations too |
//! | `invpcid` type 0 | flushes a page of the space of the PCID, and of the tables only those on the way to it; no global translations, and no tables on the way to other addresses, as `invlpg` does |
//! | `invpcid` type 1 | flushes the space of the PCID, except global translations |
//! | `invpcid` types 2, 3 | flushes all spaces: with global translations, without them |
//! | `mov` to CR3 | [`switch`](crate::Sanitizer::switch); flushes the space unless bit 63 is set |
//! | `mov` to CR4 | flushes everything if `PGE` changes or `PCIDE` is cleared, the space if `SMEP` is set |
//! | `mov` to CR0, CR2; `mov` from CR0, CR2, CR3, CR4 | writes and reads the simulated register |
//! | `rdmsr`, `wrmsr` | reads and writes the simulated register: `EFER`, `PAT`, `STAR`, `LSTAR`, `CSTAR`, `SFMASK`, `KERNEL_GS_BASE`, the three of `SYSENTER` |
//! | `wbinvd`, `wbnoinvd`, `cli`, `sti` | no effect |
//! | `hlt` | ends the run: [`Ended::Halted`] |
//!
//! All else that raises a general-protection fault or an invalid-opcode exception, such as
//! `swapgs`, `lgdt`, `out` or `ud2`, ends the run with [`Error::Instruction`]. It has the address
//! and the bytes. So does a value that a processor refuses: reserved bits, a PCID without
//! `CR4.PCIDE`.
//!
//! * **Spaces**: with [`Config::asids`](crate::Config::asids) the number of a space is its PCID, 0
//!   while `CR4.PCIDE` is clear. Without, `CR4.PCIDE` cannot be set, and the number is the physical
//!   address of the root. A root that [`switch`](crate::Sanitizer::switch) loaded under another
//!   number keeps it while it stays loaded.
//! * **At first** a CPU is in 64-bit mode, with paging, `WP`, global pages and `EFER.NXE` on, and
//!   PCIDs off. CR3 holds the root that `switch` loaded. Reports take paging, `WP` and `NXE` as
//!   set: clearing paging or `NXE` ends the run, clearing `WP` has no effect. Later runs find the
//!   registers as the last one on that CPU left them.
//! * **Interrupts** do not exist: `pushf` shows them as enabled always, `popf` does not change
//!   that, and no signal stands for one. To play an interrupt on another CPU, nest a run.
//! * **Instructions that a processor carries out for programs too** are not seen: `sgdt`, `smsw`,
//!   `cpuid`, `rdtsc`, `popf`, `iret`, loads of segments.
//! * **Page faults** of the kernel code are not delivered to it. A store or load outside memory is
//!   a crash.
//! * **An instruction costs** two signals: about a quarter of the cost of a store.
//!
//! # Why the sanitizer may run in a signal handler
//!
//! The sanitizer allocates memory and takes locks. Handlers of *asynchronous* signals must not do
//! that, because the interrupted code may hold those locks. Here the interrupted code is known: it
//! is at a store to table memory, or at a privileged instruction.
//!
//! * POSIX allows a handler to call any function unless the signal interrupted a function that is
//!   not async-signal-safe. The memory functions (`memcpy`, `memset`) are safe. An allocator, a
//!   lock or standard output execute no privileged instruction. They do not store to table memory,
//!   unless a program puts its heap or such locks there, which it must not.
//! * The sanitizer's own hooks never store to table memory. A store made *inside* [`Watch::with`]
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
//! * **A CPU** belongs to one thread at a time, for as long as [`Watch::run_on`] runs. Elsewhere a
//!   privileged instruction is a crash, as without a watch. It is one inside [`Watch::with`] too.
//! * **Handlers of asynchronous signals** must not store to the memory, nor call a [`Watch`].
//! * **`rep stos` and `rep movs`** (a large `memset` or `memcpy`) are one store for each page they
//!   write, unless [`Watch::each_repetition`] asks for more.
//! * **Other handlers**: `SIGSEGV`, `SIGILL` and `SIGTRAP` that do not belong to a watch go to the
//!   handler that was installed before; a crash crashes as it did. Handlers installed later must
//!   pass signals on in the same way. The first watch installs the handlers, the last one restores
//!   the handlers from before. Debuggers take `SIGTRAP` for themselves: in gdb,
//!   `handle SIGSEGV SIGILL SIGTRAP nostop noprint pass`. If a debug exception of no watched store
//!   ends the process, a line on standard error describes it.
//! * **Blocked signals**: code that blocks `SIGTRAP` is watched, and a `SIGTRAP` sent to it
//!   meanwhile may come in at its next store. It must not block `SIGSEGV`, nor `SIGILL` inside
//!   [`Watch::run_on`]: the kernel ends a process at a fault whose signal is blocked.
//! * **A store costs** two signals and two `mprotect`: a few microseconds, or tens of them in a
//!   virtual machine whose hypervisor intercepts the trap (`examples/watch.rs` measures). Do bulk
//!   work before [`Watch::run`] or under [`Watch::pause`].
// The crate denies unsafe code everywhere else.
#![allow(unsafe_code)]

mod ended;
mod error;
mod found;
mod image;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
mod linux;
mod store;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
mod unsupported;

pub use ended::Ended;
pub use error::{Code, Error};
pub use found::{Act, FoundAt};
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
pub use linux::{Paused, Ram, Watch};
pub use store::{Changed, Store};
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
pub use unsupported::{Paused, Ram, Watch};
