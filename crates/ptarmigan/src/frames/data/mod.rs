//! Frames that hold data of address spaces: counted by references, handed out by short per-CPU
//! lists.
//!
//! Behind each CPU's list lie batches of frames that overflowed it: a process that ends gives
//! thousands of frames back which the next one wants, and joining them to blocks and splitting
//! these again would be wasted work, under a lock that all CPUs need. Other CPUs of the node take
//! from them only before they would run short: records of four frames share a cache line, so frames
//! that wander make CPUs wait for each other for as long as the machine runs.
//!
//! A data frame is a page of the machine's spaces: a block of 2^order frames, one frame where pages
//! have 4 KiB. The record of its first frame counts the references.
//!
//! Frames of a list are of unknown content. Beside it each CPU has a short stack of frames that are
//! known to be zero (`data/zero.rs`), within the same bound.
mod frame;
mod large;
mod room;
mod zero;
mod zeros;

pub use frame::{DataError, DataFrame};

use super::{AllocFlags, Dirty, End, Frame, Frames, NoFrame, Request, Taken, Use, ZoneClass};
use crate::addr::Pfn;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{Guard, MachineId, NodeId, PerCpu, Pinned, Refused, WrongMachine};
use crate::sync::SpinLock;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use room::Room;
use zeros::{Shown, Zeros};

/// Data frames that a CPU's list can hold. The model checker's threads have small stacks.
const CAPACITY: usize = if cfg!(loom) { 64 } else { 4096 };
/// Data frames taken from the zones in one go: 2^6, where lists are long enough for that.
const BATCH_ORDER: u8 = 6;
/// Data frames in a batch.
const BATCH: usize = 64;
/// A CPU's list holds at most this part of its share of the machine's memory.
const PART: usize = 64;
/// The batches of a node's CPUs together hold at most this part of its share.
const BATCHES_PART: usize = 32;

/// A ring: the oldest frame at `start`. The numbers of frames here and among the zero frames are in
/// [`Shown`], where other CPUs read them.
struct FrameRing {
    start: usize,
    /// So many at most: the CPU's limit, less its zero frames.
    limit: usize,
    items: Room<CAPACITY>,
    zeros: Zeros,
}

/// The list of the CPU that the caller is on.
type OwnRing<'a> = Guard<'a, FrameRing, Shown>;

impl OwnRing<'_> {
    /// Returns the number of frames in the list, without the zero frames.
    #[inline]
    fn n(&self) -> usize {
        self.shown().n.load(Relaxed)
    }

    #[inline]
    fn set_n(&self, n: usize) {
        self.shown().n.store(n, Relaxed);
    }

    #[inline]
    fn push(&mut self, pfn: Pfn) {
        let (n, start) = (self.n(), self.start);
        self.items.set(start + n, pfn);
        self.set_n(n + 1);
    }

    /// The newest.
    #[inline]
    fn pop(&mut self) -> Option<Pfn> {
        let n = self.n().checked_sub(1)?;
        self.set_n(n);
        Some(self.items.get(self.start + n))
    }

    /// The `n` oldest, which are no longer in it.
    fn oldest(&mut self, n: usize) -> impl Iterator<Item = Pfn> + '_ {
        let first = self.start;
        self.start = (first + n) & (CAPACITY - 1);
        self.set_n(self.n() - n);
        (first..first + n).map(|at| self.items.get(at))
    }
}

/// The batches of a CPU, linked through the records of their first frames; a batch is linked
/// through its frames'.
#[repr(align(128))]
struct Batches {
    stack: SpinLock<FrameStack>,
}

struct FrameStack {
    head: Pfn,
    /// Where the CPU is, and all these frames.
    node: NodeId,
}

impl FrameStack {
    fn pop(&mut self, frames: &Frames) -> Option<Pfn> {
        let head = self.head;
        if head == Pfn::NONE {
            return None;
        }
        self.head = frames.meta(head).next();
        Some(head)
    }
}

