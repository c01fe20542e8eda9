//! The interfaces between programs and the kernel.

/// The bytes that programs and the kernel exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// Linux on x86-64, calls by `syscall`.
    X86_64,
    /// Linux on i386, calls by `int 0x80`.
    I386,
    /// Linux on AArch64, with the numbers and structures that are common to newer architectures.
    Aarch64,
    /// The same on RISC-V.
    Riscv64,
}

impl Abi {
    /// Returns the number of bytes in a word of programs.
    pub const fn word(self) -> usize {
        match self {
            Abi::I386 => 4,
            Abi::X86_64 | Abi::Aarch64 | Abi::Riscv64 => 8,
        }
    }

    /// Returns the number of the machine in ELF files.
    pub const fn machine(self) -> u64 {
        match self {
            Abi::X86_64 => 62,
            Abi::I386 => 3,
            Abi::Aarch64 => 183,
            Abi::Riscv64 => 243,
        }
    }

    /// Returns the base of programs that may be loaded anywhere.
    pub const fn base(self) -> u64 {
        match self {
            Abi::X86_64 => 0x5555_5555_4000,
            Abi::I386 => 0x5655_5000,
            Abi::Aarch64 => 0xaaaa_aaaa_a000,
            Abi::Riscv64 => 0x2a_aaaa_a000,
        }
    }

    /// Returns the capabilities of the CPU that programs are told of (`AT_HWCAP`).
    pub const fn capabilities(self) -> u64 {
        match self {
            Abi::X86_64 => 0x078b_fbff,
            // Without SSE: time-stamp counter, CMPXCHG8B, CMOV, floating point.
            Abi::I386 => 0x8111,
            // Floating point, vectors.
            Abi::Aarch64 => 3,
            // The extensions IMAFDC, each a letter's bit.
            Abi::Riscv64 => 0x112d,
        }
    }

    /// Returns the fewest bytes of a stack for handlers of signals (`MINSIGSTKSZ`).
    pub const fn least_stack(self) -> u64 {
        match self {
            Abi::X86_64 | Abi::I386 | Abi::Riscv64 => 2048,
            Abi::Aarch64 => 5120,
        }
    }

    /// Whether a program may say where its handlers return to (`SA_RESTORER`).
    pub const fn has_restorers(self) -> bool {
        !matches!(self, Abi::Riscv64)
    }

    /// Returns `O_DIRECTORY` and `O_NOFOLLOW`.
    pub const fn directory_flags(self) -> (u64, u64) {
        match self {
            Abi::X86_64 | Abi::I386 | Abi::Riscv64 => (0o200_000, 0o400_000),
            Abi::Aarch64 => (0o40_000, 0o100_000),
        }
    }
}
