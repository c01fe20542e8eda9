//! A small kernel that runs Linux programs in user mode on the library.
//!
//! | module | contents |
//! |---|---|
//! | [`arch`] | the parts that an image brings: entry, traps, console, interrupts |
//! | [`memory`] | the library's machine, pages of objects, the memory of programs |
//! | [`fs`] | the tree of files, open files, pipes, the console, `/proc`, the initial file system |
//! | [`signal`] | signals and their delivery |
//! | [`task`] | tasks, the run queue, the loop of each CPU, fork and exit, timers that send signals |
//! | [`grown`] | tables without a largest number |
//! | [`timer`] | a timer of a program's |
//! | [`exec`] | ELF programs and their first stack |
//! | [`syscall`] | system calls |
//!
//! # The kernel lock
//!
//! One lock ([`lock`]) guards [`State`]: tasks, files, pipes. A system call holds it throughout. A
//! page fault does not take it: a space belongs to the CPU that runs its task, and a space that
//! several tasks run in has a lock of its own ([`TaskSpace`](memory::TaskSpace)).
//!
//! 1. A CPU that waits for the lock serves requests of other CPUs to forget translations.
//! 2. The lock of a shared space is taken after it, and that of [`Objects`](memory::Objects) last.
//! 3. A task's [`Body`](task::Body) (registers and space) is used by its CPU alone. A CPU gives a
//!    body up only with the kernel lock held, after it has saved the registers.
//!
//! The kernel is never preempted and never blocks: a call that has to wait is made again after the
//! event that it waits for. So a CPU needs one stack, and a task needs no stack.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod abi;
pub mod arch;
pub mod boot;
pub mod counts;
pub mod errno;
pub mod exec;
pub mod fault_loop;
pub mod fs;
pub mod grown;
pub mod init_args;
pub mod limits;
pub mod lock;
pub mod memory;
pub mod negative_controls;
pub mod params;
mod pointers;
pub mod report;
pub mod signal;
pub mod slots;
pub mod syscall;
pub mod task;
pub mod timer;

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use ptarmigan::setup::Place;
use ptarmigan_kernel_base::once_cell::OnceCell;

use arch::{Arch, CPUS};
use counts::{Count, Counts};

use limits::{SPACES, TASKS};
use lock::KernelLock;
use memory::TaskSpace;
use memory::machine::Machine;
use negative_controls::{NegativeControl, leaves_out};
use pointers::Pointers;
use ptarmigan::cpu::Pinned;
use ptarmigan::space::{Done, EmptyTables, Unmapping};
use task::{Body, SpacePlace, TaskQueues, must};

/// The data that the kernel lock guards.
pub struct State {
    /// Tasks and the run queue.
    pub tasks: TaskQueues,
    /// The tree of files.
    pub tree: fs::Tree,
    /// Open files.
    pub open: fs::OpenFiles,
    /// Pipes.
    pub pipes: fs::Pipes,
    /// Counters and timers with descriptors.
    pub events: fs::events::Events,
    /// Timers that send signals.
    pub timers: task::timers::Timers,
    /// Sets of files to wait for.
    pub interests: fs::epoll::Interests,
    /// Looks at files whose changes are not counted.
    pub looks: u64,
    /// Locks of files.
    pub locks: fs::locks::Locks,
    /// Shared memory with keys.
    pub keyed: fs::keyed::KeyedMemory,
    /// The console's input.
    pub console: fs::Console,
    /// System calls that are not there and were named already.
    pub named: syscall::Named,
    /// The boot loader's command line.
    pub command_line: params::CommandLine,
    /// Where programs have large pages.
    pub large_pages: params::LargePolicy,
    /// Which empty tables spaces give back.
    pub empty_tables: EmptyTables,
    /// When other CPUs forget pages that a program unmaps.
    pub unmapping: Unmapping,
    /// Set once the kernel ends.
    pub ending: Option<report::Ending>,
}

/// Data of one CPU.
pub struct Cpu {
    /// Its counts.
    pub counts: Counts,
    /// The node that it is on.
    pub node: AtomicU8,
    /// It waits for an interrupt.
    pub idle: AtomicBool,
    /// Its faults that came back.
    pub stuck: fault_loop::FaultLoop,
    /// The [`NegativeControl`] for which it forgets translations, in runs that leave parts out.
    does: AtomicU32,
}

impl Cpu {
    const fn new() -> Self {
        Cpu {
            counts: Counts::new(),
            node: AtomicU8::new(0),
            idle: AtomicBool::new(false),
            stuck: fault_loop::FaultLoop::new(),
            does: AtomicU32::new(NegativeControl::Flush as u32),
        }
    }
}

