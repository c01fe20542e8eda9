//! The registers of programs, as the kernel uses them.

use ptarmigan_kernel::arch::{Context, SIGNAL_FRAME};
use ptarmigan_kernel::signal::Delivery;
use ptarmigan_kernel::signal::action::Left;

use crate::cpu::USER_THREAD;
use crate::frame;
use crate::registers::{EAX, EBP, EBX, ECX, EDI, EDX, ESI, Registers};

/// `sigreturn`, which has taken the signal's number off the stack; `rt_sigreturn` has not.
const OLD_RETURN: u32 = 119;

impl Context for Registers {
    const NEW: Self = Registers::FRESH;

    fn start(&mut self, entry: u64, stack: u64) {
        (self.eip, self.esp) = (entry as u32, stack as u32);
    }

    #[inline]
    fn number(&self) -> u64 {
        self.error.into()
    }

    #[inline]
    fn argument(&self, n: usize) -> u64 {
        const PLACES: [usize; 6] = [EBX, ECX, EDX, ESI, EDI, EBP];
        PLACES.get(n).map_or(0, |place| self.general[*place].into())
    }

    #[inline]
    fn set_result(&mut self, value: u64) {
        self.general[EAX] = value as u32;
    }

    fn repeat_call(&mut self) {
        self.general[EAX] = self.error;
        // `int 0x80` has two bytes.
        self.eip = self.eip.wrapping_sub(2);
    }

    fn stack(&self) -> u64 {
        self.esp.into()
    }

    fn set_stack(&mut self, at: u64) {
        self.esp = at as u32;
    }

    fn instruction(&self) -> u64 {
        self.eip.into()
    }

    fn skip(&mut self, bytes: u64) {
        self.eip = self.eip.wrapping_add(bytes as u32);
    }

    fn port_write(&self, bytes: &[u8]) -> Option<(u16, u8, u64)> {
        let value = self.general[EAX] as u8;
        match bytes {
            [0xee, ..] => Some((self.general[EDX] as u16, value, 1)),
            [0xe6, port, ..] => Some((u16::from(*port), value, 2)),
            _ => None,
        }
    }

    fn set_thread(&mut self, at: u64) -> bool {
        self.thread = at as u32;
        // The program loads the segment itself; a child of `clone` has it loaded already.
        if self.gs != 0 {
            self.gs = USER_THREAD;
        }
        true
    }

    fn thread(&self) -> u64 {
        self.thread.into()
    }

    fn enter_handler(&mut self, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
        frame::enter(self, delivery, bytes)
    }

    fn handler_frame(&self) -> (u64, usize) {
        // `ret` has taken the return address.
        let taken = if self.error == OLD_RETURN { 8 } else { 4 };
        (self.esp.wrapping_sub(taken).into(), frame::BYTES)
    }

    fn leave_handler(&mut self, bytes: &[u8]) -> Left {
        frame::leave(self, bytes)
    }

    fn note_trap(&mut self, address: Option<u64>) {
        self.note_trap(address);
    }
}
