//! Frames that hold data of address spaces: counted by references, handed out by short per-CPU lists.
use super::{Ask, Dirty, Frame, Frames, NoFrame, Place, Request, Taken, Use, ZoneClass};
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{PerCpu, Pinned};

const BATCH_ORDER: u8 = 6;
/// Frames moved between a CPU's list and the zones in one go.
const BATCH: usize = 1 << BATCH_ORDER;

struct List {
    n: usize,
    items: [Pfn; 2 * BATCH],
}

/// The per-CPU lists. At most 128 frames rest on a CPU; they are all of the CPU's own node.
pub struct DataFrames {
    lists: PerCpu<List>,
}

impl DataFrames {
    /// Lists for `cpus` CPUs.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    pub fn new(boot: &mut BootMemory, cpus: usize) -> Result<Self, BootMemoryShort> {
        Ok(DataFrames {
            lists: PerCpu::new(boot, cpus, |_| List { n: 0, items: [Pfn::NONE; 2 * BATCH] })?,
        })
    }

    /// Boot memory for `cpus` CPUs.
    pub const fn bytes(cpus: usize) -> usize {
        PerCpu::<List>::bytes(cpus)
    }

    /// A frame with one reference, content unknown.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; nothing has changed then.
    #[inline]
    pub fn take(&self, frames: &Frames, pin: &Pinned<'_>, ask: Ask) -> Result<Pfn, NoFrame> {
        let pfn = self.pop(frames, pin, ask)?;
        let meta = frames.meta(pfn);
        meta.set_usage(Use::Data);
        meta.set_count(1);
        Ok(pfn)
    }

    #[inline]
    fn pop(&self, frames: &Frames, pin: &Pinned<'_>, ask: Ask) -> Result<Pfn, NoFrame> {
        if let Some(mut list) = self.lists.enter(pin)
            && list.n > 0
        {
            list.n -= 1;
            let n = list.n;
            return Ok(list.items[n & (2 * BATCH - 1)]);
        }
        self.refill(frames, pin, ask)
    }

    #[cold]
    fn refill(&self, frames: &Frames, pin: &Pinned<'_>, ask: Ask) -> Result<Pfn, NoFrame> {
        let request = |order| Request {
            node: pin.node(),
            order,
            zero: false,
            class: ZoneClass::High,
            place: Place::Top,
            ask,
        };
        // A whole block where there is one on this node; near the end of memory single frames still are.
        if let Ok(taken) = frames.take(request(BATCH_ORDER)) {
            let block = taken.dirty();
            if frames.node_of(block.pfn()) != pin.node() {
                frames.give(block);
            } else if let Some(mut list) = self.lists.enter(pin)
                && list.n <= BATCH
            {
                let (first, n) = (block.into_raw(), list.n);
                for i in 0..BATCH {
                    let pfn = Pfn(first.0 + (BATCH - 1 - i) as u32);
                    frames.meta(pfn).set_usage(Use::Taken);
                    list.items[n + i] = pfn;
                }
                list.n = n + BATCH - 1;
                return Ok(list.items[n + BATCH - 1]);
            } else {
                frames.give(block);
            }
        }
        frames.take(request(0)).map(|t| t.dirty().into_raw())
    }

    /// One more reference to a data frame.
    #[inline(always)]
    pub fn share(frames: &Frames, pfn: Pfn) {
        let meta = frames.meta(pfn);
        debug_assert_eq!(meta.usage(), Use::Data);
        meta.add_reference();
    }

    /// Whether exactly one reference is left.
    #[inline(always)]
    pub fn is_sole(frames: &Frames, pfn: Pfn) -> bool {
        frames.meta(pfn).is_sole_reference()
    }

    /// Takes a reference away; true if it was the last, and the frame is now the caller's to [`give`](Self::give)
    /// back once no TLB can reach it any more.
    #[inline(always)]
    pub fn release(frames: &Frames, pfn: Pfn) -> bool {
        let meta = frames.meta(pfn);
        debug_assert_eq!(meta.usage(), Use::Data);
        meta.drop_reference()
    }

    /// Takes a frame back that nobody refers to any more.
    #[inline]
    pub fn give(&self, frames: &Frames, pin: &Pinned<'_>, pfn: Pfn) {
        debug_assert_eq!(frames.meta(pfn).usage(), Use::Data);
        frames.meta(pfn).set_usage(Use::Taken);
        if frames.nodes() > 1 && frames.node_of(pfn) != pin.node() {
            frames.give_all([pfn].into_iter());
            return;
        }
        if let Some(mut list) = self.lists.enter(pin) {
            let n = list.n;
            if n < 2 * BATCH {
                list.items[n] = pfn;
                list.n = n + 1;
                return;
            }
            // Full: the older half goes back, the newer half stays, as its lines are warm.
            let mut old = [Pfn::NONE; BATCH];
            old.copy_from_slice(&list.items[..BATCH]);
            list.items.copy_within(BATCH.., 0);
            list.items[BATCH] = pfn;
            list.n = BATCH + 1;
            drop(list);
            frames.give_all(old.into_iter());
            return;
        }
        frames.give_all([pfn].into_iter());
    }

    /// Gives all frames of the calling CPU's list back to the zones; how many.
    pub fn drain(&self, frames: &Frames, pin: &Pinned<'_>) -> usize {
        let Some(mut list) = self.lists.enter(pin) else { return 0 };
        let n = list.n;
        let items = list.items;
        list.n = 0;
        drop(list);
        frames.give_all(items[..n].iter().copied());
        n
    }
}

impl Taken {
    /// Whatever it was, its content does not matter to the caller.
    pub fn dirty(self) -> Frame<Dirty> {
        match self {
            Taken::Zero(f) => f.dirty(),
            Taken::Dirty(f) => f,
        }
    }

    /// The frame, cleared if it has to be.
    pub fn zeroed<W: crate::window::Window>(self, window: &W) -> Frame<super::Zero> {
        match self {
            Taken::Zero(f) => f,
            Taken::Dirty(f) => f.clear(window),
        }
    }

    /// The home node of a single request is not promised; see [`Frames::node_of`].
    pub fn pfn(&self) -> Pfn {
        match self {
            Taken::Zero(f) => f.pfn(),
            Taken::Dirty(f) => f.pfn(),
        }
    }
}

