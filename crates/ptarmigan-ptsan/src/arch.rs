//! The formats that library and sanitizer both know.
use ptarmigan::format::{
    Aarch64Stage1, Aarch64Stage2, Encrypted, Ept, Format, I386, Ia64, Keyed, LoongArch64, Npt, Ppc32,
    Sparc64, Sv, Sv32, SvX4, X86_64, X86_64La57, X86Pae,
};
use ptsan::{Arch, Granule};

/// A format that the sanitizer can decode.
pub trait Watchable: Format {
    /// Returns the sanitizer's description of the format.
    fn arch() -> Arch;
}

macro_rules! watchable {
    ($($format:ty => $arch:expr;)*) => { $(
        impl Watchable for $format {
            fn arch() -> Arch {
                $arch
            }
        }
    )* };
}

watchable! {
    X86_64 => Arch::x86_64();
    X86_64La57 => Arch::x86_64_la57();
    Keyed<X86_64> => Arch::x86_64_keys::<0>();
    Keyed<X86_64La57> => Arch::x86_64_la57();
    X86Pae => Arch::x86_pae();
    I386 => Arch::x86_2level();
    Ppc32 => Arch::ppc32();
    Sv32 => Arch::riscv_sv32();
    LoongArch64 => Arch::loongarch64();
    Sparc64 => Arch::sparc64();
    Ia64 => Arch::ia64();
    Aarch64Stage2 => Arch::aarch64_stage2(Granule::K4, 40, 1);
    Ept => Arch::ept();
    Npt => Arch::npt();
}

impl<const BIT: u32, const MARKS_SHARED: bool> Watchable for Encrypted<X86_64, BIT, MARKS_SHARED> {
    fn arch() -> Arch {
        Arch::x86_64_encrypted::<BIT, MARKS_SHARED>()
    }
}

impl<const LEVELS: u8, const PBMT: bool, const NAPOT: bool> Watchable for Sv<LEVELS, PBMT, NAPOT> {
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

impl<const LEVELS: u8, const PBMT: bool, const NAPOT: bool> Watchable for SvX4<LEVELS, PBMT, NAPOT> {
    fn arch() -> Arch {
        if LEVELS == 3 { Arch::riscv_sv39x4() } else { Arch::riscv_sv48x4() }
    }
}
