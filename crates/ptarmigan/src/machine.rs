//! The machine, and where on it code runs.
//!
//! A [`Machine`] is all parts that set-up has put together. [`On`] is a machine and the CPU that
//! the caller is on, as one value that calls pass on. It is made by [`Machine::on`], which checks
//! once that the pin is of this machine; the parts that it leads to need not check again.
use crate::addr::{Pfn, PhysAddr};
use crate::cpu::{CpuId, MachineId, NodeId, Pinned, WrongMachine};
use crate::format::{Attr, Format, MemoryType};
use crate::frames::{AllocFlags, DataFrames, Frames, HighUse, NoFrame, TakenData};
use crate::page::{Clean, Level};
use crate::parking::Parking;
use crate::quicklist::{Policy, PolicyOn};
use crate::tlb::{Mmu, NewEntry, Shootdown, SpaceTlb, Tlb, TlbRefusal};
use crate::window::OpenWindow;

pub use crate::cpu::Refused;

/// The parts of a machine.
///
/// # Safety
///
/// An implementation must ensure:
///
/// 1. All parts were made for the machine that [`id`](Self::id) names, and for its number of CPUs
///    and nodes. It is the only [`Machine`] of that name, unless another one has the same parts, or
///    has come after it by leave of [`Tlb::next_name`].
/// 2. Every call returns the same parts, and does not unwind.
/// 3. The window reaches the memory of the machine's frames, and [`clear_data`](Self::clear_data)
///    and [`copy_data`](Self::copy_data) write to no other memory than the data frame that is
///    named. Where all tables are in low memory, the window need not reach high memory;
///    [`HIGH_TABLES`](Self::HIGH_TABLES) says which.
/// 4. A [`take_anonymous`](Self::take_anonymous) of its own returns one of the machine's
///    [data](Self::data) frames, with one reference, which no other code reaches.
/// 5. Root tables of the policy have no entries, or those of a kernel's half in the format that
///    [`Mmu::FORMATS`] names.
pub unsafe trait Machine: Sync {
    /// How tables are reached.
    type Window: OpenWindow;
    /// Where table pages come from.
    type Policy: Policy;
    /// How TLBs are made to forget.
    type Shootdown: Shootdown;

    /// Whether the window reaches high memory too, so that leaf tables of user space may be made of
    /// it. Whether they are, the policy's [placement](crate::quicklist::Placement) decides.
    const HIGH_TABLES: bool = false;

    /// Returns how many leaf tables a space may have before it [prefers](HighUse::Prefer) high
    /// memory for more. A space asks once, when it is made.
    fn table_share(&self) -> u32 {
        u32::MAX
    }

    /// Physical memory.
    fn frames(&self) -> &Frames;
    /// Frames for data.
    fn data(&self) -> &DataFrames;
    /// The window.
    fn window(&self) -> &Self::Window;
    /// The policy.
    fn policy(&self) -> &Self::Policy;
    /// The TLBs.
    fn tlb(&self) -> &Tlb<Self::Shootdown>;
    /// Chains that wait for lazy CPUs.
    fn parking(&self) -> &Parking;

    /// Clears a data frame that is about to be mapped: all frames of a page, if
    /// [data frames](DataFrames::order) are larger than one. On a machine whose data frames have no
    /// memory behind them this has no effect.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if the machine has no memory left to reach the frame by.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `frame`, a data frame of the machine's, which no other code reaches.
    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame>;

    /// Copies a data frame, or a page of a backing object, for copy-on-write. On a machine whose
    /// data frames have no memory behind them this has no effect.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if the machine has no memory left to reach the frames by.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `to`, a data frame of the machine's, which no other code reaches.
    /// 2. `from` must be another data frame, or a page of a backing object, which stays while this
    ///    runs.
    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame>;

