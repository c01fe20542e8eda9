//! The formats that library and sanitizer both know.
use ptarmigan::format::{
    Aarch64Stage1, Aarch64Stage2, Ept, Format, I386, Ia64, LoongArch64, Npt, Ppc32, Sparc64, Sv, Sv32, SvX4,
    X86_64, X86_64La57, X86Pae,
};
use ptsan::{Arch, Granule};

/// A format that the sanitizer can decode.
pub trait Watchable: Format {
    /// Returns the sanitizer's description of the format.
    fn arch() -> Arch;
}

impl Watchable for X86_64 {
    fn arch() -> Arch {
        Arch::x86_64()
    }
}

impl Watchable for X86_64La57 {
    fn arch() -> Arch {
        Arch::x86_64_la57()
    }
}

impl Watchable for X86Pae {
    fn arch() -> Arch {
        Arch::x86_pae()
    }
}

impl Watchable for I386 {
    fn arch() -> Arch {
        Arch::x86_2level()
    }
}

impl Watchable for Ppc32 {
    fn arch() -> Arch {
        Arch::ppc32()
    }
}

impl Watchable for Sv32 {
    fn arch() -> Arch {
        Arch::riscv_sv32()
    }
}

impl<const LEVELS: u8> Watchable for Sv<LEVELS> {
    fn arch() -> Arch {
        match LEVELS {
            3 => Arch::riscv_sv39(),
            4 => Arch::riscv_sv48(),
            _ => Arch::riscv_sv57(),
        }
    }
}

impl<const GRANULE: u32, const UPPER: bool> Watchable for Aarch64Stage1<GRANULE, UPPER> {
    fn arch() -> Arch {
        let arch = match GRANULE {
            12 => Arch::aarch64_4k(48),
            14 => Arch::aarch64_16k(47),
            _ => Arch::aarch64_64k(48),
        };
        if UPPER { arch.upper() } else { arch }
    }
}

impl Watchable for LoongArch64 {
    fn arch() -> Arch {
        Arch::loongarch64()
    }
}

impl Watchable for Sparc64 {
    fn arch() -> Arch {
        Arch::sparc64()
    }
}

impl Watchable for Ia64 {
    fn arch() -> Arch {
        Arch::ia64()
    }
}

impl Watchable for Aarch64Stage2 {
    fn arch() -> Arch {
        Arch::aarch64_stage2(Granule::K4, 40, 1)
    }
}

impl Watchable for Ept {
    fn arch() -> Arch {
        Arch::ept()
    }
}

impl Watchable for Npt {
    fn arch() -> Arch {
        Arch::npt()
    }
}

impl<const LEVELS: u8> Watchable for SvX4<LEVELS> {
    fn arch() -> Arch {
        if LEVELS == 3 { Arch::riscv_sv39x4() } else { Arch::riscv_sv48x4() }
    }
}
