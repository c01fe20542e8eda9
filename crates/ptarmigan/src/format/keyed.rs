//! x86-64 with protection keys of the user's pages (`CR4.PKE`; Intel SDM volume 3, 4.6.2).
use super::around::around;
use super::{Access, Attr, Format, Rights, Slot64, X86_64, X86_64La57};
use crate::addr::{Pfn, PhysAddr};
use crate::page::{Layout, Level, MAX_LEVELS};
use core::marker::PhantomData;

/// Bits 59 to 62 of an entry are the key, [`Attr::KEY`] this much higher. The MMU ignores them in
/// an entry that is not present, where they stay.
const SHIFT: u32 = 59 - Attr::KEY.0.trailing_zeros();

/// [`X86_64`] or [`X86_64La57`] whose leaves have a protection key: [`Attr::key`].
///
/// The register `PKRU` of each CPU says what a program may do with the data of each key; it changes
/// without a flush. Keys do not restrict execution, so pages of a key that denies access are for
/// execution alone.
///
/// [`allows`](Format::allows) answers for a `PKRU` of 0, as the entry alone does. A fault that a
/// key has denied (bit 5 of its error code) is not for
/// [`Space::fault`](crate::space::Space::fault), which would call it spurious: the program gets a
/// signal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keyed<F>(PhantomData<F>);

macro_rules! keyed {
    ($format:ty, $name:expr) => {
        // SAFETY: as for `$format`, whose bits these are: bits 59 to 62 have no other use in it.
        unsafe impl Format for Keyed<$format> {
            const NAME: &'static str = $name;
            around!($format);
            const PHYS_BITS: u32 = <$format>::PHYS_BITS;
            const RIGHTS: Rights = <$format>::RIGHTS.with_attributes(Attr::KEY);

            #[inline]
            fn link(level: Level, at: PhysAddr) -> u64 {
                <$format>::link(level, at)
            }
            #[inline]
            fn linked(level: Level, raw: u64) -> Option<PhysAddr> {
                <$format>::linked(level, raw)
            }
            #[inline]
            fn leaf(level: Level, pfn: Pfn, attr: Attr) -> u64 {
                <$format>::leaf(level, pfn, attr) | u64::from(attr.only(Attr::KEY).0) << SHIFT
            }
            #[inline]
            fn frame(level: Level, raw: u64) -> Pfn {
                <$format>::frame(level, raw)
            }
            #[inline]
            fn attr(level: Level, raw: u64) -> Attr {
                <$format>::attr(level, raw) | Attr((raw >> SHIFT) as u32).only(Attr::KEY)
            }
        }
    };
}
keyed!(X86_64, "x86-64 with keys");
keyed!(X86_64La57, "x86-64, five levels, with keys");
