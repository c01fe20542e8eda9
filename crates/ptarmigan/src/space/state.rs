//! A space, and the calls that change its structure.
use super::SpaceMachine;
use super::area::{Area, LargePages};
use super::areas::{AreaError, Areas, AreasRef};
use super::empty::EmptyTables;
use super::unmapping::{Left, Unmapping};
use crate::addr::{Pfn, VirtAddr, VirtRange};
use crate::cpu::WrongMachine;
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, NoFrame};
use crate::gather::Gather;
use crate::machine::{Machine, On, Refused};
use crate::page::Level;
use crate::sync::atomic::AtomicU32;
use crate::table::{Free, Tables, TreeRef};
use crate::tlb::{SpaceTlb, TlbRefusal};
use core::fmt;
use core::mem::ManuallyDrop;

/// Holds the parts of a space, but for its TLB state: CPUs switch to a shared space and away from
/// it at any time, also while a caller changes its structure and holds it exclusively, so the state
/// they write to stands beside this.
pub(super) struct State<F: Format> {
    pub tables: Tables<F>,
    pub areas: Areas,
    /// Where the areas of recent faults are, by address. Written by shared faults too.
    pub recent: [AtomicU32; RECENT],
    /// First page of the heap and its end; equal without a heap.
    pub heap: VirtRange,
    /// Stacks grow no larger than this, in pages.
    pub stack_limit: u32,
    /// The tag of areas that are mapped without one.
    pub tag: u16,
    /// How it uses large pages.
    pub large: LargePages,
    /// Which empty tables it gives back.
    pub empty_tables: EmptyTables,
    /// When others forget pages that it unmaps.
    pub unmapping: Unmapping,
    /// Addresses that they have not forgotten yet.
    pub left: Left,
}

/// Areas that a space remembers from recent faults.
pub(super) const RECENT: usize = 8;
/// Linux's default `RLIMIT_STACK`, in bytes.
const STACK_LIMIT: u32 = 8 << 20;

impl<F: Format> State<F> {
    fn new<M: Machine>(on: On<'_, M>) -> Result<Self, NoFrame> {
        let mut tables = Tables::new(on, AllocFlags::NORMAL)?;
        tables.count_large();
        Ok(State {
            tables,
            areas: Areas::new(),
            recent: Default::default(),
            heap: VirtRange::fixed::<0, 0>(),
            stack_limit: STACK_LIMIT >> F::PAGE_SHIFT,
            tag: 0,
            large: LargePages::default(),
            empty_tables: EmptyTables::default(),
            unmapping: Unmapping::default(),
            left: Left::none(),
        })
    }

    /// `range`, if it is made of whole pages of user addresses.
    #[inline]
    pub fn pages(range: VirtRange) -> Result<VirtRange, AreaError> {
        let mask = (1u64 << F::PAGE_SHIFT) - 1;
        if range.is_empty() || range.start & mask != 0 || range.end & mask != 0 || range.end > F::USER_END {
            return Err(AreaError::BadRange(range));
        }
        Ok(range)
    }

    /// Has all CPUs forget pages that were in `range`, before an area is made there: pages whose
    /// flush was left to them, and pages of a flush that has unwound.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of a switch or a flush of this CPU.
    #[inline]
    pub fn settle<M: Machine>(
        &mut self,
        on: On<'_, M>,
        tlb: &SpaceTlb,
        range: VirtRange,
    ) -> Result<(), TlbRefusal> {
        if tlb.owes_flush() {
            self.make_up(on, tlb)?;
        }
        self.left.settle(on, range)
    }

    /// Flushes everything, for a flush that has unwound.
    #[cold]
    #[inline(never)]
    fn make_up<M: Machine>(&self, on: On<'_, M>, tlb: &SpaceTlb) -> Result<(), TlbRefusal> {
        on.tlb().may_flush(on.pin())?;
        self.tables.gather(on, tlb, true).finish();
        Ok(())
    }