    /// Takes a data frame for a page of anonymous memory, with one reference: known to be zero, or
    /// [cleared](Self::clear_data) now. A machine that counts such pages, or whose data frames have
    /// no memory behind them, does it in its own way. If that unwinds once it has taken a frame,
    /// the frame is lost.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    #[inline]
    fn take_anonymous(on: On<'_, Self>, flags: AllocFlags) -> Result<Pfn, NoFrame>
    where
        Self: Sized,
    {
        on.take_zeroed(flags)
    }

    /// Is told that instructions may be fetched from `frames` frames from `first` on, before the
    /// first entry that allows it is stored: in faults, where pages are mapped, and where pages
    /// that are mapped gain the permission. The content of the frames has been written before. It
    /// is not called for entries that are copied or moved.
    ///
    /// A machine whose instruction caches do not see stores makes them agree here, on every CPU: on
    /// AArch64 it cleans the data caches of the frames to the point of unification, invalidates
    /// instruction caches (inner shareable), and waits for both; on RISC-V it has every hart
    /// execute `FENCE.I`. One that keeps a note of frames that are clean already saves itself the
    /// work.
    ///
    /// The caller may hold the lock of a table and frames that only it knows. So this must not call
    /// the library, unwind, or wait for code of the kernel on other CPUs.
    #[inline]
    fn before_executable(&self, _pin: &Pinned<'_>, _first: Pfn, _frames: u64) {}

    /// Is told that `frames` frames from `first` on are about to be accessed as `memory`, before
    /// the first entry that says so is stored: where pages are mapped with another type than
    /// [`MemoryType::WriteBack`], in faults too, and where pages that are mapped change their type,
    /// to whichever. It is not called for entries that are copied or moved.
    ///
    /// A machine whose frames may be in a cache then writes the lines of the frames back and
    /// invalidates them, on every CPU, and waits: with `CLFLUSH` and `MFENCE` on x86 (Intel SDM
    /// volume 3, "Memory cache control", which demands it for a type that changes), with `DC CIVAC`
    /// and `DSB` on AArch64 (Arm ARM, "Mismatched memory attributes"), with `CBO.FLUSH` on RISC-V.
    /// Registers of devices are in no cache: for frames that are no memory there is no work.
    ///
    /// Translations with the former type are flushed afterwards, by the call that changes the type,
    /// as for every change of an entry; where the architecture asks for it, before the new entry
    /// stands. Until then other CPUs may read lines of the frames into their caches once more, and
    /// write to them if a program does. So nothing may write to the frames through another mapping
    /// while a type changes. If other mappings are read, they have the new type, or the lines are
    /// invalidated once more, by the caller.
    ///
    /// The limits of [`before_executable`](Self::before_executable) are those of this call.
    #[inline]
    fn before_memory_type(&self, _pin: &Pinned<'_>, _first: Pfn, _frames: u64, _memory: MemoryType) {}

    /// The machine's name.
    #[inline]
    fn id(&self) -> MachineId {
        self.frames().machine()
    }

    /// This machine, seen from the CPU that the caller is pinned to.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the pin is another machine's.
    #[inline]
    fn on<'a>(&'a self, pin: &'a Pinned<'a>) -> Result<On<'a, Self>, WrongMachine>
    where
        Self: Sized,
    {
        pin.check(self.id())?;
        Ok(On { m: self, pin })
    }
}

/// A machine and the CPU that the caller is on.
///
/// It proves that the pin is of the machine, so that per-CPU parts may be reached without another
/// check. Its [`policy`](Self::policy) is called with that proof; a pin alone is none:
///
/// ```compile_fail,E0308
/// use ptarmigan::{cpu::Pinned, frames::AllocFlags, page::Level, quicklist::Policy};
/// fn with_any_pin(policy: &impl Policy, pin: &Pinned<'_>) {
///     let _ = policy.alloc(pin, Level::PTE, AllocFlags::NORMAL); // whose pin is it?
/// }
/// ```
pub struct On<'a, M> {
    m: &'a M,
    pin: &'a Pinned<'a>,
}

/// A data frame that was taken just now, with one reference, and is mapped nowhere. Given back when
/// dropped, also if code of the machine unwinds. [`Pfn::NONE`] is no frame.
pub(crate) struct Unmapped<'a, M: Machine> {
    pub on: On<'a, M>,
    pub pfn: Pfn,
}

impl<M: Machine> Unmapped<'_, M> {
    /// Returns the frame, which is about to be mapped.
    #[inline]
    pub fn keep(self) -> Pfn {
        core::mem::ManuallyDrop::new(self).pfn
    }
}

impl<M: Machine> Drop for Unmapped<'_, M> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let on = self.on;
        if self.pfn == Pfn::NONE {
            return;
        }
        // SAFETY: 1. `on` is one machine. 2. taken just now, with one reference, and mapped
        // nowhere.
        unsafe {
            DataFrames::release_raw(on.frames(), self.pfn);
            on.data().give_raw(on.frames(), on.pin(), self.pfn);
        }
    }
}

impl<M> Clone for On<'_, M> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for On<'_, M> {}

