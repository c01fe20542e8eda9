//! Large data frames: blocks that large pages of spaces show, and that become pages.
//!
//! # References
//!
//! A large page holds one reference to its block as a whole, so that fork shares 512 pages by one
//! step. The count of these is in the record of the first frame.
//!
//! A space that takes a large page apart [changes](DataFrames::give_pages_counts) its reference to
//! one for each page. The first to do so gives every page a count of its own, in the page's record,
//! and from then on the references to the whole together hold one to each page. So no page goes
//! while a large page of another space shows it, and when the last large page goes, each page has
//! as many references as there are entries that show it, and is a data frame as all others are.
//!
//! ```text
//!               first split               last whole gone
//!   WHOLE ──> PARTING ──> PARTED ───────────────────────────> pages like all others
//!   whole 2              whole 2, each page 2 (one stands for the whole, one for the split)
//!                        whole 1, each page 2 ──> whole 0, each page 1
//! ```
//!
//! | record | `link` | `lines[0]` | `lines[1]` | `live` |
//! |---|---|---|---|---|
//! | first page | its own references | its own chain | references to the whole | [state](WHOLE) |
//! | second page | its own references | its own chain | next whole in the chain of a gather | order; a bit for the claim of a gather |
//!
//! Pages without a whole have no use for the last two columns.
//!
//! # Why
//!
//! Spaces that fork from each other split their large pages at different times, and on different
//! CPUs. Each of them must be able to give one page back while another one still shows all 512.
//! Rejected: counting the references of all pages together at the first one. A page could not be
//! given back before all others, and no space would know that it is a page's only user.
use super::{DataFrames, TakenData};
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
    /// Returns how many large pages of spaces have been split since the machine was set up, on all
    /// CPUs. A large page that several spaces show counts once for each that splits it.
    pub fn large_splits(&self) -> usize {
        self.splits.load(Relaxed)
    }

    /// The records of the large data frame that begins with `pfn`.
    pub(crate) fn large<'a>(&self, frames: &'a Frames, pfn: Pfn) -> Large<'a> {
        Large { first: frames.meta(pfn), second: frames.meta(Pfn(pfn.0 + (1 << self.order))) }
    }

    /// The pages of 2^`order` frames from `pfn` on.
    pub(crate) fn pages(&self, pfn: Pfn, order: u8) -> impl Iterator<Item = Pfn> + use<> {
        // `step_by` would ask whether the step is 0, and panic.
        let (mut at, end, step) = (pfn.0, pfn.0 + (1 << order), 1 << self.order);
        core::iter::from_fn(move || {
            let page = (at < end).then_some(Pfn(at));
            at += step;
            page
        })
    }

    /// Takes a large data frame of 2^`order` frames, more than a page, with one reference to the
    /// whole; `want_zero` says that a zero one is better. [`TakenData`] says whether all of it is
    /// known to be zero.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if no such block is free; nothing is won back for one.
    pub(crate) fn take_large(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        order: u8,
        want_zero: bool,
    ) -> Result<TakenData, NoFrame> {
        debug_assert!(order > self.order);
        let taken = frames.take(Self::request(pin, order, want_zero, AllocFlags::ATOMIC))?;
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
        self.splits.fetch_add(1, Relaxed);
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

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::bootmem::BootMemory;
    use crate::cpu::{CpuId, MachineId, NodeId};
    use crate::frames::{MemoryRun, MemorySize, ZoneClass};
    use core::mem::MaybeUninit;
    use core::ptr::NonNull;
    use loom::cell::UnsafeCell;
    use std::sync::Arc;

    /// Frames, and what is in the two pages of the large one.
    struct World {
        frames: Frames,
        data: DataFrames,
        content: [UnsafeCell<u32>; 2],
        pfn: Pfn,
        _boot: Vec<MaybeUninit<u64>>,
    }

    // SAFETY: an execution of a model runs on one thread of the host.
    unsafe impl Send for World {}
    // SAFETY: as above.
    unsafe impl Sync for World {}

    impl World {
        /// A machine of a few frames, of which a large one of two has `references` to the whole.
        fn new(references: u32) -> Arc<Self> {
            let runs = [MemoryRun { start: Pfn(2), frames: 6, node: NodeId(0), class: ZoneClass::Low }];
            let bytes = Frames::bytes(&MemorySize::of(&runs)) + DataFrames::bytes(1, 1);
            let mut block: Vec<MaybeUninit<u64>> = Vec::with_capacity(bytes / 8 + 1);
            // SAFETY: 1. the block is kept beside the parts made of it.
            let mut boot =
                unsafe { BootMemory::new(NonNull::new(block.as_mut_ptr().cast()).unwrap(), bytes) };
            let machine = MachineId::new();
            // SAFETY: 1. nobody uses the memory. 2. the identity is new.
            let frames = unsafe { Frames::new(&mut boot, machine, &runs) }.unwrap();
            let data = DataFrames::new(&mut boot, &frames, 1).unwrap();
            // SAFETY: 1. and 2. the model is on its only CPU.
            let pin = unsafe { Pinned::assume(machine, CpuId(0), NodeId(0)) };
            let pfn = data.take_large(&frames, &pin, 1, false).unwrap().pfn;
            (1..references).for_each(|_| data.large(&frames, pfn).share());
            let content = [UnsafeCell::new(0), UnsafeCell::new(0)];
            Arc::new(World { frames, data, content, pfn, _boot: block })
        }

        fn use_page(&self, page: usize) {
            // SAFETY: the model checker finds accesses that exclude each other.
            self.content[page].with(|content| unsafe { *content });
        }

        /// The last reference to a page, or to all, has gone: its frame is written by others.
        fn gone(&self, pfn: Pfn, gone: &mut [u32; 2]) {
            let order = self.frames.meta(pfn).order();
            for page in (pfn.0 - self.pfn.0) as usize..(pfn.0 - self.pfn.0) as usize + (1 << order) {
                // SAFETY: as in `use_page`.
                self.content[page].with_mut(|content| unsafe { *content += 1 });
                gone[page] += 1;
            }
        }

        /// A holder of a reference uses the pages and gives them up, one by one if it `splits`.
        fn give_up(&self, splits: bool) -> [u32; 2] {
            let (World { frames, data, pfn, .. }, mut gone) = (self, [0; 2]);
            (0..2).for_each(|page| self.use_page(page));
            if !splits {
                // SAFETY: 1. of one world. 2. the caller's.
                unsafe { data.release_large(frames, *pfn, |pfn| self.gone(pfn, &mut gone)) };
                return gone;
            }
            let wait = |done: &dyn Fn() -> bool| {
                while !done() {
                    loom::thread::yield_now();
                }
            };
            // SAFETY: 1. of one world. 2. the caller's.
            unsafe { data.give_pages_counts(frames, *pfn, wait) };
            for page in data.pages(*pfn, 1) {
                self.use_page((page.0 - pfn.0) as usize);
                if frames.meta(page).drop_reference() {
                    self.gone(page, &mut gone);
                }
            }
            gone
        }
    }

    /// Holders on a thread each, which split or do not: each page goes once, after all have used
    /// it.
    fn each_page_goes_once<const N: usize>(preemptions: usize, splits: [bool; N]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
        builder.max_branches = 50_000;
        builder.check(move || {
            let world = World::new(N as u32);
            let mut others = Vec::new();
            for splits in splits.into_iter().skip(1) {
                let world = world.clone();
                others.push(loom::thread::spawn(move || world.give_up(splits)));
            }
            let mut sum = world.give_up(splits[0]);
            for other in others {
                let gone = other.join().unwrap();
                sum.iter_mut().zip(gone).for_each(|(sum, gone)| *sum += gone);
            }
            assert_eq!(sum, [1, 1]);
        });
    }

    #[test]
    fn models_of_a_large_frame_that_two_spaces_give_up() {
        for splits in [[false, false], [true, false], [true, true]] {
            each_page_goes_once(3, splits);
        }
    }

    #[test]
    fn models_of_a_large_frame_that_three_spaces_give_up() {
        each_page_goes_once(1, [true, true, false]);
    }
}
