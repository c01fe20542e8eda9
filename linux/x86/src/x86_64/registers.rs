//! The registers of programs: their order, their places in calls, the values that select segments.

pub use ptarmigan::format::X86_64 as Format;
use ptarmigan_kernel::arch::Abi;

/// The calling convention of programs.
pub const ABI: Abi = Abi::X86_64;
/// The data segment of programs.
pub const USER_DATA: usize = 0x23;
/// The code segment of programs.
pub const USER_CODE: usize = 0x2b;
/// The vector of system calls, which the processor does not use.
pub const CALL: usize = 0x100;
/// No segments: their bases are registers.
pub const SEGMENTS: usize = 0;
/// Of a program that has not begun.
pub const FRESH_SEGMENTS: [usize; SEGMENTS] = [];
/// r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi.
pub const GENERAL: usize = 15;
/// Where the assembly expects the vectors.
pub const VECTORS: usize = 176;
/// The return to user mode fails in the kernel if its address is none of programs'.
pub const CHECKS_INSTRUCTION: bool = true;

/// The place of the result of calls, rax, in [`Registers::general`].
pub const RESULT: usize = 10;
/// The place of the number of a port, rdx.
pub const PORT: usize = 12;
/// The places of arguments of calls: rdi, rsi, rdx, r10, r8, r9.
pub const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
/// The places of arguments of handlers: rdi, rsi, rdx.
pub const HANDLER: [usize; 3] = [14, 13, 12];
/// Arguments of handlers that are on the stack, too.
pub const STACK_ARGUMENTS: usize = 0;
/// Bytes below the stack pointer of a program that belong to it.
pub const RED_ZONE: usize = 128;