    /// Returns the tables that go with `gone`, whose areas are gone.
    #[inline]
    pub(super) fn beside_areas<M: SpaceMachine>(&self, on: On<'_, M>, gone: VirtRange) -> Free {
        if self.empty_tables == EmptyTables::Freed {
            return Free::Empty;
        }
        Free::Span {
            floor: self.areas.last_before(on, gone.start).map_or(0, |a| a.end),
            ceiling: self.areas.at_or_after(on, gone.end).map_or(F::USER_END, |a| a.start),
        }
    }
}

/// One address space. It must be taken down with [`Space::end`]: dropping it loses its frames.
///
/// ```
/// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// # use ptarmigan::{format::X86_64, machine::Machine};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// # let cpus = host.slots();
/// # let pin = cpus[0].pin();
/// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// # let on = machine.on(&pin)?;
/// use ptarmigan::addr::{VirtAddr, VirtRange};
/// use ptarmigan::space::{Access, AreaFlags, Space};
///
/// let mut space = Space::<X86_64>::new(on)?;
/// let heap = VirtRange::fixed::<0x40_0000, 0x50_0000>();
/// space.edit(on)?.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
/// space.fault(on, VirtAddr(0x40_0123), Access::Write)?;
/// assert!(space.tree().query(on, VirtAddr(0x40_0000)).is_some());
///
/// let child = space.edit(on)?.fork()?; // both share the page until one of them writes
/// child.end(on)?;
/// space.end(on)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a dropped space loses its frames: end it"]
pub struct Space<F: Format> {
    pub(super) state: State<F>,
    pub(super) tlb: SpaceTlb,
}

impl<F: Format> fmt::Debug for Space<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space")
            .field("id", &self.tlb.id())
            .field("root", &self.state.tables.root())
            .finish_non_exhaustive()
    }
}

impl<F: Format> Space<F> {
    /// An empty space.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    ///
    /// # Panics
    ///
    /// While compiling, if pages of the format and of the machine differ.
    pub fn new<M: SpaceMachine>(on: On<'_, M>) -> Result<Self, NoFrame> {
        const { assert!(F::PAGE_SHIFT == M::PAGE_SHIFT, "pages of the format are not those of the machine") };
        Ok(Space { state: State::new(on)?, tlb: on.tlb().new_space() })
    }

    /// Returns the space's tables.
    pub fn tree(&self) -> TreeRef<'_, F> {
        TreeRef::new(&self.state.tables, &self.tlb)
    }

    /// Returns the space's areas.
    pub fn areas(&self) -> AreasRef<'_> {
        AreasRef::new(&self.state.areas, self.tlb.machine())
    }

    /// Returns the space's TLB state.
    pub fn tlb(&self) -> &SpaceTlb {
        &self.tlb
    }

    /// Begins to run in the space on this CPU.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine, or in the middle of another switch of
    /// this CPU.
    pub fn activate<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.activate(&self.tlb, self.state.tables.root())
    }

    /// Stops running the space on this CPU for now, but keeps its root loaded.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine, or in the middle of another switch of
    /// this CPU.
    pub fn rest<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.rest(&self.tlb)
    }

    /// Leaves the space on this CPU.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the space is of another machine, or in the middle of another switch of
    /// this CPU.
    pub fn deactivate<M: SpaceMachine>(&self, on: On<'_, M>) -> Result<(), TlbRefusal> {
        on.deactivate(&self.tlb)
    }

    /// Leads to the calls that change the space.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the space is of another machine.
    #[inline]
    pub fn edit<'a, M: SpaceMachine>(
        &'a mut self,
        on: On<'a, M>,
    ) -> Result<SpaceMut<'a, F, M>, WrongMachine> {
        on.check(self.tlb.machine())?;
        Ok(SpaceMut { on, state: &mut self.state, tlb: &self.tlb })
    }

    /// Takes the space down: CPUs that still have it loaded are moved to another root, every page
    /// is unmapped, every table and frame given back.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the space, if it is of another machine, or in the middle of a switch or a
    /// flush of this CPU, where no other flush can be. The space is unchanged then.
    #[expect(clippy::result_large_err, reason = "what is refused comes back by value: there is no heap")]
    pub fn end<M: SpaceMachine>(self, on: On<'_, M>) -> Result<(), Refused<Self, TlbRefusal>> {
        let machine = on.check(self.tlb.machine()).map_err(TlbRefusal::from);
        if let Err(error) = machine.and_then(|()| on.tlb().may_flush(on.pin())) {
            return Err(Refused { value: self, error });
        }
        self.end_checked(on);
        Ok(())
    }

    /// As [`end`](Self::end), for a space of this machine on a CPU that may flush.
    pub(super) fn end_checked<M: SpaceMachine>(self, on: On<'_, M>) {
        let Space { state: State { mut tables, areas, .. }, tlb } = self;
        let _areas = LooseAreas { on, areas };
        let mut ticket = None;
        let mut gather = Gather::open(on, &tlb, F::PAGE_SHIFT, true);
        tables.end_space(&mut gather, &mut ticket);
        let release = |gather: &mut _, level, _, raw| release::<F, M>(gather, level, raw);
        tables.end::<M, true>(&mut gather, release, release);
    }
}