impl<'a, M: Machine> On<'a, M> {
    /// The machine.
    #[inline]
    pub fn machine(self) -> &'a M {
        self.m
    }

    /// The pin.
    #[inline]
    pub fn pin(self) -> &'a Pinned<'a> {
        self.pin
    }

    /// The CPU that the caller is on.
    #[inline]
    pub fn cpu(self) -> CpuId {
        self.pin.cpu()
    }

    /// The node of that CPU.
    #[inline]
    pub fn node(self) -> NodeId {
        self.pin.node()
    }

    /// Physical memory.
    #[inline]
    pub fn frames(self) -> &'a Frames {
        self.m.frames()
    }

    /// Frames for data.
    #[inline]
    pub fn data(self) -> &'a DataFrames {
        self.m.data()
    }

    /// The window.
    #[inline]
    pub fn window(self) -> &'a M::Window {
        self.m.window()
    }

    /// The TLBs.
    #[inline]
    pub fn tlb(self) -> &'a Tlb<M::Shootdown> {
        self.m.tlb()
    }

    /// Refuses an object of another machine.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if `id` is not this machine.
    #[inline]
    pub fn check(self, id: MachineId) -> Result<(), WrongMachine> {
        // `Machine::on` has seen that the pin's machine matches itself.
        let called = self.pin.machine();
        if called == id { Ok(()) } else { Err(WrongMachine { called, given: id }) }
    }

    /// The policy, with the pin: its calls are safe from here on.
    #[inline]
    pub fn policy(self) -> PolicyOn<'a, M::Policy> {
        // SAFETY: 1. `Machine::on` has compared the pin's machine with this one's, whose policy
        // this is (contract of `Machine`, point 1).
        unsafe { PolicyOn::new_unchecked(self.m.policy(), self.pin) }
    }

    /// Takes a page for a table of `level`, in that level's state.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then. It is absent for a level that trees do not have.
    #[inline]
    pub fn alloc(self, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        // Known while compiling: the way to high memory is then left out of the policy's.
        let high = if M::HIGH_TABLES { flags.high } else { HighUse::Never };
        self.policy().alloc(level, flags.with_high(high))
    }

    /// As [`alloc`](Self::alloc), for code that links the page in a tree; one call for all of it in
    /// images with little room.
    ///
    /// # Errors
    ///
    /// As for [`alloc`](Self::alloc).
    #[cfg_attr(not(feature = "small"), inline)]
    #[cfg_attr(feature = "small", inline(never))]
    pub(crate) fn alloc_table(self, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        self.alloc(level, flags)
    }

    /// As [`alloc_table`](Self::alloc_table), if there is a page at hand; one that is slow to get
    /// is left to that call.
    #[inline(always)]
    pub(crate) fn table_at_hand(self, level: Level, flags: AllocFlags) -> Option<Clean> {
        let high = if M::HIGH_TABLES { flags.high } else { HighUse::Never };
        self.policy().alloc_at_hand(level, flags.with_high(high))
    }

    /// Gives back a page that was never linked; no flush is needed (REQ-37).
    ///
    /// # Safety
    ///
    /// 1. The page must have come from this machine's policy.
    #[inline]
    pub unsafe fn free_unlinked(self, page: Clean) {
        // SAFETY: 1. by the caller.
        unsafe { self.policy().free_unlinked(page) };
    }

    /// Takes a data frame with one reference: known to be zero, or
    /// [cleared](Machine::clear_data) now. [`Machine::take_anonymous`] is this, unless the machine
    /// has its own way.
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    #[inline(never)]
    pub fn take_zeroed(self, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        // SAFETY: 1. the parts are this machine's (`Machine`, 1.), and `on` has checked the pin.
        let taken = unsafe { self.data().take_zero_raw(self.frames(), self.pin, flags) };
        let TakenData { pfn, is_zero } = taken?;
        let unmapped = Unmapped { on: self, pfn };
        if !is_zero {
            // SAFETY: 1. taken just now.
            unsafe { self.m.clear_data(self.pin, pfn) }?;
        }
        Ok(unmapped.keep())
    }

    /// Tells the MMU of the entries of `pages` pages of 2^`shift` bytes from `va` on that it may
    /// use now, where it wants to know. The first one was `was` and is `raw`. `space` is `None` in
    /// the kernel's half.
    #[inline]
    pub(crate) fn became_valid(
        self,
        space: Option<&SpaceTlb>,
        va: u64,
        shift: u32,
        pages: u64,
        was: u64,
        raw: u64,
    ) {
        self.became_reachable(space, 0, (va, shift, pages), was, raw);
    }

    /// As [`became_valid`](Self::became_valid), for entries on the way to which so many levels of
    /// tables may have been [linked](NewEntry::linked).
    #[inline]
    pub(crate) fn became_reachable(
        self,
        space: Option<&SpaceTlb>,
        linked: u8,
        (va, shift, pages): (u64, u32, u64),
        was: u64,
        raw: u64,
    ) {
        if const { <M::Shootdown as Mmu>::NEEDS_ENTRY_VALID } {
            let asid = space.and_then(|space| self.tlb().number_here(self.pin, space));
            let space = space.map(SpaceTlb::id);
            let entry = NewEntry { space, asid, va, shift, pages, was, raw, linked };
            // SAFETY: 1. `Machine::on` has compared the pin's machine with this one's. 2. callers
            // in this crate have just stored the entries, or found them.
            unsafe { self.tlb().entry_became_valid(self.pin, &entry) };
        }
    }

    /// Tells the machine that `pages` pages of format `F`, whose frames begin with `first`, are
    /// about to be mapped with `attr`, if that lets instructions be fetched from them, or is not
    /// the usual type of memory.
    #[inline]
    pub(crate) fn before_mapped<F: Format>(self, attr: Attr, first: Pfn, pages: u64) {
        if attr.has(Attr::EXEC) {
            self.m.before_executable(self.pin, first, pages << F::PAGE_ORDER);
        }
        if attr.memory() != MemoryType::WriteBack {
            self.m.before_memory_type(self.pin, first, pages << F::PAGE_ORDER, attr.memory());
        }
    }

    /// Tells the machine that the leaf `old` of a table of `level` is about to become `new`, of the
    /// same frames, if that lets instructions be fetched and `old` did not, or changes the type of
    /// memory.
    #[inline]
    pub(crate) fn before_changed<F: Format>(self, level: Level, old: u64, new: u64) {
        let (had, has) = (F::attr(level, old), F::attr(level, new));
        let first = F::frame(level, new);
        let frames = 1 << (F::shift(level) - F::PAGE_SHIFT) << F::PAGE_ORDER;
        if becomes_executable(had, has) {
            self.m.before_executable(self.pin, first, frames);
        }
        if had.memory() != has.memory() {
            self.m.before_memory_type(self.pin, first, frames, has.memory());
        }
    }

    /// Begins to run in `space`, whose root is at `root`, on this CPU.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the space is of another machine.
    #[inline]
    pub(crate) fn activate(self, space: &SpaceTlb, root: PhysAddr) -> Result<(), TlbRefusal> {
        // SAFETY: 1. `root` is the root of the space's tables, which stay as long as the space is
        // loaded: its end has all CPUs leave first.
        unsafe { self.tlb().activate(self.pin, space, root) }
    }

    /// Stops running `space` on this CPU for now, but keeps its root loaded.
    pub(crate) fn rest(self, space: &SpaceTlb) -> Result<(), TlbRefusal> {
        self.tlb().rest(self.pin, space)?;
        self.collect();
        Ok(())
    }

    /// Leaves `space` on this CPU.
    pub(crate) fn deactivate(self, space: &SpaceTlb) -> Result<(), TlbRefusal> {
        self.tlb().deactivate(self.pin, space)
    }

    /// Clears up to `budget` free frames ahead of their use; returns how many. For an idle CPU,
    /// after [`idle`](Self::idle): first frames of the CPU's own list, which faults on anonymous
    /// memory take next, then frames of its node's zones, where new tables come from.
    ///
    /// The library has no thread of its own. An idle loop calls it again and again, with a budget
    /// that is worth no more than the CPU may be late by (16 frames are some 10 µs), until it
    /// returns 0: the demand is met, or memory is short. Interrupts may come in between at any
    /// instant.
    ///
    /// Returns 0 on a machine with high memory, as the window need not reach it.
    ///
    /// ```
    /// # use ptarmigan::machine::{Machine, On};
    /// fn idle<M: Machine>(on: On<'_, M>, work_is_ready: impl Fn() -> bool) {
    ///     on.idle();
    ///     while !work_is_ready() && on.clear_ahead(16) > 0 {}
    ///     // Nothing left to do: sleep until an interrupt comes.
    /// }
    /// ```
    pub fn clear_ahead(self, budget: u32) -> u32 {
        if self.frames().has_high() {
            return 0;
        }
        // SAFETY: 1. the parts are this machine's (`Machine`, 1.), and `on` has checked the pin.
        // 2. all frames are low memory, which the window reaches (`Machine`, 3.).
        let made = unsafe { self.data().refill_zero(self.frames(), self.pin, budget, self.window()) };
        // SAFETY: 1. as above (2.).
        made + unsafe { self.frames().refill_zero(self.node(), budget.saturating_sub(made), self.window()) }
    }
}

/// Whether pages whose attributes change from `had` to `has` are such as the machine is
/// [told](On::before_changed) of.
#[inline]
pub(crate) fn is_told(had: Attr, has: Attr) -> bool {
    becomes_executable(had, has) || had.memory() != has.memory()
}

#[inline]
fn becomes_executable(had: Attr, has: Attr) -> bool {
    has.without(had).has(Attr::EXEC)
}
