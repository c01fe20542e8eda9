//! The registers in `struct sigcontext` of Linux: the next instruction, x1 to x31, then floating
//! point in a place for registers of 16 bytes.

use ptarmigan_kernel::signal::frame::{get, get_word, put, put_words};

use crate::context::SavedRegisters;

const FLOATS: usize = 32 * 8;
const CONTROL: usize = FLOATS + 32 * 8;
/// Bytes of `struct sigcontext` that are written.
pub const CONTEXT_BYTES: usize = CONTROL + 8;
/// Bytes of a frame on the stack.
pub const FRAME_BYTES: usize = 128 + 176 + FLOATS + 528;

impl SavedRegisters {
    /// Writes `struct sigcontext` at byte `at` of a frame.
    pub fn put_registers(&mut self, bytes: &mut [u8], at: usize, _frame: u64) {
        put_words(bytes, at, &self.registers.x.map(|x| x as usize));
        put(bytes, at, &self.registers.pc.to_le_bytes());
        put_words(bytes, at + FLOATS, &self.rest.f.map(|f| f as usize));
        put(bytes, at + CONTROL, &self.rest.fcsr.to_le_bytes());
    }

    /// Takes the registers from `struct sigcontext` at byte `at` of a frame.
    pub fn take_registers(&mut self, bytes: &[u8], at: usize) {
        let word = |at| get_word(bytes, at) as u64;
        self.registers.pc = word(at);
        for (i, x) in self.registers.x.iter_mut().enumerate().skip(1) {
            *x = word(at + 8 * i);
        }
        for (i, f) in self.rest.f.iter_mut().enumerate() {
            *f = word(at + FLOATS + 8 * i);
        }
        self.rest.fcsr = u32::from_le_bytes(get(bytes, at + CONTROL)).into();
    }
}
