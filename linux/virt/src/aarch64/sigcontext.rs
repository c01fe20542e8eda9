//! The registers in `struct sigcontext` of Linux: the general ones, then a list of records, of
//! which `fpsimd_context` has floating point and vectors.

use ptarmigan_kernel::signal::frame::{get, get_word, put, put_words};

use super::LINK;
use crate::context::SavedRegisters;

/// Words of the general part: the address of the fault, x0 to x30, the stack pointer, the next
/// instruction, the state of the processor.
const GENERAL: usize = 8;
const STACK: usize = GENERAL + 31 * 8;
const INSTRUCTION: usize = STACK + 8;
const STATE: usize = INSTRUCTION + 8;
/// Where records begin: aligned to 16.
const RECORDS: usize = 288;
/// `FPSIMD_MAGIC`, and the bytes of that record: the head, status, control, the registers.
const FPSIMD: u32 = 0x4650_8001;
const FPSIMD_BYTES: usize = 16 + 512;
/// The last record: of no kind, and of no bytes.
const LAST: usize = RECORDS + FPSIMD_BYTES;
/// A frame record, for who follows the frame pointer: the caller's, and where it returns to.
const CALLER: usize = LAST + 16;
/// Bytes of `struct sigcontext` that are written.
pub const CONTEXT_BYTES: usize = CALLER + 16;
/// Bytes of a frame on the stack: `struct sigcontext` has 4 KiB for records.
pub const FRAME_BYTES: usize = 128 + 176 + RECORDS + 4096;

/// The register of the frame pointer.
const FRAME: usize = LINK - 1;
/// The arithmetic flags, which are all that programs may set of the state.
const FLAGS: u64 = 0xf000_0000;

impl SavedRegisters {
    /// Writes `struct sigcontext` at byte `at` of a frame that lies at `frame` of the program's
    /// memory; the frame pointer leads to its frame record.
    pub fn put_registers(&mut self, bytes: &mut [u8], at: usize, frame: u64) {
        let registers = &mut self.registers;
        put(bytes, at, &self.fault.to_le_bytes());
        put_words(bytes, at + GENERAL, &registers.x.map(|x| x as usize));
        put_words(bytes, at + STACK, &[registers.sp, registers.pc, registers.spsr].map(|x| x as usize));
        let head = [FPSIMD, FPSIMD_BYTES as u32, registers.fpsr as u32, registers.fpcr as u32];
        for (i, word) in head.iter().enumerate() {
            put(bytes, at + RECORDS + 4 * i, &word.to_le_bytes());
        }
        for (i, q) in registers.q.iter().enumerate() {
            put(bytes, at + RECORDS + 16 + 16 * i, &q.to_le_bytes());
        }
        put_words(bytes, at + CALLER, &[registers.x[FRAME] as usize, registers.x[LINK] as usize]);
        registers.x[FRAME] = frame.wrapping_add((at + CALLER) as u64);
    }

    /// Takes the registers from `struct sigcontext` at byte `at` of a frame. Floating point and
    /// vectors stay as they are if their record is not the first one.
    pub fn take_registers(&mut self, bytes: &[u8], at: usize) {
        let word = |at| get_word(bytes, at) as u64;
        let registers = &mut self.registers;
        for (i, x) in registers.x.iter_mut().enumerate() {
            *x = word(at + GENERAL + 8 * i);
        }
        registers.sp = word(at + STACK);
        registers.pc = word(at + INSTRUCTION);
        registers.spsr = word(at + STATE) & FLAGS;
        let [kind, size, status, control] =
            [0, 4, 8, 12].map(|field| u32::from_le_bytes(get(bytes, at + RECORDS + field)));
        if (kind, size) != (FPSIMD, FPSIMD_BYTES as u32) {
            return;
        }
        (registers.fpsr, registers.fpcr) = (status.into(), control.into());
        for (i, q) in registers.q.iter_mut().enumerate() {
            *q = u128::from_le_bytes(get(bytes, at + RECORDS + 16 + 16 * i));
        }
    }
}