/// Areas that no space has, before it begins or after its end. Given back when dropped.
pub(super) struct LooseAreas<'a, M: Machine> {
    pub on: On<'a, M>,
    pub areas: Areas,
}

impl<M: Machine> LooseAreas<'_, M> {
    /// Returns the areas, which a space has from now on.
    #[inline]
    pub fn keep(self) -> Areas {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is used no more, and is not dropped.
        unsafe { core::ptr::read(&this.areas) }
    }
}

impl<M: Machine> Drop for LooseAreas<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.areas.clear(self.on);
    }
}

/// A space that is being made, on a CPU that may flush. Dropping it ends it: if there is no memory
/// for the rest of it, or something unwinds.
pub(super) struct Unfinished<'a, F: Format, M: SpaceMachine> {
    on: On<'a, M>,
    space: ManuallyDrop<Space<F>>,
}

impl<'a, F: Format, M: SpaceMachine> Unfinished<'a, F, M> {
    pub fn new(on: On<'a, M>, space: Space<F>) -> Self {
        Unfinished { on, space: ManuallyDrop::new(space) }
    }

    /// Leads to the calls that change the space.
    pub fn edit(&mut self) -> SpaceMut<'_, F, M> {
        let Space { state, tlb } = &mut *self.space;
        SpaceMut { on: self.on, state, tlb }
    }

    /// Returns the space, which is complete.
    pub fn finish(self) -> Space<F> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is used no more, and is not dropped.
        unsafe { ManuallyDrop::take(&mut this.space) }
    }
}

impl<F: Format, M: SpaceMachine> Drop for Unfinished<'_, F, M> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: it is used no more after this.
        unsafe { ManuallyDrop::take(&mut self.space) }.end_checked(self.on);
    }
}

/// Exclusive use of a space: the calls that change its structure, Linux's mmap family.
///
/// ```
/// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// # use ptarmigan::{format::X86_64, machine::Machine};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// # let cpus = host.slots();
/// # let pin = cpus[0].pin();
/// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// # let on = machine.on(&pin)?;
/// use ptarmigan::addr::{VirtAddr, VirtRange};
/// use ptarmigan::space::{Access, AreaFlags, Space};
///
/// let mut space = Space::<X86_64>::new(on)?;
/// let mut edit = space.edit(on)?;
/// let heap = VirtRange::fixed::<0x40_0000, 0x50_0000>();
/// edit.mmap(heap, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
/// edit.populate(heap, Access::Write)?;
/// edit.mprotect(heap, AreaFlags::READ)?;
/// assert!(edit.query(VirtAddr(0x40_0000)).is_some());
/// edit.munmap(heap)?;
/// assert!(edit.query(VirtAddr(0x40_0000)).is_none());
/// drop(edit); // one flush for all of it
/// space.end(on)?;
/// # Ok(())
/// # }
/// ```
pub struct SpaceMut<'a, F: Format, M: SpaceMachine> {
    pub(super) on: On<'a, M>,
    pub(super) state: &'a mut State<F>,
    pub(super) tlb: &'a SpaceTlb,
}

