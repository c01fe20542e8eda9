//! Instructions of address translation, told by their bytes.

/// The architectures that the recorder knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedArch {
    /// x86-64 without PCIDs.
    X86_64,
    /// RISC-V, Sv39.
    Riscv64,
}

/// The effect of an instruction. Its operands are in registers, which a plugin cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionEffect {
    /// Loads a root.
    LoadsRoot,
    /// Drops one page in every space: `invlpg`, `sfence.vma` with an address alone.
    Page,
    /// Drops one page in one space: `sfence.vma` with both.
    PageInSpace,
    /// Drops one space: `sfence.vma` with an ASID alone.
    Space,
    /// Drops everything.
    All,
    /// Changes the TLB in a way that is not recorded: `invpcid`, a load of CR4.
    Unknown,
}

impl RecordedArch {
    /// Tells the kind; `None` for all other instructions.
    pub fn kind(self, bytes: &[u8]) -> Option<InstructionEffect> {
        match self {
            RecordedArch::X86_64 => x86(bytes),
            RecordedArch::Riscv64 => riscv(bytes),
        }
    }

    /// Whether the code at `pc` runs without translation: the firmware of QEMU's RISC-V machine, up
    /// to where it loads a kernel. Its accesses are by physical address.
    pub fn is_firmware(self, pc: u64) -> bool {
        self == RecordedArch::Riscv64 && (0x8000_0000..0x8020_0000).contains(&pc)
    }

    /// The first address of the kernel's half.
    pub fn kernel_start(self) -> u64 {
        match self {
            RecordedArch::X86_64 => 0xffff_8000_0000_0000,
            RecordedArch::Riscv64 => 0xffff_ffc0_0000_0000,
        }
    }
}

/// The processor's manual, volume 2.
fn x86(bytes: &[u8]) -> Option<InstructionEffect> {
    let after =
        bytes.iter().position(|b| !matches!(b, 0x2e | 0x36 | 0x3e | 0x26 | 0x64..=0x67 | 0x40..=0x4f))?;
    match bytes.get(after..)? {
        [0x0f, 0x01, modrm, ..] if modrm & 0xc0 != 0xc0 && modrm >> 3 & 7 == 7 => {
            Some(InstructionEffect::Page)
        }
        [0x0f, 0x22, modrm, ..] if modrm >> 3 & 7 == 3 => Some(InstructionEffect::LoadsRoot),
        [0x0f, 0x22, modrm, ..] if modrm >> 3 & 7 == 4 => Some(InstructionEffect::Unknown),
        [0x0f, 0x38, 0x82, ..] => Some(InstructionEffect::Unknown),
        _ => None,
    }
}

/// The privileged specification, "Supervisor Instructions" and "Zicsr".
fn riscv(bytes: &[u8]) -> Option<InstructionEffect> {
    const SYSTEM: u32 = 0x73;
    const SATP: u32 = 0x180;
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let (first, second) = (word >> 15 & 31, word >> 20 & 31);
    if word & 0xfe00_7fff == 0x1200_0073 {
        return Some(match (first, second) {
            (0, 0) => InstructionEffect::All,
            (0, _) => InstructionEffect::Space,
            (_, 0) => InstructionEffect::Page,
            (_, _) => InstructionEffect::PageInSpace,
        });
    }
    // Setting or clearing no bits only reads.
    let writes = matches!(word >> 12 & 7, 1 | 5) || matches!(word >> 12 & 7, 2 | 3 | 6 | 7) && first != 0;
    (word & 0x7f == SYSTEM && word >> 20 == SATP && writes).then_some(InstructionEffect::LoadsRoot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_x86() {
        for (bytes, kind) in [
            (&[0x0f, 0x22, 0xd8][..], Some(InstructionEffect::LoadsRoot)),
            (&[0x41, 0x0f, 0x22, 0xdc], Some(InstructionEffect::LoadsRoot)),
            (&[0x0f, 0x20, 0xd8], None), // from cr3
            (&[0x0f, 0x22, 0xe0], Some(InstructionEffect::Unknown)),
            (&[0x0f, 0x01, 0x38], Some(InstructionEffect::Page)),
            (&[0x41, 0x0f, 0x01, 0x38], Some(InstructionEffect::Page)),
            (&[0x0f, 0x01, 0xf8], None), // swapgs
            (&[0x66, 0x0f, 0x38, 0x82, 0x00], Some(InstructionEffect::Unknown)),
            (&[0x90], None),
            (&[], None),
        ] {
            assert_eq!(RecordedArch::X86_64.kind(bytes), kind, "{bytes:02x?}");
        }
    }

    #[test]
    fn instructions_of_riscv() {
        for (word, kind) in [
            (0x1200_0073_u32, Some(InstructionEffect::All)),
            (0x1205_0073, Some(InstructionEffect::Page)), // sfence.vma a0
            (0x12b0_0073, Some(InstructionEffect::Space)), // sfence.vma zero, a1
            (0x12b5_0073, Some(InstructionEffect::PageInSpace)), // sfence.vma a0, a1
            (0x1805_1073, Some(InstructionEffect::LoadsRoot)), // csrw satp, a0
            (0x1800_2573, None),                          // csrr a0, satp
            (0x1005_1073, None),                          // csrw sstatus, a0
            (0x0000_100f, None),                          // fence.i
        ] {
            assert_eq!(RecordedArch::Riscv64.kind(&word.to_le_bytes()), kind, "{word:#x}");
        }
        assert_eq!(RecordedArch::Riscv64.kind(&[0x73, 0x00]), None, "a short one");
    }
}
