//! Tells the recorder below an image (`kernels/tools/recorder`, a plugin of QEMU) about the image's
//! page tables. An image that was built without the feature `record` has no code for it. One that
//! was booted without the word [`WORD`] sends no message.
//!
//! # Protocol
//!
//! Each CPU has a slot of eight words in [`ptsan_mailbox`]. It stores the arguments of a message,
//! and then the message's code to the first word. The recorder acts at that last store.
//!
//! [`code::OPERAND`] holds a value that the recorder cannot see: the register that the CPU's next
//! instruction of address translation uses. The record is made when that instruction is executed,
//! so an instruction that is left out leaves no record. The message and the instruction must be
//! adjacent: the caller masks interrupts.
//!
//! ```text
//!  image      slot[1..] = arguments ── slot[0] = code, release
//!  recorder                             └─> the store is seen: reads the slot ──> record
//!  image      OPERAND ── invlpg ──> the record is made here
//! ```
//!
//! # Why
//!
//! An instruction of x86 that traps to the recorder would change the time and the order of the run
//! that it watches. Stores to memory do not. A slot for each CPU needs no lock, so that CPUs are
//! recorded in the order in which QEMU runs them.
#![no_std]

mod layer;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use layer::Announced;

/// The word on the command line that makes an image tell.
pub const WORD: &str = "announce";
/// CPUs that have slots.
pub const CPUS: usize = 8;
/// Words of a slot.
pub const WORDS: usize = 8;
/// The word of a slot that is counted up by [`begin`].
pub const COUNTED: usize = 7;
/// How far [`begin`] counts.
pub const COUNTS: u64 = 64;

/// The codes of messages.
pub mod code {
    /// The recording begins.
    pub const BEGIN: u64 = 1;
    /// A table was allocated: address, bytes, level, whether its content is promised to be zero.
    pub const ALLOCATED: u64 = 2;
    /// A table may be allocated again: address, bytes.
    pub const FREED: u64 = 3;
    /// Operands of the next instruction of address translation: address or root, ASID.
    pub const OPERAND: u64 = 4;
    /// An operation on a space begins on this CPU.
    pub const OPERATION_BEGINS: u64 = 5;
    /// It ends.
    pub const OPERATION_ENDS: u64 = 6;
    /// All tables but the kernel's should be free.
    pub const END: u64 = 7;
}

/// The slots.
#[repr(C, align(4096))]
pub struct Mailbox([[AtomicU64; WORDS]; CPUS]);

/// The slots. The recorder is told where they are.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ptsan_mailbox: Mailbox = Mailbox([const { [const { AtomicU64::new(0) }; WORDS] }; CPUS]);

static ON: AtomicBool = AtomicBool::new(false);

/// Returns whether the image tells.
#[inline]
pub fn is_on() -> bool {
    cfg!(feature = "record") && ON.load(Ordering::Relaxed)
}

/// Sends a message. The caller has masked interrupts if their handlers send some.
#[inline]
pub fn send(cpu: usize, code: u64, arguments: [u64; 4]) {
    if !is_on() {
        return;
    }
    let Some(slot) = ptsan_mailbox.0.get(cpu) else { return };
    for (word, value) in slot[1..].iter().zip(arguments) {
        word.store(value, Ordering::Relaxed);
    }
    slot[0].store(code, Ordering::Release);
}

/// Begins to tell. First counts a word up, from which the recorder learns whether it is called
/// before or after a store.
pub fn begin(cpu: usize) {
    if !cfg!(feature = "record") {
        return;
    }
    ON.store(true, Ordering::Relaxed);
    if let Some(slot) = ptsan_mailbox.0.get(cpu) {
        for count in 1..=COUNTS {
            slot[COUNTED].store(count, Ordering::Relaxed);
        }
    }
    send(cpu, code::BEGIN, [0; 4]);
}

/// Tells of a table of 4 KiB that is a static of the image, and stays.
pub fn fixed_table(cpu: usize, at: u64, level: u8) {
    send(cpu, code::ALLOCATED, [at, 4096, level.into(), 0]);
}

/// Tells that an operation is under way, until it is dropped.
pub struct Operation(usize);

impl Operation {
    /// Begins one on this CPU, which has no other.
    #[inline]
    pub fn begin(cpu: usize) -> Self {
        send(cpu, code::OPERATION_BEGINS, [0; 4]);
        Operation(cpu)
    }
}

impl Drop for Operation {
    #[inline]
    fn drop(&mut self) {
        send(self.0, code::OPERATION_ENDS, [0; 4]);
    }
}
