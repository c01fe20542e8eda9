//! Programs of an image: tasks in user mode, the spaces that they run in, and the loop of each CPU.
//!
//! A task runs in user mode until it traps; its CPU handles the trap on the one kernel stack that
//! it has, and then goes on with the task or picks another. So the kernel is never preempted. Tasks
//! are, where there is a timer.

mod spaces;
mod table;

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::{Access, Format};
use ptarmigan::machine::On;
use ptarmigan::space::{SharedSpace, SpaceMachine};

use crate::fail;

pub use spaces::{CallRefused, SpaceHandle, Spaces};
pub use table::Tasks;

/// CPUs at the most.
pub const CPUS: usize = 8;

/// Registers of a program that does not run at the moment.
pub trait Registers: Copy + Send + 'static {
    /// All zero.
    const ZERO: Self;

    /// Returns those of a program that begins at `pc` with a stack that ends at `sp`.
    fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self;
    /// Returns the number of a call.
    fn call(&self) -> u64;
    /// Returns its arguments.
    fn arguments(&self) -> [u64; 3];
    /// Sets its result.
    fn set_result(&mut self, value: u64);
}

/// Why a program came back from user mode.
pub enum Trap {
    /// A call. The program goes on behind it.
    Call,
    /// An access that the MMU did not allow.
    Page {
        /// The address.
        at: u64,
        /// The access.
        access: Access,
        /// There was a translation, which does not allow it. MMUs that walk tables do not say.
        protected: bool,
    },
    /// An interrupt from another CPU.
    Interrupt,
    /// The timer.
    Timer,
    /// Anything else.
    Other,
}

/// The parts that an image brings. The defaults are those of one CPU without interrupts.
pub trait Port: Sized + 'static {
    /// The format of entries.
    type Format: Format;
    /// The library's machine.
    type Machine: SpaceMachine;
    /// Registers of programs.
    type Registers: Registers;
    /// Interrupts are masked while there is a value.
    type Masked;

    /// Returns the number of the calling CPU.
    fn cpu() -> usize {
        0
    }
    /// Returns the number of CPUs.
    fn cpus() -> usize {
        1
    }
    /// Masks interrupts.
    fn mask() -> Self::Masked;
    /// Runs `f` with interrupts enabled.
    fn enabled<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
    /// Runs `f` with the machine and where on it this is.
    fn here<R>(f: impl FnOnce(On<'_, Self::Machine>) -> R) -> R;
    /// As [`here`](Self::here), for calls that change tables.
    fn change<R>(f: impl FnOnce(On<'_, Self::Machine>) -> R) -> R {
        Self::here(f)
    }
    /// Returns whether a page that was missed is there: an MMU that does not walk tables gets it.
    fn refills(
        _: &SharedSpace<Self::Format>,
        _: On<'_, Self::Machine>,
        _: VirtAddr,
        _: Access,
        _protected: bool,
    ) -> bool {
        false
    }
    /// This CPU has left a space.
    fn left() {}
    /// A task's turn begins.
    fn begin_turn() {}
    /// Runs a program until it traps. Its space is loaded, and interrupts are masked.
    fn enter(registers: &mut Self::Registers) -> Trap;
    /// Interrupts another CPU.
    fn interrupt(_cpu: usize) {}
    /// Answers the requests of other CPUs, if they have interrupted this one.
    fn answer() {}
    /// Waits for an interrupt, with interrupts masked.
    fn sleep() {
        fail(format_args!("tasks wait for each other"));
    }
}
