//! The registers of programs, as the kernel uses them, and the frame of a signal on a program's
//! stack, as Linux has it (`struct rt_sigframe`), for handlers of both kinds.

use ptarmigan::format::Format as _;
use ptarmigan_kernel::arch::{Context, SIGNAL_FRAME};
use ptarmigan_kernel::signal::action::Left;
use ptarmigan_kernel::signal::frame::{get, get_word, put, put_words};
use ptarmigan_kernel::signal::info::INFO_BYTES;
use ptarmigan_kernel::signal::{Delivery, SignalStack};

use crate::arch;
use crate::arch::registers::{ABI, ARGUMENTS, Format, HANDLER, PORT, RED_ZONE, RESULT, STACK_ARGUMENTS};
use crate::arch::sigcontext::{
    CONTEXT_WORDS, FIRST_GENERAL, FLAGS, INSTRUCTION, ORDER, STACK_POINTER, context, taken,
};
use crate::registers::Registers;

const WORD: usize = size_of::<usize>();
/// Where parts of the frame are: the return address and the arguments, `ucontext`, in it the
/// registers (`struct sigcontext`) and the mask, then `siginfo`, then floating point and vectors.
const UCONTEXT: usize = WORD * (1 + STACK_ARGUMENTS);
/// The stack for handlers.
const STACK: usize = UCONTEXT + 2 * WORD;
const REGISTERS: usize = UCONTEXT + 5 * WORD;
const MASK: usize = REGISTERS + CONTEXT_WORDS * WORD;
const SIGINFO: usize = MASK + 8;
/// Aligned to 16 in memory: the frame begins a word below a multiple of 16.
const VECTORS: usize = SIGINFO + 128;
/// Bytes of the frame.
const BYTES: usize = VECTORS + 512;
const _: () = assert!(BYTES <= SIGNAL_FRAME && VECTORS % 16 == WORD);

impl Context for Registers {
    const NEW: Self = Registers::FRESH;

    fn start(&mut self, entry: u64, stack: u64) {
        self.set_instruction(entry as usize);
        self.sp = stack as usize;
    }

    #[inline]
    fn number(&self) -> u64 {
        self.error as u64
    }

    #[inline]
    fn argument(&self, n: usize) -> u64 {
        ARGUMENTS.get(n).map_or(0, |place| self.general[*place] as u64)
    }

    #[inline]
    fn set_result(&mut self, value: u64) {
        self.general[RESULT] = value as usize;
    }

    fn repeat_call(&mut self) {
        self.general[RESULT] = self.error;
        // `syscall` and `int 0x80` have two bytes.
        self.ip = self.ip.wrapping_sub(2);
    }

    fn stack(&self) -> u64 {
        self.sp as u64
    }

    fn set_stack(&mut self, at: u64) {
        self.sp = at as usize;
    }

    fn instruction(&self) -> u64 {
        self.ip as u64
    }

    fn skip(&mut self, bytes: u64) {
        self.set_instruction(self.ip.wrapping_add(bytes as usize));
    }

    fn port_write(&self, bytes: &[u8]) -> Option<(u16, u8, u64)> {
        let value = self.general[RESULT] as u8;
        match bytes {
            [0xee, ..] => Some((self.general[PORT] as u16, value, 1)),
            [0xe6, port, ..] => Some((u16::from(*port), value, 2)),
            _ => None,
        }
    }

    fn set_thread(&mut self, at: u64) -> bool {
        arch::set_thread(self, at)
    }

    fn thread(&self) -> u64 {
        self.thread as u64
    }

    fn enter_handler(&mut self, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
        let top = delivery.top.map_or(self.sp.wrapping_sub(RED_ZONE), |top| top as usize);
        let at = (top.wrapping_sub(BYTES) & !15).wrapping_sub(WORD);
        let arguments = [usize::from(delivery.signal), at.wrapping_add(SIGINFO), at.wrapping_add(UCONTEXT)];
        put_words(bytes, 0, &[delivery.action.restorer as usize]);
        put_words(bytes, WORD, &arguments[..STACK_ARGUMENTS]);
        let stack = &delivery.stack;
        put_words(bytes, STACK, &[stack.at as usize, stack.flags as usize, stack.size as usize]);
        put_words(bytes, REGISTERS, &context(self, at.wrapping_add(VECTORS), delivery.mask as usize));
        put(bytes, MASK, &delivery.mask.to_le_bytes());
        put::<INFO_BYTES>(bytes, SIGINFO, &delivery.info.bytes(ABI, delivery.signal));
        put(bytes, VECTORS, &self.vectors.0);
        self.set_instruction(delivery.action.handler as usize);
        self.sp = at;
        self.set_flags(0);
        self.general[RESULT] = 0;
        for (place, argument) in HANDLER.iter().zip(arguments) {
            self.general[*place] = argument;
        }
        (at as u64, BYTES)
    }

    fn handler_frame(&self) -> (u64, usize) {
        (self.sp.wrapping_sub(taken(self)) as u64, BYTES)
    }

    fn leave_handler(&mut self, bytes: &[u8]) -> Left {
        // Segments stay as they are.
        let register = |word| get_word(bytes, REGISTERS + WORD * word);
        for (i, place) in ORDER.iter().enumerate() {
            self.general[*place] = register(FIRST_GENERAL + i);
        }
        self.sp = register(STACK_POINTER);
        self.set_instruction(register(INSTRUCTION));
        self.set_flags(register(FLAGS));
        if bytes.len() >= BYTES {
            self.set_vectors(&get(bytes, VECTORS));
        }
        let [at, flags, size] = [0, 1, 2].map(|word| get_word(bytes, STACK + WORD * word));
        let stack = SignalStack { at: at as u64, flags: flags as u32, size: size as u64 };
        Left { mask: u64::from_le_bytes(get(bytes, MASK)), stack }
    }

    fn note_trap(&mut self, address: Option<u64>) {
        /// Of a page fault: the tables do not allow it. Addresses that programs cannot have are
        /// said to be mapped, as Linux says it.
        const PROTECTION: usize = 1;
        let beyond = address.is_some_and(|at| at >= Format::USER_END);
        let code = self.error | if beyond { PROTECTION } else { 0 };
        self.trap = [self.vector, code, address.map_or(self.trap[2], |at| at as usize)];
    }
}
