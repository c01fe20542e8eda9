//! The registers of programs, as the kernel uses them.

use ptarmigan::format::{Format, X86_64};
use ptarmigan_kernel::arch::{Context, SIGNAL_FRAME};
use ptarmigan_kernel::signal::Delivery;
use ptarmigan_kernel::signal::action::Left;

use crate::frame;
use crate::registers::{R8, R9, R10, RAX, RDI, RDX, RSI, Registers};

impl Context for Registers {
    const NEW: Self = Registers::FRESH;

    fn start(&mut self, entry: u64, stack: u64) {
        self.set_instruction(entry);
        self.rsp = stack;
    }

    #[inline]
    fn number(&self) -> u64 {
        self.error
    }

    #[inline]
    fn argument(&self, n: usize) -> u64 {
        const PLACES: [usize; 6] = [RDI, RSI, RDX, R10, R8, R9];
        PLACES.get(n).map_or(0, |place| self.general[*place])
    }

    #[inline]
    fn set_result(&mut self, value: u64) {
        self.general[RAX] = value;
    }

    fn repeat_call(&mut self) {
        self.general[RAX] = self.error;
        // `syscall` has two bytes.
        self.rip = self.rip.wrapping_sub(2);
    }

    fn stack(&self) -> u64 {
        self.rsp
    }

    fn set_stack(&mut self, at: u64) {
        self.rsp = at;
    }

    fn instruction(&self) -> u64 {
        self.rip
    }

    fn skip(&mut self, bytes: u64) {
        self.set_instruction(self.rip.wrapping_add(bytes));
    }

    fn port_write(&self, bytes: &[u8]) -> Option<(u16, u8, u64)> {
        let value = self.general[RAX] as u8;
        match bytes {
            [0xee, ..] => Some((self.general[RDX] as u16, value, 1)),
            [0xe6, port, ..] => Some((u16::from(*port), value, 2)),
            _ => None,
        }
    }

    fn set_thread(&mut self, at: u64) -> bool {
        let is_user = at < X86_64::USER_END;
        if is_user {
            self.fs = at;
        }
        is_user
    }

    fn thread(&self) -> u64 {
        self.fs
    }

    fn enter_handler(&mut self, delivery: &Delivery, bytes: &mut [u8; SIGNAL_FRAME]) -> (u64, usize) {
        frame::enter(self, delivery, bytes)
    }

    fn handler_frame(&self) -> (u64, usize) {
        // `ret` has taken the return address.
        (self.rsp.wrapping_sub(8), frame::BYTES)
    }

    fn leave_handler(&mut self, bytes: &[u8]) -> Left {
        frame::leave(self, bytes)
    }

    fn note_trap(&mut self, address: Option<u64>) {
        self.note_trap(address);
    }
}
