//! x86-64 with memory that is encrypted by a key of the guest, or of the host (AMD APM volume 2,
//! 7.10 and 15.34; Intel TDX Module specification, "Shared bit").
use super::around::around;
use super::{Access, Attr, Format, Keyed, Rights, Slot64, X86_64, X86_64La57};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};
use core::marker::PhantomData;

/// [`X86_64`], [`X86_64La57`] or one of both with keys ([`Keyed`]), where bit `BIT` of an entry
/// says whether memory is encrypted. [`Sev`] and [`Tdx`] are the names of the two kinds.
///
/// A page is encrypted unless it has [`Attr::SHARED`]; tables are, always. Physical addresses end
/// below the bit: other frames are refused.
///
/// The bit belongs to the CPU (CPUID 8000_001F, EBX, bits 0 to 5; the width of a TDX guest's
/// physical addresses), so a kernel that runs on several has a type for each, and chooses one at
/// start. With `Sev` the register CR3 has the bit as well: the kernel's `load_cr3`
/// ([`Instructions`](crate::arch::x86_64::Instructions)) sets it. Before a page becomes shared or
/// private, its frame is flushed from the caches, and the host is asked, by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Encrypted<F, const BIT: u32, const MARKS_SHARED: bool>(PhantomData<F>);

/// The guest of AMD SEV, or a host with SME: `BIT` is the C-bit, set in entries of encrypted
/// memory.
pub type Sev<F, const BIT: u32> = Encrypted<F, BIT, false>;
/// The guest of Intel TDX: `BIT` is the shared bit, set in entries of memory that is shared.
pub type Tdx<F, const BIT: u32> = Encrypted<F, BIT, true>;

impl<F, const BIT: u32, const MARKS_SHARED: bool> Encrypted<F, BIT, MARKS_SHARED> {
    const MARK: u64 = {
        assert!(BIT >= 32 && BIT < 52, "the bit lies in the upper part of the address");
        1 << BIT
    };
    /// The mark of a link.
    const PRIVATE: u64 = if MARKS_SHARED { 0 } else { Self::MARK };

    /// The mark of a leaf with `attr`.
    #[inline]
    fn mark(attr: Attr) -> u64 {
        if attr.has(Attr::SHARED) == MARKS_SHARED { Self::MARK } else { 0 }
    }
}

macro_rules! encrypted {
    ($format:ty, $sev:literal, $tdx:literal) => {
        // SAFETY: as for `$format`, whose bits these are, but for `BIT`, which is above all
        // addresses: links and leaves have it besides theirs, and it is taken out before an address
        // is read. 9. `PHYS_BITS` is `BIT`.
        unsafe impl<const BIT: u32, const MARKS_SHARED: bool> Format
            for Encrypted<$format, BIT, MARKS_SHARED>
        {
            const NAME: &'static str = if MARKS_SHARED { $tdx } else { $sev };
            around!($format);
            const PHYS_BITS: u32 = BIT;
            const RIGHTS: Rights = <$format>::RIGHTS.with_attributes(Attr::SHARED);

            #[inline]
            fn link(level: Level, at: PhysAddr) -> u64 {
                <$format>::link(level, at) | Self::PRIVATE
            }
            #[inline]
            fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
                <$format>::linked(level, raw & !Self::MARK)
            }
            #[inline]
            fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
                <$format>::leaf(level, pfn, attr) | Self::mark(attr)
            }
            #[inline]
            fn frame(level: Level, raw: u64) -> Pfn {
                <$format>::frame(level, raw & !Self::MARK)
            }
            #[inline]
            fn attr(level: Level, raw: u64) -> Attr {
                let shared = (raw & Self::MARK != 0) == MARKS_SHARED;
                <$format>::attr(level, raw) | if shared { Attr::SHARED } else { Attr::default() }
            }
        }
    };
}
encrypted!(X86_64, "x86-64 with SEV", "x86-64 with TDX");
encrypted!(X86_64La57, "x86-64, five levels, with SEV", "x86-64, five levels, with TDX");
encrypted!(Keyed<X86_64>, "x86-64 with keys and SEV", "x86-64 with keys and TDX");
encrypted!(
    Keyed<X86_64La57>,
    "x86-64, five levels, with keys and SEV",
    "x86-64, five levels, with keys and TDX"
);
