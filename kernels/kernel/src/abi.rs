//! The two interfaces between programs and the kernel.

/// The bytes that programs and the kernel exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// Linux on x86-64, calls by `syscall`.
    X86_64,
    /// Linux on i386, calls by `int 0x80`.
    I386,
}

impl Abi {
    /// Returns the number of bytes in a word of programs.
    pub const fn word(self) -> usize {
        match self {
            Abi::X86_64 => 8,
            Abi::I386 => 4,
        }
    }
}
