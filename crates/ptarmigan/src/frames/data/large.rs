//! Large data frames: blocks that large pages of spaces show, and that become pages.
//!
//! # References
//!
//! A large page holds one reference to its block as a whole, so that fork shares 512 pages by one
//! step. The count of these is in the record of the first frame.
//!
//! A space that takes a large page apart [changes](DataFrames::give_pages_counts) its reference to one for
//! each page. The first to do so gives every page a count of its own, in the page's record, and from
//! then on the references to the whole together hold one to each page. So no page goes while a large
//! page of another space shows it, and when the last large page goes, each page has as many
//! references as there are entries that show it, and is a data frame as all others are.
//!
//! | record | `link` | `lines[0]` | `lines[1]` | `live` |
//! |---|---|---|---|---|
//! | first page | its own references | its own chain | references to the whole | [state](WHOLE) |
//! | second page | its own references | its own chain | next whole in the chain of a gather | order; a bit for the claim of a gather |
//!
//! Pages without a whole have no use for the last two columns.
//!
//! Rejected: counting the references of all pages together at the first one. A page could not be
//! given back before all others, and no space could know that it is a page's only user.
use super::{DataFrames, Request, TakenData};
use crate::addr::Pfn;
use crate::cpu::Pinned;
use crate::frames::{AllocFlags, FrameMeta, Frames, NoFrame, Taken, Use};
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// No reference is one to a page alone.
const WHOLE: u16 = 1;
/// A holder of a reference to the whole is giving the pages counts of their own.
const PARTING: u16 = 2;
/// Pages have counts of their own.
const PARTED: u16 = 3;
/// The bit beside the order that says that the chain of one gather has the whole.
const CLAIMED: u16 = 1 << 15;

/// The records of a large data frame.
#[derive(Clone, Copy)]
pub(crate) struct Large<'a> {
    first: &'a FrameMeta,
    second: &'a FrameMeta,
}

impl<'a> Large<'a> {
    /// Claims it for the chain of one gather, unless another gather has claimed it.
    pub fn try_claim(self) -> bool {
        self.second.state_of_large().fetch_or(CLAIMED, Acquire) & CLAIMED == 0
    }

    /// Gives the claim up; the accesses to the chain come before.
    pub fn unclaim(self) {
        self.second.state_of_large().fetch_and(!CLAIMED, Release);
    }

    /// The next one in the chain of the gather that has claimed it.
    pub fn next(self) -> Pfn {
        self.second.prev()
    }

    /// Sets the next one.
    pub fn set_next(self, to: Pfn) {
        self.second.set_prev(to);
    }

    /// Whether the caller, which holds a reference to the whole, holds the only one, and nobody
    /// refers to a page alone.
    pub fn is_sole(self) -> bool {
        self.first.wholes().load(Acquire) == 1 && self.first.state_of_large().load(Acquire) == WHOLE
    }

    /// Makes one more reference to the whole; the caller holds one.
    pub fn share(self) {
        self.first.wholes().fetch_add(1, Relaxed);
    }

    fn order(self) -> u8 {
        (self.second.state_of_large().load(Relaxed) & !CLAIMED) as u8
    }
}

impl DataFrames {
    /// The records of the large data frame that begins with `pfn`.
    pub(crate) fn large<'a>(&self, frames: &'a Frames, pfn: Pfn) -> Large<'a> {
        Large { first: frames.meta(pfn), second: frames.meta(Pfn(pfn.0 + (1 << self.order))) }
    }

    /// The pages of 2^`order` frames from `pfn` on.
    pub(crate) fn pages(&self, pfn: Pfn, order: u8) -> impl Iterator<Item = Pfn> + use<> {
        (pfn.0..pfn.0 + (1 << order)).step_by(1 << self.order).map(Pfn)
    }

    /// Takes a large data frame of 2^`order` frames, more than a page, with one reference to the
    /// whole. [`TakenData`] says whether all of it is known to be zero.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if no such block is free; nothing is won back for one.
    pub(crate) fn take_large(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        order: u8,
    ) -> Result<TakenData, NoFrame> {
        debug_assert!(order > self.order);
        let request = Request { zero: true, ..Self::request(pin, order, true, AllocFlags::ATOMIC) };
        let taken = frames.take(request)?;
        let is_zero = matches!(taken, Taken::Zero(_));
        let pfn = taken.dirty().into_raw();
        let large = self.large(frames, pfn);
        large.first.set_usage(Use::Data);
        large.first.wholes().store(1, Relaxed);
        large.first.state_of_large().store(WHOLE, Relaxed);
        large.second.state_of_large().store(order.into(), Relaxed);
        Ok(TakenData { pfn, is_zero })
    }

    /// Takes a reference to the whole back, and calls `gone` for all that nobody refers to any
    /// more: the block, or single pages of it.
    ///
    /// # Safety
    ///
    /// 1. `pfn` is the first frame of a large data frame of `frames`, and this and they are of one
    ///    machine.
    /// 2. The caller owns a reference to the whole, and gives it away.
    pub(crate) unsafe fn release_large(&self, frames: &Frames, pfn: Pfn, mut gone: impl FnMut(Pfn)) {
        let large = self.large(frames, pfn);
        if large.first.wholes().fetch_sub(1, AcqRel) != 1 {
            return;
        }
        // Nobody changes the state without a reference.
        if large.first.state_of_large().load(Acquire) == WHOLE {
            return gone(pfn);
        }
        for page in self.pages(pfn, large.order()) {
            if frames.meta(page).drop_reference() {
                gone(page);
            }
        }
    }

    /// Changes a reference to the whole to one for each page. `wait(done)` waits while
    /// another CPU does so first.
    ///
    /// # Safety
    ///
    /// 1. `pfn` is the first frame of a large data frame of `frames`, and this and they are of one
    ///    machine.
    /// 2. The caller owns a reference to the whole, and owns one to each page instead afterwards.
    pub(crate) unsafe fn give_pages_counts(
        &self,
        frames: &Frames,
        pfn: Pfn,
        wait: impl FnOnce(&dyn Fn() -> bool),
    ) {
        let large = self.large(frames, pfn);
        let (state, order) = (large.first.state_of_large(), large.order());
        let begin = |count| {
            for page in self.pages(pfn, order) {
                let record = frames.meta(page);
                record.set_usage(Use::Data);
                record.set_order(self.order);
                record.set_count(count);
            }
        };
        if large.is_sole() {
            // Nobody else can come by a reference.
            return begin(1);
        }
        match state.compare_exchange(WHOLE, PARTING, Acquire, Acquire) {
            Ok(_) => {
                // One for those to the whole, and the caller's own.
                begin(2);
                state.store(PARTED, Release);
            }
            Err(_) => {
                wait(&|| state.load(Acquire) != PARTING);
                for page in self.pages(pfn, order) {
                    frames.meta(page).add_reference_among_others();
                }
            }
        }
        // SAFETY: 1. and 2. passed on.
        unsafe {
            self.release_large(frames, pfn, |_| debug_assert!(false, "the caller refers to each page"))
        };
    }
}
