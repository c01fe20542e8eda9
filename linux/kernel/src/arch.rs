//! The kernel's interface to an architecture: the leaves that an image brings.

use ptarmigan::addr::Pfn;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Access, Format};
use ptarmigan::frames::NoFrame;
use ptarmigan::tlb::Shootdown;
use ptarmigan::window::OpenWindow;

use crate::Kernel;
pub use crate::limits::CPUS;
use crate::memory::code::Fetched;
use crate::signal::action::{Delivery, Left};
use crate::signal::info::SignalInfo;

pub use crate::abi::Abi;

/// Why a CPU came back from user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// A system call.
    Call,
    /// An access that the tables do not allow.
    Fault {
        /// The address.
        at: u64,
        /// The access that the program made.
        access: Access,
    },
    /// The timer's interrupt.
    Timer,
    /// An interrupt from another CPU.
    Interrupt,
    /// A privileged instruction, or another violation of protection.
    Protection,
    /// An exception that Linux answers with a signal.
    Signal {
        /// The signal.
        signal: u8,
        /// The information for the program.
        info: SignalInfo,
    },
}

/// Registers of a program that does not run at the moment.
pub trait Context: Clone + Send {
    /// Those of a program that has not begun.
    const NEW: Self;

    /// Begins a program at `entry` with its stack at `stack`; all else is as at boot.
    fn start(&mut self, entry: u64, stack: u64);
    /// Returns the number of the system call.
    fn number(&self) -> u64;
    /// Returns argument `n`, from 0 to 5, of the system call.
    fn argument(&self, n: usize) -> u64;
    /// Sets the result of the system call.
    fn set_result(&mut self, value: u64);
    /// Has the program make the same call again when it goes on.
    fn repeat_call(&mut self);
    /// Returns the stack pointer.
    fn stack(&self) -> u64;
    /// Sets the stack pointer.
    fn set_stack(&mut self, at: u64);
    /// Returns the address of the next instruction.
    fn instruction(&self) -> u64;
    /// Goes on `bytes` further.
    fn skip(&mut self, bytes: u64);
    /// Returns the port write of an instruction with `bytes` at [`instruction`](Self::instruction):
    /// the port, the value, and the length of the instruction; `None` if it is no such instruction.
    fn port_write(&self, bytes: &[u8]) -> Option<(u16, u8, u64)>;
    /// Sets the base of the thread's memory; false if `at` is no address of programs.
    fn set_thread(&mut self, at: u64) -> bool;
    /// Returns the base of the thread's memory.
    fn thread(&self) -> u64;
    /// Enters a handler of signals: writes the handler's frame to `frame`, and returns its address
    /// on the program's stack and its length.
    fn enter_handler(&mut self, delivery: &Delivery, frame: &mut [u8; SIGNAL_FRAME]) -> (u64, usize);
    /// Says where the frame lies that [`leave_handler`](Self::leave_handler) wants, and its bytes.
    fn handler_frame(&self) -> (u64, usize);
    /// Leaves a handler: takes the registers from the frame; returns the mask of signals and the
    /// stack that it names. Whatever the bytes are, the program stays in user mode.
    fn leave_handler(&mut self, frame: &[u8]) -> Left;
    /// Keeps the processor's report of the trap that has just happened, for frames of handlers: the
    /// vector, the error code, and the address if it was an access.
    fn note_trap(&mut self, address: Option<u64>);
}

/// Bytes of a signal's frame at the most.
pub const SIGNAL_FRAME: usize = 1280;

/// An architecture, and the machine that the image runs on.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. [`cpu`](Self::cpu) names the calling CPU, below [`CPUS`] and below the number of CPUs that
///    the kernel was set up for. Code of the kernel is not moved to another.
/// 2. [`kernel`](Self::kernel) always returns the same kernel, the only one of this type.
/// 3. [`enter`](Self::enter) runs user mode only, on the tables that are loaded, and writes no
///    memory of the kernel but the context.
/// 4. [`page`](Self::page) calls the function with a pointer to the [`FRAME_SIZE`] bytes of that
///    frame, valid while it runs.
/// 5. [`Window`](Self::Window) reaches all memory, and the same bytes as [`page`](Self::page).
/// 6. Where it shows a frame of low memory stays that frame's place, with or without a guard.
///
/// [`FRAME_SIZE`]: ptarmigan::addr::FRAME_SIZE
pub unsafe trait Arch: Sized + Sync + 'static {
    /// The format of entries.
    type Format: Format;
    /// How memory is reached: files and tables.
    type Window: OpenWindow + Copy + Send;
    /// TLBs, and interrupts between CPUs.
    type Hardware: Shootdown + Send;
    /// Registers of programs.
    type Context: Context;
    /// The calling convention of programs.
    const ABI: Abi;
    /// Where the stack of a program ends.
    const STACK_END: u64;
    /// The name of the machine for `uname`.
    const MACHINE: &'static str;

    /// Whether there may be high memory, which the window does not reach, and leaf tables of
    /// programs in it. An idle CPU clears frames ahead only where there is none.
    const HIGH_TABLES: bool = false;

    /// Returns the frames that CPUs fetch instructions from as they are; `None` if they fetch
    /// whatever was stored, without a word from the kernel.
    #[inline]
    fn fetched() -> Option<&'static Fetched> {
        None
    }

    /// Prints the image's own counts, at the kernel's end.
    fn print_counts() {}
    /// Returns the kernel.
    fn kernel() -> &'static Kernel<Self>;
    /// Returns the number of the calling CPU.
    fn cpu() -> usize;
    /// Runs a program until it traps. Its space is loaded.
    fn enter(context: &mut Self::Context) -> Trap;
    /// Makes the registers that [`enter`](Self::enter) leaves alone those of a context.
    fn load(context: &Self::Context);
    /// Saves the registers that [`enter`](Self::enter) leaves alone.
    fn save(context: &mut Self::Context);
    /// Writes a byte to the console.
    fn put(byte: u8);
    /// Takes a byte that was typed at the console.
    fn typed() -> Option<u8>;
    /// Returns the nanoseconds since boot.
    fn now() -> u64;
    /// Returns the seconds since 1970 by the machine's clock.
    fn wall_clock() -> u64;
    /// Waits for an interrupt, and returns after it was served. An interrupt that came before,
    /// since the kernel was entered, counts.
    fn wait_for_interrupt();
    /// Interrupts another CPU.
    fn interrupt(cpu: usize);
    /// Ends the machine.
    fn exit(status: u8) -> !;
    /// Runs `f` with a pointer to the bytes of a frame.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if there is no place to show a high frame in.
    fn page<R>(pin: &Pinned<'_>, pfn: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame>;
    /// Clears a page.
    ///
    /// # Safety
    ///
    /// 1. `at` is a page-aligned page of memory, and the caller is its only user meanwhile.
    unsafe fn clear_page(at: *mut u8);
    /// Copies a page.
    ///
    /// # Safety
    ///
    /// 1. `to` is a page-aligned page of memory, and the caller is its only user meanwhile.
    /// 2. `from` is another page-aligned page of memory.
    unsafe fn copy_page(from: *const u8, to: *mut u8);
    /// Names the instructions that clear and copy pages.
    const PAGE_INSTRUCTIONS: &'static str;
}
