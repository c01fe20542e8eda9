//! Fault-around: a fault that reads a page of an object maps the neighbours of the page as well, if
//! they are at hand. A program that is started touches most of them soon; a fault costs far more
//! than an entry.
use super::SpaceMachine;
use super::areas::Hint;
use super::state::State;
use crate::addr::{Pfn, VirtRange};
use crate::format::{Attr, Format, growth};
use crate::machine::On;
use crate::page::Level;
use crate::tlb::SpaceTlb;

/// Pages that the machine is asked for at once.
const AT_ONCE: usize = 16;

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
        let window = VirtRange::ordered(start, start + bytes).and(area.range());
        let attr = Self::attr(area.flags) | Attr::SPECIAL;
        let Ok(leaf) = self.tables.leaf(on, page) else { return };
        let (first, grow) = (F::leaf(Level::PTE, Pfn(0), attr), growth::<F>(Level::PTE, attr));
        let mut at = window.start;
        while at < window.end {
            let pages = ((window.end - at) >> F::PAGE_SHIFT).min(AT_ONCE as u64) as usize;
            let mut frames = [Pfn::NONE; AT_ONCE];
            let frames = &mut frames[..pages];
            m.frames_at_hand(area.object, area.offset_at(at) >> F::PAGE_SHIFT, frames);
            for frame in frames {
                let va = at;
                at += 1 << F::PAGE_SHIFT;
                if *frame == Pfn::NONE || !leaf.is_empty_at(va) {
                    continue;
                }
                on.before_mapped::<F>(attr, *frame, 1);
                let raw = first.wrapping_add(grow.wrapping_mul(u64::from(frame.0 >> F::PAGE_ORDER)));
                debug_assert_eq!(raw, F::leaf(Level::PTE, *frame, attr));
                match leaf.put_at::<SHARED>(on, va, raw) {
                    Ok(true) => on.became_valid(Some(tlb), va, F::PAGE_SHIFT, 1, 0, raw),
                    Ok(false) => {}
                    // The table is locked, and this CPU cannot wait: its own page is mapped.
                    Err(_) => return,
                }
            }
        }
    }
}
