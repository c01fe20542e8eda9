//! The registers of programs, as the kernel uses them, and the frame of a signal on a program's
//! stack, as Linux has it (`struct rt_sigframe`). A handler that has no restorer returns to
//! [`HANDLER_RETURN`].

use ptarmigan::format::Format as _;
use ptarmigan_kernel::arch::{self as port, SIGNAL_FRAME};
use ptarmigan_kernel::signal::action::Left;
use ptarmigan_kernel::signal::frame::{get, get_word, put, put_words};
use ptarmigan_kernel::signal::info::INFO_BYTES;
use ptarmigan_kernel::signal::{Delivery, SignalStack};
use ptarmigan_kernel_base::tasks::Registers as _;

use crate::arch::{self, ABI, CONTEXT_BYTES, FIRST, FRAME_BYTES, Format, LINK, NUMBER, Registers, Rest};

/// The registers of a program that does not run.
#[derive(Clone)]
pub struct SavedRegisters {
    /// Those that the assembly saves.
    pub registers: Registers,
    /// All others.
    pub rest: Rest,
    /// The address of the last access that was answered with a signal.
    pub fault: u64,
}

/// Where handlers return to: the fetch from there, where no page can be, stands for the call
/// `rt_sigreturn`. So no page of instructions has to be mapped in each program.
pub const HANDLER_RETURN: u64 = Format::USER_END + 0x5160;
/// `SA_RESTORER`: the program has a place of its own for that.
const SA_RESTORER: u64 = 0x0400_0000;

/// Where parts of the frame are: `siginfo`, then `ucontext`, and in it the stack for handlers, the
/// mask, and the registers (`struct sigcontext`).
const UCONTEXT: usize = 128;
const STACK: usize = UCONTEXT + 16;
const MASK: usize = STACK + 24;
/// Aligned to 16.
const REGISTERS: usize = UCONTEXT + 176;
/// Bytes of the frame that are written.
const BYTES: usize = REGISTERS + CONTEXT_BYTES;
const _: () = assert!(BYTES <= SIGNAL_FRAME && BYTES <= FRAME_BYTES);

impl port::Context for SavedRegisters {
    const NEW: Self = SavedRegisters { registers: Registers::ZERO, rest: Rest::NEW, fault: 0 };

    fn start(&mut self, entry: u64, stack: u64) {
        self.registers.pc = entry;
        self.set_stack(stack);
    }

    #[inline]
    fn number(&self) -> u64 {
        self.registers.x[NUMBER]
    }

    #[inline]
    fn argument(&self, n: usize) -> u64 {
        self.registers.x[FIRST + n % 6]
    }

    #[inline]
    fn set_result(&mut self, value: u64) {
        self.registers.x[FIRST] = value;
    }

    fn repeat_call(&mut self) {
        self.registers.pc = self.registers.pc.wrapping_sub(4);
    }

    fn stack(&self) -> u64 {
        arch::stack(&self.registers)
    }

    fn set_stack(&mut self, at: u64) {
        arch::set_stack(&mut self.registers, at);
    }

    fn instruction(&self) -> u64 {
        self.registers.pc
    }

    fn skip(&mut self, bytes: u64) {
        self.registers.pc = self.registers.pc.wrapping_add(bytes);
    }

    /// There are no ports.
    fn port_write(&self, _: &[u8]) -> Option<(u16, u8, u64)> {
        None
    }

    fn set_thread(&mut self, at: u64) -> bool {
        self.rest.set_thread(&mut self.registers, at);
        true
    }

    fn thread(&self) -> u64 {
        self.rest.thread(&self.registers)
    }

    fn enter_handler(&mut self, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
        let top = delivery.top.unwrap_or(self.stack());
        let at = top.wrapping_sub(FRAME_BYTES as u64) & !15;
        put::<INFO_BYTES>(bytes, 0, &delivery.info.bytes(ABI, delivery.signal));
        let stack = &delivery.stack;
        put_words(bytes, STACK, &[stack.at as usize, stack.flags as usize, stack.size as usize]);
        put(bytes, MASK, &delivery.mask.to_le_bytes());
        self.put_registers(bytes, REGISTERS, at);
        let registers = &mut self.registers;
        registers.pc = delivery.action.handler;
        let returns = delivery.action.flags & SA_RESTORER != 0;
        registers.x[LINK] = if returns { delivery.action.restorer } else { HANDLER_RETURN };
        let arguments = [delivery.signal.into(), at, at.wrapping_add(UCONTEXT as u64)];
        registers.x[FIRST..FIRST + 3].copy_from_slice(&arguments);
        self.set_stack(at);
        (at, BYTES)
    }

    fn handler_frame(&self) -> (u64, usize) {
        (self.stack(), BYTES)
    }

    fn leave_handler(&mut self, bytes: &[u8]) -> Left {
        self.take_registers(bytes, REGISTERS);
        let [at, flags, size] = [0, 8, 16].map(|word| get_word(bytes, STACK + word) as u64);
        let stack = SignalStack { at, flags: flags as u32, size };
        Left { mask: u64::from_le_bytes(get(bytes, MASK)), stack }
    }

    fn note_trap(&mut self, address: Option<u64>) {
        self.fault = address.unwrap_or(self.fault);
    }
}