impl<'a, F: Format, M: SpaceMachine> SpaceMut<'a, F, M> {
    /// A gather for the space.
    #[inline]
    pub(super) fn gather(&self) -> Gather<'a, M> {
        self.state.tables.gather(self.on, self.tlb, true)
    }

    /// Returns whether the pages that an operation is about to take away can be flushed.
    #[inline]
    pub(super) fn may_flush(&self) -> Result<(), TlbRefusal> {
        self.on.tlb().may_flush(self.on.pin())
    }

    /// Returns which empty tables the space gives back.
    pub fn empty_tables(&self) -> EmptyTables {
        self.state.empty_tables
    }

    /// Sets which empty tables the space gives back from now on; those that are empty already stay
    /// until a call takes pages away below them. Copies that fork makes from now on have the same.
    pub fn set_empty_tables(&mut self, empty: EmptyTables) {
        self.state.empty_tables = empty;
    }

    /// Returns when other CPUs forget pages that are unmapped.
    pub fn unmapping(&self) -> Unmapping {
        self.state.unmapping
    }

    /// Sets when other CPUs forget pages that are unmapped from now on. Copies that fork makes have
    /// the same.
    pub fn set_unmapping(&mut self, unmapping: Unmapping) {
        self.state.unmapping = unmapping;
    }

    /// As [`State::settle`].
    #[inline]
    pub(super) fn settle(&mut self, range: VirtRange) -> Result<(), AreaError> {
        Ok(self.state.settle(self.on, self.tlb, range)?)
    }

    /// Returns the area that `va` lies in.
    pub fn area(&self, va: VirtAddr) -> Option<Area> {
        self.state.areas.find(self.on, va.0)
    }

    /// Returns the space's areas.
    pub fn areas(&self) -> AreasRef<'_> {
        AreasRef::new(&self.state.areas, self.tlb.machine())
    }

    /// Calls `visit` for every area that has anything in `range`, in order.
    pub fn each_area(&self, range: VirtRange, visit: impl FnMut(&Area)) {
        self.state.areas.each(self.on, range, visit);
    }

    /// Returns the heap: where it begins, and its end. Both are 0 before the first
    /// [`brk`](Self::brk).
    pub fn heap(&self) -> VirtRange {
        self.state.heap
    }

    /// Returns the space's tables.
    pub fn tree(&self) -> TreeRef<'_, F> {
        TreeRef::new(&self.state.tables, self.tlb)
    }

    /// Returns the mapping at `va`, see [`TreeRef::query`].
    pub fn query(&self, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.tree().query(self.on, va)
    }
}

/// Gives the reference that the leaf `raw` of a table of `level`, which has just been cleared, held
/// to the gather.
#[inline]
pub(super) fn release<F: Format, M: Machine>(gather: &mut Gather<'_, M>, level: Level, raw: u64) {
    if level > Level::PTE {
        // SAFETY: 1. large pages of spaces hold a reference to the whole of a large data frame of
        // their machine each, or are special. 2. code that clears entries records their addresses.
        unsafe { gather.release_large::<F>(level, raw) };
        return;
    }
    // SAFETY: 1. spaces map counted data frames of their machine, each entry with a reference of
    // its own, and special frames. 2. code that clears entries records their addresses.
    unsafe { gather.release::<F>(Level::PTE, raw) };
}