impl Batches {
    fn new() -> Self {
        Batches { stack: SpinLock::new(FrameStack { head: Pfn::NONE, node: NodeId(0) }) }
    }

    /// Puts the chain of frames of `node` at `head` on the stack.
    fn push(&self, frames: &Frames, head: Pfn, node: NodeId) {
        let mut stack = self.stack.lock();
        frames.meta(head).set_next(stack.head);
        stack.head = head;
        stack.node = node;
    }

    /// The chain that was put there last, if it is of `node`.
    fn pop(&self, frames: &Frames, node: NodeId) -> Option<Pfn> {
        let mut stack = self.stack.lock();
        if stack.node == node { stack.pop(frames) } else { None }
    }
}

/// Batches of the CPUs of a node, in all.
#[repr(align(128))]
struct NodeBatches(AtomicUsize);

impl NodeBatches {
    /// One more, unless there are `limit`.
    fn add(&self, limit: usize) -> bool {
        if self.0.load(Relaxed) >= limit {
            return false;
        }
        if self.0.fetch_add(1, Relaxed) < limit {
            return true;
        }
        self.0.fetch_sub(1, Relaxed);
        false
    }
}

/// The frames of the chain at `head`. Each is looked at before it is handed out.
fn chain(frames: &Frames, head: Pfn) -> impl Iterator<Item = Pfn> + '_ {
    let mut at = head;
    core::iter::from_fn(move || {
        let pfn = at;
        if pfn == Pfn::NONE {
            return None;
        }
        at = frames.meta(pfn).link();
        Some(pfn)
    })
}

/// A data frame with one reference, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a dropped frame is lost: give it back"]
pub struct TakenData {
    /// Its number.
    pub pfn: Pfn,
    /// Whether it is known to be zero. If not, its content is anything.
    pub is_zero: bool,
}

/// The per-CPU lists and batches of data frames, all of one size. In a CPU's list at most 4096 of
/// them rest, and no more than 1/64 of its share of memory; in the batches of a node's CPUs at most
/// 1/32 of the node's, whichever of them needs it. All are of the CPU's own node.
pub struct DataFrames {
    lists: PerCpu<FrameRing, Shown>,
    /// By CPU. Locked, as others may take from them.
    batches: BootSlice<Batches>,
    /// By node.
    kept: BootSlice<NodeBatches>,
    /// Frames of a list at most, those that are zero included.
    high: usize,
    /// Batches of a node at most.
    most: usize,
    /// Binary logarithm of the data frames in the blocks that lists are filled up with.
    batch: u8,
    /// Order of a data frame.
    order: u8,
    /// Large pages that were split.
    splits: AtomicUsize,
}

impl DataFrames {
    /// Makes the lists of the `cpus` CPUs of the machine whose memory `frames` is, for pages of one
    /// frame.
    ///
    /// # Errors
    ///
    /// [`BootMemoryShort`] if they do not fit.
    pub fn new(boot: &mut BootMemory, frames: &Frames, cpus: usize) -> Result<Self, BootMemoryShort> {
        Self::of_order(boot, frames, cpus, 0)
    }