/// The kernel. An image has one, as a static.
pub struct Kernel<A: Arch> {
    place: Place<A::Format, A::Window>,
    /// The library's machine.
    pub machine: OnceCell<Machine<A>>,
    pub(crate) object_table: memory::objects::ObjectTable,
    /// CPUs.
    pub cpus: [Cpu; CPUS],
    running: AtomicUsize,
    stopping: AtomicBool,
    stopped: AtomicUsize,
    lock: KernelLock<State>,
    /// The bodies of tasks, by slot.
    bodies: Pointers<Body<A>, TASKS>,
    /// The spaces that several tasks run in, by the number of their records.
    spaces: Pointers<SpacePlace<A>, SPACES>,
}

impl<A: Arch> Kernel<A> {
    /// Makes a kernel that is not set up.
    pub const fn new() -> Self {
        Kernel {
            place: Place::new(),
            machine: OnceCell::new(),
            object_table: memory::objects::ObjectTable::new(),
            cpus: [const { Cpu::new() }; CPUS],
            running: AtomicUsize::new(1),
            stopping: AtomicBool::new(false),
            stopped: AtomicUsize::new(0),
            lock: KernelLock::new(State {
                // SAFETY: 1. It is the kernel's, of which an image has one (`Arch`, point 2).
                tasks: unsafe { TaskQueues::new() },
                tree: fs::Tree::new(),
                open: fs::OpenFiles::new(),
                pipes: fs::Pipes::new(),
                events: fs::events::Events::new(),
                timers: task::timers::Timers::new(),
                interests: fs::epoll::Interests::new(),
                looks: 0,
                locks: fs::locks::Locks::new(),
                keyed: fs::keyed::KeyedMemory::new(),
                console: fs::Console::new(),
                named: syscall::Named::new(),
                command_line: params::CommandLine::new(),
                large_pages: params::LargePolicy::Never,
                empty_tables: EmptyTables::Kept,
                unmapping: Unmapping::AtOnce,
                ending: None,
            }),
            bodies: Pointers::new(),
            spaces: Pointers::new(),
        }
    }

    /// Returns the number of CPUs that the kernel was set up for.
    #[inline]
    pub fn cpu_count(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Whether the kernel is ending.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn set_cpus(&self, cpus: usize) {
        self.running.store(cpus.clamp(1, CPUS), Ordering::Relaxed);
    }

    /// Counts a fault that was served.
    #[inline]
    pub fn count_fault(&self, done: Done) {
        if done == Done::Spurious {
            self.fault_came_back();
        }
        self.count(match done {
            Done::Zero => Count::FaultZero,
            Done::Fresh => Count::FaultFresh,
            Done::Large => Count::FaultLarge,
            Done::Backed => Count::FaultBacked,
            Done::Copied => Count::FaultCopied,
            Done::Reused => Count::FaultReused,
            Done::Spurious => Count::FaultSpurious,
        });
    }

    /// Serves the requests of other CPUs to this one's TLB. Called by the handler of their
    /// interrupts, with interrupts masked.
    pub fn serve(&'static self) {
        use ptarmigan::machine::Machine as _;
        let pin = self.pin();
        if !cfg!(feature = "negative") {
            return self.machine.get().tlb().serve(&pin);
        }
        let does = &self.cpus[A::cpu()].does;
        does.store(NegativeControl::Answer as u32, Ordering::Relaxed);
        self.machine.get().tlb().serve(&pin);
        does.store(NegativeControl::Flush as u32, Ordering::Relaxed);
    }

    /// Makes up for the flushes that other CPUs have left to this one, which runs in a space.
    pub(crate) fn catch_up(&'static self, space: &mut TaskSpace<A>, pin: &Pinned<'_>) {
        let does = &self.cpus[A::cpu()].does;
        if cfg!(feature = "negative") {
            does.store(NegativeControl::CatchUp as u32, Ordering::Relaxed);
        }
        must(space.switch(|space| space.catch_up(self.on(pin))));
        if cfg!(feature = "negative") {
            does.store(NegativeControl::Flush as u32, Ordering::Relaxed);
        }
    }

    /// Whether this CPU forgets translations when the library says so: always, but where a run
    /// leaves that out on purpose.
    #[inline]
    pub fn forgets(&self) -> bool {
        let does = |part| self.cpus[A::cpu()].does.load(Ordering::Relaxed) == part as u32;
        let is_left_out = |part| leaves_out(part) && does(part);
        !(is_left_out(NegativeControl::Answer)
            || is_left_out(NegativeControl::CatchUp)
            || leaves_out(NegativeControl::Flush))
    }
}
