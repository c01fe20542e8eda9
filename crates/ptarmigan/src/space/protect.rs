//! Gives pages other permissions, and marks of their owner's.
use super::SpaceMachine;
use super::area::AreaFlags;
use super::areas::AreaError;
use super::large::is_sole;
use super::state::{SpaceMut, State};
use crate::addr::VirtRange;
use crate::format::{Attr, Format};
use crate::gather::Gather;
use crate::page::Level;
use crate::table::frame_bits;
use core::cell::Cell;

/// The attributes of pages that have got other permissions.
#[derive(Clone, Copy)]
struct Wanted {
    /// Those that stay.
    keep: Attr,
    /// Those that come.
    add: Attr,
    /// The pages may be written.
    writes: bool,
}

impl Wanted {
    /// The entry `raw` of a table of `level` with them, and the same for a page whose only user the
    /// space is. As at a fault (`State::fault_present`): frames of objects and of zeroes are
    /// special, and a frame that another entry shows is copied when it is written.
    #[cold]
    #[inline(never)]
    fn of<F: Format>(self, level: Level, raw: u64) -> (u64, u64) {
        let attr = Attr(F::attr(level, raw).0 & self.keep.0) | self.add;
        let gains = self.writes && !attr.has(Attr::WRITE) && !F::is_special(level, raw);
        let of = |attr| F::leaf(level, F::frame(level, raw), attr);
        (of(attr), of(if gains { attr | Attr::WRITE } else { attr }))
    }
}

/// Entries that pages of a range have got, by the attributes that they had: most have the same, and
/// to decode and encode them takes a hundred instructions on AArch64.
#[derive(Clone, Copy)]
struct Protected {
    /// The entry before, without its frame; all bits for none.
    was: u64,
    /// The entry, without its frame.
    is: u64,
    /// The same, for a page whose only user this space is.
    sole: u64,
}

impl<F: Format, M: SpaceMachine> SpaceMut<'_, F, M> {
    /// Gives the pages in `range` the `permissions` that their areas have got; the key, too, if it
    /// is in `which`.
    pub(super) fn protect_pages(
        &mut self,
        range: VirtRange,
        permissions: AreaFlags,
        which: AreaFlags,
        gather: &mut Gather<'_, M>,
    ) {
        let mut keep = Attr::USER | Attr::ACCESSED | Attr::DIRTY | Attr::SPECIAL | Attr::SOFT | Attr::MEMORY;
        if permissions.has(AreaFlags::WRITE) {
            keep = keep | Attr::WRITE;
        }
        if !which.has(AreaFlags::KEY) {
            keep = keep | Attr::KEY;
        }
        let add = permissions.attr::<F>().without(Attr::WRITE);
        let on = self.on;
        let tables = &mut self.state.tables;
        let wanted = Wanted { keep, add, writes: permissions.has(AreaFlags::WRITE) };
        let frame = frame_bits::<F>();
        let last = Cell::new(Protected { was: u64::MAX, is: 0, sole: 0 });
        tables.change_permissions(range, gather, |level, _, raw| {
            if level > Level::PTE {
                let (is, sole) = wanted.of::<F>(level, raw);
                return if is != sole && is_sole::<F, M>(on, level, raw) { sole } else { is };
            }
            let mut known = last.get();
            if known.was != raw & !frame {
                let (is, sole) = wanted.of::<F>(level, raw);
                known = Protected { was: raw & !frame, is: is & !frame, sole: sole & !frame };
                last.set(known);
            }
            let Protected { is, sole, .. } = known;
            raw & frame | if is != sole && is_sole::<F, M>(on, level, raw) { sole } else { is }
        });
    }

    /// Sets the attributes `set` of pages that are mapped in `range`, and clears those of `clear`:
    /// both are of the caller's own ([`Attr::SOFT`]). They stay with the page when it is written,
    /// moved, passed on by fork or given other permissions, and go when it is unmapped. A page that
    /// is not mapped yet has none. [`TreeRef::query`](crate::table::TreeRef::query) returns them.
    ///
    /// # Errors
    ///
    /// [`AreaError`]; no page has changed then. [`AreaError::Inexpressible`] for attributes that
    /// are not the caller's, or that entries of the format do not have.
    pub fn mark_pages(&mut self, range: VirtRange, set: Attr, clear: Attr) -> Result<(), AreaError> {
        let range = State::<F>::pages(range)?;
        F::expresses_soft(set | clear)?;
        self.may_flush()?;
        let mut gather = self.gather();
        self.state.tables.change_permissions(range, &mut gather, |level, _, raw| {
            F::map_attr(level, raw, |attr| attr.without(clear) | set)
        });
        Ok(())
    }
}
