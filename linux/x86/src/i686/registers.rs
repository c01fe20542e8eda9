//! The registers of programs: their order, their places in calls, the values that select segments.

pub use ptarmigan::format::X86Pae as Format;
use ptarmigan_kernel::arch::Abi;

/// The calling convention of programs.
pub const ABI: Abi = Abi::I386;
/// The data segment of programs.
pub const USER_DATA: usize = 0x23;
/// The code segment of programs.
pub const USER_CODE: usize = 0x1b;
/// The vector of system calls.
pub const CALL: usize = 0x80;
/// The segment of a program's thread: entry 6, as Linux has it.
pub const USER_THREAD: usize = 0x33;
/// gs (the selector of the thread's memory), fs, es, ds.
pub const SEGMENTS: usize = 4;
/// Of a program that has not begun.
pub const FRESH_SEGMENTS: [usize; SEGMENTS] = [0, 0, USER_DATA, USER_DATA];
/// edi esi ebp (esp) ebx edx ecx eax.
pub const GENERAL: usize = 8;
/// Where the assembly expects the vectors.
pub const VECTORS: usize = 80;
/// The return to user mode takes any address.
pub const CHECKS_INSTRUCTION: bool = false;

/// The place of the result of calls, eax, in [`Registers::general`].
pub const RESULT: usize = 7;
/// The place of the number of a port, edx.
pub const PORT: usize = 5;
/// The places of arguments of calls: ebx, ecx, edx, esi, edi, ebp.
pub const ARGUMENTS: [usize; 6] = [4, 6, 5, 1, 0, 2];
/// The places of arguments of handlers: eax, edx, ecx.
pub const HANDLER: [usize; 3] = [RESULT, 5, 6];
/// Arguments of handlers that are on the stack, too.
pub const STACK_ARGUMENTS: usize = 3;
/// Bytes below the stack pointer of a program that belong to it.
pub const RED_ZONE: usize = 0;
