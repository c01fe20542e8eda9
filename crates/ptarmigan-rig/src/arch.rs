//! The formats that library and sanitizer both know.
use ptarmigan::format::{Format, I386, Ppc32, X86_64, X86Pae};
use ptsan::Arch;

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