    /// As [`new`](Self::new), for pages of 2^`order` frames. There are no frames to take if no
    /// blocks of that order exist.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn of_order(
        boot: &mut BootMemory,
        frames: &Frames,
        cpus: usize,
        order: u8,
    ) -> Result<Self, BootMemoryShort> {
        // None of that order can be taken.
        let order = order.min(super::ORDERS as u8);
        let total = frames.counts().total as usize >> order;
        let nodes = usize::from(frames.nodes());
        let high = total.div_ceil(cpus.max(1) * PART).clamp(2, CAPACITY);
        // The largest blocks are few: one less, so that a refill finds one mostly.
        let largest = (super::ORDERS as u8).saturating_sub(2 + order);
        let batch = BATCH_ORDER.min((high / 2).ilog2() as u8).min(largest);
        let most = total.div_ceil(nodes.max(1) * BATCHES_PART * BATCH);
        let lists = PerCpu::new_with(boot, frames.machine(), cpus, |boot, _| {
            Ok(FrameRing {
                start: 0,
                limit: high,
                items: Room::new(boot)?,
                zeros: Zeros::new(boot, high, order)?,
            })
        })?;
        let batches = boot.take(cpus, |_| Batches::new())?;
        let kept = boot.take(nodes, |_| NodeBatches(AtomicUsize::new(0)))?;
        let splits = AtomicUsize::new(0);
        Ok(DataFrames { lists, batches, kept, high, most, batch, order, splits })
    }

    /// Returns the order of a data frame: the binary logarithm of its frames.
    #[inline]
    pub fn order(&self) -> u8 {
        self.order
    }

    /// Returns the bytes of boot memory that `cpus` CPUs on `nodes` nodes take.
    pub const fn bytes(cpus: usize, nodes: usize) -> usize {
        PerCpu::<FrameRing, Shown>::bytes(cpus)
            + cpus * (Room::<CAPACITY>::bytes() + Zeros::bytes())
            + BootMemory::bytes::<Batches>(cpus)
            + BootMemory::bytes::<NodeBatches>(nodes)
    }

    /// Returns the machine whose frames these are.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.lists.machine()
    }

    fn check(&self, frames: &Frames, pin: &Pinned<'_>) -> Result<(), WrongMachine> {
        self.machine().accept(frames.machine())?;
        pin.check(self.machine())?;
        // Lists made for fewer CPUs than the machine has.
        let has = usize::from(pin.cpu().0) < self.lists.cpus();
        if has { Ok(()) } else { Err(WrongMachine { called: self.machine(), given: pin.machine() }) }
    }

    /// Takes a data frame, content unknown.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the lists are unchanged then.
    pub fn take(&self, frames: &Frames, pin: &Pinned<'_>, flags: AllocFlags) -> Result<DataFrame, DataError> {
        self.check(frames, pin)?;
        // SAFETY: 1. just checked.
        let pfn = unsafe { self.take_raw(frames, pin, flags)? };
        // SAFETY: 1. the reference has just been made.
        Ok(unsafe { DataFrame::from_raw(self.machine(), pfn) })
    }

    /// Takes a block of 2^`order` frames, content unknown; the references count for the block.
    /// Blocks of the [order](Self::order) of data frames come from the lists.
    ///
    /// # Errors
    ///
    /// [`DataError`]; the lists are unchanged then.
    pub fn take_block(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        order: u8,
        flags: AllocFlags,
    ) -> Result<DataFrame, DataError> {
        if order == self.order {
            return self.take(frames, pin, flags);
        }
        self.check(frames, pin)?;
        if usize::from(order) >= super::ORDERS {
            return Err(NoFrame::new(order, pin.node(), frames.node_free(pin.node())).into());
        }
        let pfn = frames.take(Self::request(pin, order, false, flags))?.dirty().into_raw();
        Self::begin(frames, pfn, order);
        // SAFETY: 1. the reference has just been made.
        Ok(unsafe { DataFrame::from_raw(self.machine(), pfn) })
    }

    /// Makes one more reference to a frame.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if it is not of `frames`.
    pub fn share(frames: &Frames, frame: &DataFrame) -> Result<DataFrame, WrongMachine> {
        Self::check_frame(frames, frame)?;
        // SAFETY: 1. the frame is of `frames`, and a reference is borrowed.
        unsafe { Self::share_raw(frames, frame.pfn()) };
        // SAFETY: 1. the reference has just been made.
        Ok(unsafe { DataFrame::from_raw(frame.machine(), frame.pfn()) })
    }

    /// Returns whether this is the only reference to the frame.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if it is not of `frames`.
    pub fn is_sole(frames: &Frames, frame: &DataFrame) -> Result<bool, WrongMachine> {
        Self::check_frame(frames, frame)?;
        // SAFETY: 1. the frame is of `frames`, and a reference is borrowed.
        Ok(unsafe { Self::is_sole_raw(frames, frame.pfn()) })
    }

    /// Returns the binary logarithm of the number of frames.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if they are not of `frames`.
    pub fn order_of(frames: &Frames, frame: &DataFrame) -> Result<u8, WrongMachine> {
        Self::check_frame(frames, frame)?;
        Ok(frames.meta(frame.pfn()).order())
    }

    /// Takes a reference back; the frame goes with the last one. True if this was the last.
    ///
    /// The caller has seen to it that no TLB reaches the frame through a mapping that this
    /// reference stood for.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the reference, if it, the frames or the pin are of another machine.
    pub fn release(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        frame: DataFrame,
    ) -> Result<bool, Refused<DataFrame>> {
        let checked = self.check(frames, pin).and_then(|()| self.machine().accept(frame.machine()));
        if let Err(error) = checked {
            return Err(Refused { value: frame, error });
        }
        let pfn = frame.into_raw();
        // SAFETY: 1. just checked. 2. the reference was the caller's, and is consumed.
        let last = unsafe { Self::release_raw(frames, pfn) };
        if last {
            // SAFETY: 1. just checked. 2. that was its last reference.
            unsafe { self.give_raw(frames, pin, pfn) };
        }
        Ok(last)
    }

    fn check_frame(frames: &Frames, frame: &DataFrame) -> Result<(), WrongMachine> {
        frames.machine().accept(frame.machine())
    }

    /// A block becomes data, with one reference. Its order is in its record: the zones and
    /// [`take_in_block`](Self::take_in_block) have put it there, and it stays while the block is
    /// data or rests. No gather has claimed it: each gives its claim up before its last reference.
    #[inline]
    fn begin(frames: &Frames, pfn: Pfn, order: u8) {
        let record = frames.meta(pfn);
        debug_assert!(record.order() == order && !record.is_locked(), "{pfn} is no block of order {order}");
        record.set_usage(Use::Data);
        record.set_count(1);
    }

    fn request(pin: &Pinned<'_>, order: u8, zero: bool, flags: AllocFlags) -> Request {
        Request { node: pin.node(), order, zero, class: ZoneClass::High, end: End::High, flags }
    }

    /// Takes a data frame with one reference as a number, content unknown.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    ///
    /// # Safety
    ///
    /// 1. `frames` and `pin` are of the machine that this was made for.
    #[inline]
    pub unsafe fn take_raw(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        flags: AllocFlags,
    ) -> Result<Pfn, NoFrame> {
        // SAFETY: 1. passed on.
        let pfn = match unsafe { self.lists.enter_unchecked(pin) }.and_then(|mut list| list.pop()) {
            Some(pfn) => pfn,
            None => self.refill(frames, pin, flags, false)?.pfn,
        };
        Self::begin(frames, pfn, self.order);
        Ok(pfn)
    }

    /// A frame from behind the list, which is filled up on the way; `want_zero` says that a zero
    /// one is better.
    #[cold]
    fn refill(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        flags: AllocFlags,
        want_zero: bool,
    ) -> Result<TakenData, NoFrame> {
        let request = |batch| Self::request(pin, self.order.saturating_add(batch), want_zero, flags);
        let node = pin.node();
        let take_in = |head: Option<Pfn>| {
            let head = head?;
            let Some(mut list) = self.lists.enter(pin).filter(|list| list.n() == 0) else {
                // An interrupt found the list in use, or filled it.
                frames.give_all(self.order, chain(frames, head));
                return None;
            };
            for pfn in chain(frames, head) {
                list.push(pfn);
            }
            list.pop()
        };
        let own = self.own(pin).and_then(|batches| self.take_batch(frames, batches, node));
        let ready = own.or_else(|| if frames.pressed(node) { self.steal(frames, node) } else { None });
        if let Some(pfn) = take_in(ready) {
            return Ok(TakenData { pfn, is_zero: false });
        }
        // A whole block where there is one on this node; near the end of memory the CPU's zero
        // frames, other CPUs' batches and single frames still are.
        let batch = if want_zero { self.batch.min(Zeros::batch(self.high, self.order)) } else { self.batch };
        if let Ok(block) = frames.take(request(batch))
            && let Some(taken) = self.take_in_block(frames, pin, block, want_zero)
        {
            return Ok(taken);
        }
        if let Some(pfn) = self.last_resort(pin, want_zero) {
            return Ok(TakenData { pfn, is_zero: true });
        }
        if let Some(pfn) = take_in(self.steal(frames, node)) {
            return Ok(TakenData { pfn, is_zero: false });
        }
        frames.take(request(0)).map(|taken| {
            let is_zero = matches!(taken, Taken::Zero(_));
            TakenData { pfn: taken.dirty().into_raw(), is_zero }
        })
    }

    /// Fills the list up with all frames of a block but the first, or the zero frames if it is zero
    /// and that is wanted; `None` if it went back, because it is another node's, or an interrupt
    /// found the list in use or filled it.
    fn take_in_block(
        &self,
        frames: &Frames,
        pin: &Pinned<'_>,
        block: Taken,
        want_zero: bool,
    ) -> Option<TakenData> {
        let is_zero = matches!(block, Taken::Zero(_));
        let first = block.pfn().0;
        let list = self.lists.enter(pin).filter(|_| frames.node_of(Pfn(first)) == pin.node());
        let Some(mut list) = list.filter(|list| list.n() == 0) else {
            match block {
                Taken::Zero(block) => frames.give(block),
                Taken::Dirty(block) => frames.give(block),
            }
            return None;
        };
        let block = block.dirty();
        let n = 1u32 << block.order();
        for pfn in (first..first + n).step_by(1 << self.order).rev() {
            let record = frames.meta(Pfn(pfn));
            record.set_usage(Use::Taken);
            record.set_order(self.order);
            // Frames without room among the zero frames will be cleared once more.
            if pfn != first && !(is_zero && want_zero && list.push_zero(Pfn(pfn))) {
                list.push(Pfn(pfn));
            }
        }
        Some(TakenData { pfn: block.into_raw(), is_zero })
    }

    fn own(&self, pin: &Pinned<'_>) -> Option<&Batches> {
        self.batches.get(pin.cpu().0 as usize)
    }

    /// A batch from `batches`, if it is of `node`.
    fn take_batch(&self, frames: &Frames, batches: &Batches, node: NodeId) -> Option<Pfn> {
        let head = batches.pop(frames, node)?;
        if let Some(kept) = self.kept.get(node.0 as usize) {
            kept.0.fetch_sub(1, Relaxed);
        }
        Some(head)
    }

    /// A batch of any CPU of `node`.
    fn steal(&self, frames: &Frames, node: NodeId) -> Option<Pfn> {
        let kept = self.kept.get(node.0 as usize)?;
        if kept.0.load(Relaxed) == 0 {
            return None;
        }
        self.batches.iter().find_map(|batches| self.take_batch(frames, batches, node))
    }

    /// Makes one more reference to a data frame.
    ///
    /// # Safety
    ///
    /// 1. `pfn` is a data frame of `frames`, and a reference to it stays as long as the call lasts.
    #[inline]
    pub unsafe fn share_raw(frames: &Frames, pfn: Pfn) {
        let record = frames.meta(pfn);
        debug_assert_eq!(record.usage(), Use::Data);
        record.add_reference();
    }

    /// Returns whether exactly one reference is left.
    ///
    /// # Safety
    ///
    /// 1. `pfn` is a data frame of `frames`. The answer counts only if the caller owns a reference
    ///    to it.
    #[inline]
    pub unsafe fn is_sole_raw(frames: &Frames, pfn: Pfn) -> bool {
        frames.meta(pfn).is_sole_reference()
    }

    /// Takes a reference away; true if it was the last, and the frame is now the caller's to
    /// [`give`](Self::give_raw) back once no TLB can reach it any more.
    ///
    /// # Safety
    ///
    /// 1. `pfn` is a data frame of `frames`.
    /// 2. The caller owns a reference to it, and gives it away.
    #[inline]
    pub unsafe fn release_raw(frames: &Frames, pfn: Pfn) -> bool {
        let record = frames.meta(pfn);
        debug_assert_eq!(record.usage(), Use::Data);
        record.drop_reference()
    }

    /// Takes a frame back that has no references any more.
    ///
    /// # Safety
    ///
    /// 1. `frames` and `pin` are of the machine that this was made for.
    /// 2. `pfn` is a data frame of it whose last reference is gone; the caller alone knows of it,
    ///    and no TLB reaches it.
    #[inline]
    pub unsafe fn give_raw(&self, frames: &Frames, pin: &Pinned<'_>, pfn: Pfn) {
        let record = frames.meta(pfn);
        debug_assert_eq!(record.usage(), Use::Data);
        record.set_usage(Use::Taken);
        if record.order() != self.order {
            // SAFETY: 1. a block of that order was taken, and its last reference is gone (2.).
            // 2. `Dirty` makes no promise.
            frames.give(unsafe { Frame::<Dirty>::from_raw(frames.machine(), pfn, record.order()) });
            return;
        }
        if frames.nodes() > 1 && frames.node_of(pfn) != pin.node() {
            frames.give_all(self.order, [pfn].into_iter());
            return;
        }
        // SAFETY: 1. passed on.
        if let Some(mut list) = unsafe { self.lists.enter_unchecked(pin) } {
            if list.n() >= list.limit {
                self.overflow(frames, pin, &mut list);
            }
            list.push(pfn);
            return;
        }
        frames.give_all(self.order, [pfn].into_iter());
    }

    /// Makes room in a full list. The oldest go, the others stay, as their lines are warm.
    #[cold]
    fn overflow(&self, frames: &Frames, pin: &Pinned<'_>, list: &mut OwnRing<'_>) {
        let old = BATCH.min(list.n() / 2);
        let node = pin.node();
        let keep = || self.kept.get(node.0 as usize).is_some_and(|kept| kept.add(self.most));
        // While memory is short, others need it more.
        if old == BATCH
            && !frames.pressed(node)
            && let Some(batches) = self.own(pin)
            && keep()
        {
            let mut head = Pfn::NONE;
            for pfn in list.oldest(old) {
                frames.meta(pfn).set_link(head);
                head = pfn;
            }
            batches.push(frames, head, node);
            return;
        }
        frames.give_all(self.order, list.oldest(old));
        if frames.pressed(node)
            && let Some(head) = self.steal(frames, node)
        {
            frames.give_all(self.order, chain(frames, head));
        }
    }

    /// Returns the number of frames of 4 KiB that rest: in the lists of all CPUs, the zero frames
    /// among them, and in the batches. Exact while no operation is in progress.
    pub fn resting(&self) -> usize {
        let lists = self.lists.shown().map(|cpu| cpu.n.load(Relaxed) + cpu.zero.load(Relaxed));
        let batches = self.kept.iter().map(|kept| kept.0.load(Relaxed) * BATCH);
        lists.chain(batches).sum::<usize>() << self.order
    }

    /// Gives all frames of the calling CPU's list, and all batches of all CPUs, back to the zones;
    /// returns how many frames of 4 KiB. Frames or a pin of another machine have no effect.
    pub fn drain(&self, frames: &Frames, pin: &Pinned<'_>) -> usize {
        if self.check(frames, pin).is_err() {
            return 0;
        }
        let mut drained = 0;
        let mut count = |pfn: Pfn| {
            drained += 1 << self.order;
            pfn
        };
        if let Some(mut list) = self.lists.enter(pin) {
            let n = list.n();
            frames.give_all(self.order, list.oldest(n).map(&mut count));
        }
        self.drain_zeros(frames, pin, &mut count);
        for node in 0..frames.nodes() {
            while let Some(head) = self.steal(frames, NodeId(node)) {
                frames.give_all(self.order, chain(frames, head).map(&mut count));
            }
        }
        drained
    }
}
