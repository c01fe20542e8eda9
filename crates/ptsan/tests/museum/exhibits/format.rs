//! The formats of the exhibits, and their entries.
use ptsan::Arch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    X86,
    /// x86-64 with memory that AMD SEV encrypts.
    Encrypted,
    Ept,
    Arm,
    /// The upper half of AArch64.
    ArmUpper,
    RiscV,
}

/// The bit of an entry that says "encrypted".
pub const ENCRYPTED: u64 = 1 << 51;

impl Format {
    pub fn arch(self) -> Arch {
        match self {
            Self::X86 => Arch::x86_64(),
            Self::Encrypted => Arch::x86_64_encrypted::<51, false>(),
            Self::Ept => Arch::ept(),
            Self::Arm => Arch::aarch64_4k(39),
            Self::ArmUpper => Arch::aarch64_4k(39).upper(),
            Self::RiscV => Arch::riscv_sv39(),
        }
    }

    /// Returns the first address of the half that a root translates.
    pub fn base(self) -> u64 {
        if self == Self::ArmUpper { 0xffff_ff80_0000_0000 } else { 0 }
    }

    pub fn table(self, phys: u64) -> u64 {
        match self {
            Self::X86 => phys | 0x27,
            Self::Ept => phys | 7,
            Self::Encrypted => phys | 0x27 | ENCRYPTED,
            Self::Arm | Self::ArmUpper => phys | 3,
            Self::RiscV => phys >> 2 | 1,
        }
    }

    /// A page that user mode may read and write, accessed and dirty.
    pub fn page(self, phys: u64) -> u64 {
        match self {
            Self::X86 => phys | 0x67,
            Self::Encrypted => phys | 0x67 | ENCRYPTED,
            Self::Ept => phys | 0x337,
            Self::Arm | Self::ArmUpper => phys | 0xc43,
            Self::RiscV => phys >> 2 | 0xd7,
        }
    }

    /// The same for a page of a directory.
    pub fn large(self, phys: u64) -> u64 {
        match self {
            Self::X86 | Self::Encrypted | Self::Ept => self.page(phys) | 0x80,
            Self::Arm | Self::ArmUpper => self.page(phys) & !2,
            Self::RiscV => self.page(phys),
        }
    }
}
