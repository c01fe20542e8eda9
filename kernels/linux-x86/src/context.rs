//! The registers of programs, as the kernel uses them.

use ptarmigan_kernel::arch::{Context, SIGNAL_FRAME};
use ptarmigan_kernel::signal::Delivery;
use ptarmigan_kernel::signal::action::Left;

use crate::arch::registers::{ARGUMENTS, PORT, RESULT};
use crate::registers::Registers;
use crate::{arch, frame};

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
        frame::enter(self, delivery, bytes)
    }

    fn handler_frame(&self) -> (u64, usize) {
        frame::of_handler(self)
    }

    fn leave_handler(&mut self, bytes: &[u8]) -> Left {
        frame::leave(self, bytes)
    }

    fn note_trap(&mut self, address: Option<u64>) {
        self.note_trap(address);
    }
}
