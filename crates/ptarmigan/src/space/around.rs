//! Fault-around: a fault that reads a page of an object maps the neighbours of the page as well, if
//! they are at hand. A program that is started touches most of them soon; a fault costs far more
//! than an entry.
use super::SpaceMachine;
use super::areas::Hint;
use super::state::State;
use crate::addr::VirtRange;
use crate::format::{Attr, Format};
use crate::machine::On;
use crate::page::Level;
use crate::tlb::SpaceTlb;

impl<F: Format> State<F> {
    /// Maps pages around the one at `page`, which a fault has just mapped for reading, as far as
    /// the machine says: empty ones, in the same area and leaf table, whose frames are at hand.
    /// There may be other faults at the same time.
    #[cold]
    #[inline(never)]
    pub(super) fn map_around<M: SpaceMachine, const SHARED: bool>(
        &self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        page: u64,
        hint: Hint,
    ) {
        let m = on.machine();
        let area = self.areas.found(on, hint);
        let bytes = (u64::from(m.fault_around()) << F::PAGE_SHIFT).min(1 << F::shift(Level(1)));
        let start = page - page % bytes;
        let window = VirtRange { start, end: start + bytes }.and(area.range());
        let attr = Self::attr(area.flags) | Attr::SPECIAL;
        for at in (window.start..window.end).step_by(1 << F::PAGE_SHIFT) {
            let Ok(leaf) = self.tables.leaf(on, at) else { return };
            if !F::is_none(leaf.load()) {
                continue;
            }
            let number = area.offset_at(at) >> F::PAGE_SHIFT;
            let Some(frame) = m.frame_at_hand(area.object, number) else { continue };
            on.before_mapped::<F>(attr, frame, 1);
            let raw = F::leaf(Level::PTE, frame, attr);
            match self.tables.put::<M, SHARED>(on, at, Ok(leaf), raw) {
                Ok(true) => on.became_valid(Some(tlb), at, F::PAGE_SHIFT, 1, 0, raw),
                Ok(false) => {}
                // The table is locked, and this CPU cannot wait: its own page is mapped.
                Err(_) => return,
            }
        }
    }
}
