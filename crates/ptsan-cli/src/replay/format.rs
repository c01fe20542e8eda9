//! The page-table format of a log, as the sanitizer describes it.
use ptsan::{Arch, Granule};
use ptsan_log::{Architecture, Header};

/// Returns the format, or the reason why the header has no valid one.
pub(super) fn arch(header: &Header) -> Result<Arch, String> {
    let bits = header.va_bits;
    let arch = match header.architecture {
        Architecture::X86TwoLevel => Arch::x86_2level(),
        Architecture::X86Pae => Arch::x86_pae(),
        Architecture::X86_64 => Arch::x86_64(),
        Architecture::X86_64La57 => Arch::x86_64_la57(),
        Architecture::Sv32 => Arch::riscv_sv32(),
        Architecture::Sv39 => Arch::riscv_sv39(),
        Architecture::Sv48 => Arch::riscv_sv48(),
        Architecture::Sv57 => Arch::riscv_sv57(),
        Architecture::Aarch64K4 => Arch::aarch64_4k(bits),
        Architecture::Aarch64K16 => Arch::aarch64_16k(bits),
        Architecture::Aarch64K64 => Arch::aarch64_64k(bits),
        Architecture::Stage2K4 => Arch::aarch64_stage2(Granule::K4, bits, header.start_level),
        Architecture::Stage2K16 => Arch::aarch64_stage2(Granule::K16, bits, header.start_level),
        Architecture::Stage2K64 => Arch::aarch64_stage2(Granule::K64, bits, header.start_level),
        Architecture::Ept => Arch::ept(),
        Architecture::Npt => Arch::npt(),
        Architecture::Sv39x4 => Arch::riscv_sv39x4(),
        Architecture::Sv48x4 => Arch::riscv_sv48x4(),
    };
    if arch.levels.is_empty() {
        return Err(format!(
            "header: {} with {bits} address bits from level {} does not exist",
            header.architecture, header.start_level
        ));
    }
    Ok(if header.upper { arch.upper() } else { arch })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A header that describes a format.
    pub(in crate::replay) fn header_of(architecture: Architecture) -> Header {
        let start_level = match architecture {
            Architecture::Stage2K64 | Architecture::Stage2K16 => 2,
            _ => 1,
        };
        Header { va_bits: 40, start_level, ..Header::new(architecture, 1) }
    }

    #[test]
    fn each_architecture_has_a_format_within_its_bits() {
        for architecture in Architecture::ALL {
            let header = header_of(*architecture);
            let arch = arch(&header).unwrap();
            assert!(!arch.levels.is_empty(), "{architecture}");
        }
        let header = Header { va_bits: 77, ..Header::new(Architecture::Aarch64K4, 1) };
        assert!(arch(&header).is_err_and(|e| e.contains("77")));
    }
}
