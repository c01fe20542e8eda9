//! Decides the effect of a change of a page's entry, once for entries that change alike.
use crate::format::{Attr, Format};
use crate::machine::is_told;
use crate::page::Level;
use core::cell::Cell;
use core::marker::PhantomData;

/// The bits of a leaf table's entry that hold the frame's number.
#[inline]
pub(crate) fn frame_bits<F: Format>() -> u64 {
    let of = |pfn| F::leaf(Level::PTE, pfn, Attr::USER | Attr::READ);
    of(crate::addr::Pfn(u32::MAX)) ^ of(crate::addr::Pfn(0))
}

/// Whether the MMU may use a leaf `new` of a table of `level` in all ways that `raw` allows, and
/// more: the same memory, and the same key, as another one may deny what is allowed now.
#[inline]
fn gains<F: Format>(level: Level, raw: u64, new: u64) -> bool {
    let (had, has) = (F::attr(level, raw), F::attr(level, new));
    F::is_present(level, raw) && has.has(had) && has.only(Attr::NUMBERS) == had.only(Attr::NUMBERS)
}

/// The effect of a change.
#[derive(Clone, Copy, Default)]
pub(super) struct ChangeEffect {
    /// The MMU may use the page in all ways as before, and more.
    pub gains: bool,
    /// The machine has to be [told](crate::machine::On::before_changed) before.
    pub told: bool,
}

impl ChangeEffect {
    /// That of a change of a leaf in a table of `level` from `raw` to `new`.
    #[cold]
    #[inline(never)]
    pub fn of<F: Format>(level: Level, raw: u64, new: u64) -> ChangeEffect {
        let (had, has) = (F::attr(level, raw), F::attr(level, new));
        ChangeEffect { gains: gains::<F>(level, raw, new), told: is_told(had, has) }
    }
}

/// The effects of changes in one range. The frame does not decide them, and most pages of a range
/// have the same attributes: the last answer is kept. To decode two entries takes a hundred
/// instructions on AArch64.
pub(super) struct ChangeEffects<F> {
    last: Cell<(u64, u64, ChangeEffect)>,
    _format: PhantomData<F>,
}

impl<F: Format> ChangeEffects<F> {
    pub fn new() -> Self {
        // Without its frame, no entry has all bits.
        ChangeEffects { last: Cell::new((u64::MAX, 0, ChangeEffect::default())), _format: PhantomData }
    }

    /// That of a change of a leaf table's entry from `raw` to `new`.
    #[inline]
    pub fn of(&self, raw: u64, new: u64) -> ChangeEffect {
        let frame = frame_bits::<F>();
        let (was, is) = (raw & !frame, new & !frame);
        let (before, after, effect) = self.last.get();
        if (was, is) == (before, after) {
            return effect;
        }
        let effect = ChangeEffect::of::<F>(Level::PTE, raw, new);
        self.last.set((was, is, effect));
        effect
    }
}
