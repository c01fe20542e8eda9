//! Frames that hold data of address spaces: counted by references, handed out by short per-CPU lists.
use super::{Ask, Frames, NoFrame, Place, Request, Use, ZoneClass};
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{PerCpu, Pinned};

/// Frames that a CPU's list can hold.
const CAPACITY: usize = 4096;
/// Frames taken from the zones in one go: 2^6, where lists are long enough for that.
const BATCH_ORDER: u8 = 6;
/// Frames given back in one go from a list that is full, or 1/16 of it if that is more.
const GIVEN_BACK: usize = 64;
/// A CPU's list holds at most this part of its share of the machine's memory.
const PART: usize = 64;

struct List {
    n: usize,
    items: [Pfn; CAPACITY],
}

/// The per-CPU lists. On each CPU at most 4096 frames rest, and no more than 1/64 of its share of memory; they are
/// all of the CPU's own node.
pub struct DataFrames {
    lists: PerCpu<List>,
    /// Frames at most.
    high: usize,
    /// Order of the blocks that lists are filled up with.
    order: u8,
}

impl DataFrames {
    /// Lists for `cpus` CPUs of a machine with `total` frames.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    pub fn new(boot: &mut BootMemory, cpus: usize, total: usize) -> Result<Self, BootMemoryShort> {
        let high = (total / cpus.max(1) / PART).clamp(2, CAPACITY);
        let order = BATCH_ORDER.min((high / 2).ilog2() as u8);
        let lists = PerCpu::new(boot, cpus, |_| List { n: 0, items: [Pfn::NONE; CAPACITY] })?;
        Ok(DataFrames { lists, high, order })
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
            return Ok(list.items[n & (CAPACITY - 1)]);
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
        if let Ok(taken) = frames.take(request(self.order)) {
            let block = taken.dirty();
            if frames.node_of(block.pfn()) != pin.node() {
                frames.give(block);
            } else if let Some(mut list) = self.lists.enter(pin)
                && list.n == 0
            {
                let (first, n) = (block.into_raw().0, 1 << self.order);
                for (item, pfn) in list.items.iter_mut().zip((first..first + n).rev()) {
                    frames.meta(Pfn(pfn)).set_usage(Use::Taken);
                    *item = Pfn(pfn);
                }
                list.n = n as usize - 1;
                return Ok(Pfn(first));
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
            if n < self.high {
                list.items[n & (CAPACITY - 1)] = pfn;
                list.n = n + 1;
                return;
            }
            // Full: the oldest go back, the others stay, as their lines are warm. Not many at once: joining them to
            // blocks takes time under the zone's lock, and other CPUs fill their lists up under it.
            let old = (n / 16).max(GIVEN_BACK.min(n / 2));
            frames.give_all(list.items[..old].iter().copied());
            list.items.copy_within(old..n, 0);
            list.items[n - old] = pfn;
            list.n = n - old + 1;
            return;
        }
        frames.give_all([pfn].into_iter());
    }

    /// Gives all frames of the calling CPU's list back to the zones; how many.
    pub fn drain(&self, frames: &Frames, pin: &Pinned<'_>) -> usize {
        let Some(mut list) = self.lists.enter(pin) else { return 0 };
        let n = list.n;
        frames.give_all(list.items[..n].iter().copied());
        list.n = 0;
        n
    }
}
