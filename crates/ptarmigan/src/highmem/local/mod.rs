//! Local maps: a stack of slots for each CPU, for short uses.
//!
//! # Order
//!
//! Slots of a CPU are taken from the bottom up. Frames are mapped in a *scope*, and a guard made
//! from another one borrows that, so that guards go in the order in which a stack wants them:
//!
//! ```compile_fail,E0505
//! # use ptarmigan::{addr::Pfn, highmem::{Slots, local::*}, tlb::Shootdown};
//! fn wrong_order<S: Shootdown, L: Slots>(scope: &mut LocalScope<'_, '_, S, L>) {
//!     let mut outer = scope.map(Pfn(1)).unwrap();
//!     let inner = outer.map(Pfn(2)).unwrap();
//!     drop(outer); // `inner` borrows it
//!     drop(inner);
//! }
//! ```
//!
//! [`LocalScope::window`] gives the order up, for code that takes a
//! [`Window`](crate::window::Window): a slot whose guard has
//! gone is used again when those above it have gone too.
//!
//! ```text
//!             slot 0        slot 1        slot 2
//!  code       outer         inner
//!  interrupt                              its own ──> STALE if this CPU is in a flush
//!  code       outer         inner         flushed before it is used again
//!  task out   (saved)       (saved)       unused ──> `switch_in` puts both back
//! ```
//!
//! # Why
//!
//! Linux's `kmap_local` has the same shape, so that ports can keep their calls. A stack needs no
//! search and no lock: the next slot is the depth. No other CPU uses the addresses of a slot, so
//! that ending a map flushes one page on one CPU; a slot that all CPUs share would need a shootdown
//! for each use. Guards are made in a scope, which notes their slots (`guard`), because a guard can
//! be forgotten, and its slot would be lost otherwise.
//!
//! # What is flushed
//!
//! When a guard goes, its slot shows nothing any more, and the CPU forgets it: one page on one CPU.
//! In the middle of a flush (the guard is an interrupt handler's) a CPU cannot flush. Then the slot
//! is *stale*, and is flushed before it is used again.
//!
//! # Interrupts
//!
//! An interrupt handler may map frames at any instant: it takes slots above those of the code it
//! interrupts, and gives them back before it returns. So plain loads and stores suffice.
//!
//! # Task switches
//!
//! A task may be switched out with frames mapped ([`LocalMaps::switch_out`]), and goes on where it
//! was, on the same CPU ([`LocalMaps::switch_in`]). Each scope notes the slots that were taken in
//! it. Guards that were forgotten show at the end of their scope, and are an error at the next
//! switch, which gives their slots back.
mod error;
mod guard;
mod stack;

pub use error::{LocalError, LocalSetupError, SwitchError};
pub use guard::{LocalGuard, LocalScope, LocalWindow};
pub use stack::MAX_DEPTH;

use crate::addr::Pfn;
use crate::bootmem::BootMemory;
use crate::cpu::{CpuId, PerCpu, Pinned, next_number};
use crate::frames::Frames;
use crate::highmem::slots::{Install, MAX_SLOTS, Remove, SlotError, Slots};
use crate::tlb::{NewEntry, Runs, Shootdown, Tlb, TlbRefusal};
use crate::window::DirectMap;
use core::fmt;
use core::mem::forget;
use core::sync::atomic::AtomicU32;
use stack::{EMPTY, FORGOTTEN, LIVE, STALE, Stack, UNUSED};

/// Which [`LocalMaps`] the maps of a task are of. A machine may have several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MapsId(u32);

impl MapsId {
    /// Makes an identity that no other call returns. Once there are none left, it matches nothing,
    /// as a [`MachineId`](crate::cpu::MachineId) does.
    fn new() -> Self {
        // The model checker need not know: nothing is published with the number.
        static NEXT: AtomicU32 = AtomicU32::new(1);
        MapsId(next_number(&NEXT))
    }

    fn matches(self, other: MapsId) -> bool {
        self.0 == other.0 && self.0 != 0
    }
}

impl fmt::Debug for MapsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("MapsId(none left)"),
            n => write!(f, "MapsId({n})"),
        }
    }
}

/// The local maps of a task that does not run. They go back to the CPU, and to the [`LocalMaps`],
/// that they were taken off.
pub struct TaskMaps {
    /// The maps that they are of; `None` while nothing is saved.
    of: Option<MapsId>,
    cpu: CpuId,
    depth: usize,
    /// [`Pfn::NONE`] for slots without a frame.
    frames: [Pfn; MAX_DEPTH],
}

impl Default for TaskMaps {
    fn default() -> Self {
        TaskMaps { of: None, cpu: CpuId(0), depth: 0, frames: [Pfn::NONE; MAX_DEPTH] }
    }
}

impl TaskMaps {
    /// Returns how many maps are saved.
    pub fn len(&self) -> usize {
        self.frames[..self.depth].iter().filter(|pfn| **pfn != Pfn::NONE).count()
    }

    /// Returns whether none is saved.
    pub fn is_empty(&self) -> bool {
        self.depth == 0
    }
}

/// The local maps of a machine.
pub struct LocalMaps<'m, S: Shootdown, L> {
    id: MapsId,
    tlb: &'m Tlb<S>,
    frames: &'m Frames,
    low: DirectMap,
    slots: L,
    depth: usize,
    stacks: PerCpu<(), Stack>,
}

impl<'m, S: Shootdown, L: Slots> LocalMaps<'m, S, L> {
    /// Makes stacks of `depth` slots for each CPU of `tlb`. CPU `c` has the slots from `c * depth`
    /// on.
    ///
    /// # Errors
    ///
    /// [`LocalSetupError`].
    ///
    /// # Safety
    ///
    /// 1. The slots must be made for the memory of `frames`, and `low` must reach the frames below
    ///    its limit.
    /// 2. No other code may use the slots. They must be empty, and every CPU must have
    ///    forgotten their last frames.
    pub unsafe fn new(
        boot: &mut BootMemory,
        depth: usize,
        tlb: &'m Tlb<S>,
        frames: &'m Frames,
        low: DirectMap,
        slots: L,
    ) -> Result<Self, LocalSetupError> {
        tlb.machine().accept(frames.machine()).map_err(LocalSetupError::WrongMachine)?;
        let cpus = tlb.config().cpus;
        if !(1..=MAX_DEPTH).contains(&depth) || slots.len() > MAX_SLOTS || slots.len() < depth * cpus {
            return Err(LocalSetupError::Depth { depth, slots: slots.len() });
        }
        let stacks = PerCpu::new(boot, tlb.machine(), cpus, |_| ()).map_err(LocalSetupError::Boot)?;
        Ok(LocalMaps { id: MapsId::new(), tlb, frames, low, slots, depth, stacks })
    }

    /// Returns the bytes of boot memory that the stacks of `cpus` CPUs take at most.
    pub fn bytes(cpus: usize) -> usize {
        PerCpu::<(), Stack>::bytes(cpus)
    }

    /// Returns how many slots of the CPU of `pin` are taken.
    pub fn depth(&self, pin: &Pinned<'_>) -> usize {
        self.stacks.own_shown(pin).map_or(0, Stack::depth)
    }

    /// Returns the slots.
    pub fn slots(&self) -> &L {
        &self.slots
    }

    fn slot(&self, cpu: CpuId, at: usize) -> usize {
        usize::from(cpu.0) * self.depth + at
    }

    /// Has the CPU forget its slots that are stale, from `from` to `to`.
    fn flush(&self, pin: &Pinned<'_>, stack: &Stack, from: usize, to: usize) -> Result<(), TlbRefusal> {
        let shift = self.slots.shift();
        let mut stale = Runs::new(shift);
        for at in (from..to).filter(|at| stack.state(*at) == STALE) {
            let page = self.slots.page(self.slot(pin.cpu(), at));
            stale.insert(page, page.wrapping_add(1 << shift));
        }
        self.tlb.flush_own_kernel(pin, &stale)?;
        (from..to).filter(|at| stack.state(*at) == STALE).for_each(|at| stack.set_state(at, EMPTY));
        Ok(())
    }

    /// Has the CPU forget slot `at`, which is stale.
    #[inline]
    fn flush_one(&self, pin: &Pinned<'_>, stack: &Stack, at: usize) -> Result<(), TlbRefusal> {
        let page = self.slots.page(self.slot(pin.cpu(), at));
        self.tlb.flush_own_page(pin, page, self.slots.shift())?;
        stack.set_state(at, EMPTY);
        Ok(())
    }

    /// Shows `pfn` in slot `at`, which is taken and has no guard. Returns the entry, which the
    /// machine is to be [told](Self::tell) of.
    fn show(&self, pin: &Pinned<'_>, stack: &Stack, at: usize, pfn: Pfn) -> Result<u64, LocalError> {
        if stack.state(at) == UNUSED {
            self.hide(pin.cpu(), stack, at).map_err(LocalError::Slot)?;
        }
        if stack.state(at) == STALE {
            self.flush_one(pin, stack, at).map_err(LocalError::Refused)?;
        }
        let slot = self.slot(pin.cpu(), at);
        // SAFETY: 1. the CPU's own, below the number of slots (contract of `new` and the pin). 2.
        // it is empty: the CPU, which is the only one that uses it, has forgotten the last frame.
        // 3. it has a record.
        let raw = self.slots.install(unsafe { Install::new(slot, pfn) }).map_err(LocalError::Slot)?;
        stack.set_frame(at, pfn);
        stack.set_state(at, LIVE);
        Ok(raw)
    }

    /// Tells the machine that slot `at` shows a frame. It may unwind.
    #[inline]
    fn tell(&self, pin: &Pinned<'_>, at: usize, raw: u64) {
        let va = self.slots.page(self.slot(pin.cpu(), at));
        let entry = NewEntry::of_kernel(va, self.slots.shift(), raw);
        // SAFETY: 1. the pin's CPU has a stack of this machine's. 2. `raw` is the entry that the
        // slots have just put there, for a frame that they may show.
        unsafe { self.tlb.entry_became_valid(pin, &entry) };
    }

    /// Shows nothing in slot `at` any more. If that fails, the slot shows a frame that nobody uses
    /// there; it is emptied before it is used again.
    fn hide(&self, cpu: CpuId, stack: &Stack, at: usize) -> Result<(), SlotError> {
        // SAFETY: 1. the CPU's own. 2. its guard has gone, was forgotten in a scope that has ended,
        // or is of a task that does not run (contract of `switch_out`).
        let hidden = self.slots.remove(unsafe { Remove::new(self.slot(cpu, at)) });
        stack.set_state(at, if hidden.is_ok() { STALE } else { UNUSED });
        hidden
    }

    /// Takes a slot of the CPU and shows `pfn` there. Returns the slot and its entry; `None` for a
    /// frame that needs none.
    fn push(&self, pin: &Pinned<'_>, stack: &Stack, pfn: Pfn) -> Result<Option<(usize, u64)>, LocalError> {
        if self.frames.record(pfn).is_none() {
            return Err(LocalError::NoSuchFrame(pfn));
        }
        if pfn.addr().0 < self.low.limit() {
            return Ok(None);
        }
        let at = stack.depth();
        if at >= self.depth {
            return Err(LocalError::Overflow { cpu: pin.cpu(), depth: self.depth });
        }
        // First, so that interrupts take slots above.
        stack.set_depth(at + 1);
        let taken = TakenSlot { stack, at };
        let raw = self.show(pin, stack, at, pfn)?;
        forget(taken);
        Ok(Some((at, raw)))
    }

    fn pop(&self, pin: &Pinned<'_>, stack: &Stack, at: usize) {
        let hidden = self.hide(pin.cpu(), stack, at);
        // The flush may unwind.
        let _lower = Lower(stack);
        if hidden.is_ok() {
            // A refusal leaves it stale, for the next use.
            let _ = self.flush_one(pin, stack, at);
        }
    }

    /// Saves the local maps of the task that runs on the CPU of `pin` to `task`, and takes them off
    /// the CPU, which forgets them.
    ///
    /// # Errors
    ///
    /// [`SwitchError`]. With [`SwitchError::Forgotten`] the switch is done, with others it is not.
    ///
    /// # Safety
    ///
    /// 1. Code that holds a guard of this CPU does not run before `task` has been
    ///    [switched in](Self::switch_in) again. To that code, what runs in between is an interrupt.
    pub unsafe fn switch_out(&self, pin: &Pinned<'_>, task: &mut TaskMaps) -> Result<(), SwitchError> {
        pin.check(self.tlb.machine()).map_err(SwitchError::WrongMachine)?;
        let Some(stack) = self.stacks.own_shown(pin) else { return Ok(()) };
        if !task.is_empty() {
            return Err(SwitchError::Saved);
        }
        let depth = stack.depth();
        if depth == 0 {
            return Ok(());
        }
        self.tlb.may_flush(pin).map_err(SwitchError::Refused)?;
        let (mut forgotten, mut first) = (0, Pfn::NONE);
        let mut highest = 0;
        for at in 0..depth {
            let state = stack.state(at);
            if state < LIVE {
                continue;
            }
            // One that cannot be emptied is when it is used next.
            let _ = self.hide(pin.cpu(), stack, at);
            if state == FORGOTTEN {
                first = if forgotten == 0 { stack.frame(at) } else { first };
                forgotten += 1;
            } else {
                task.frames[at] = stack.frame(at);
                highest = at + 1;
            }
        }
        (task.of, task.cpu, task.depth) = (Some(self.id), pin.cpu(), highest);
        stack.set_depth(0);
        self.flush(pin, stack, 0, depth).map_err(SwitchError::Refused)?;
        if forgotten == 0 { Ok(()) } else { Err(SwitchError::Forgotten { guards: forgotten, first }) }
    }

    /// Shows the local maps of `task` again, on the CPU that they were taken off.
    ///
    /// # Errors
    ///
    /// [`SwitchError`]; the maps stay saved then.
    pub fn switch_in(&self, pin: &Pinned<'_>, task: &mut TaskMaps) -> Result<(), SwitchError> {
        pin.check(self.tlb.machine()).map_err(SwitchError::WrongMachine)?;
        let Some(stack) = self.stacks.own_shown(pin) else { return Ok(()) };
        if task.is_empty() {
            return Ok(());
        }
        // What was saved by others may be frames of another machine, and more than fit here.
        if let Some(of) = task.of.filter(|of| !of.matches(self.id)) {
            return Err(SwitchError::OtherMaps { of, called: self.id });
        }
        if stack.depth() != 0 {
            return Err(SwitchError::InUse { maps: stack.depth() });
        }
        if task.cpu != pin.cpu() {
            return Err(SwitchError::WrongCpu { of: task.cpu, on: pin.cpu() });
        }
        stack.set_depth(task.depth);
        let hide = Hide { maps: self, cpu: pin.cpu(), stack };
        for at in 0..task.depth {
            let pfn = task.frames[at];
            if pfn == Pfn::NONE {
                continue;
            }
            let raw = self.show(pin, stack, at, pfn).map_err(|e| match e {
                LocalError::Refused(e) => SwitchError::Refused(e),
                LocalError::Slot(e) => SwitchError::Slot(e),
                _ => SwitchError::Saved,
            })?;
            self.tell(pin, at, raw);
        }
        forget(hide);
        *task = TaskMaps::default();
        Ok(())
    }
}

/// Lowers the depth of a stack below slots that have no guard any more, when dropped.
struct Lower<'a>(&'a Stack);

impl Drop for Lower<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut depth = self.0.depth();
        while depth > 0 && self.0.state(depth - 1) < LIVE {
            depth -= 1;
        }
        self.0.set_depth(depth);
    }
}

/// A slot that is taken and shows nothing yet. Gives it back when dropped.
struct TakenSlot<'a> {
    stack: &'a Stack,
    at: usize,
}

impl Drop for TakenSlot<'_> {
    #[cold]
    fn drop(&mut self) {
        self.stack.set_depth(self.at);
    }
}

/// A task that is being switched in. Hides its frames again when dropped: they are saved still.
struct Hide<'a, 'm, S: Shootdown, L: Slots> {
    maps: &'a LocalMaps<'m, S, L>,
    cpu: CpuId,
    stack: &'a Stack,
}

impl<S: Shootdown, L: Slots> Drop for Hide<'_, '_, S, L> {
    #[cold]
    fn drop(&mut self) {
        for at in (0..self.stack.depth()).filter(|at| self.stack.state(*at) >= LIVE) {
            let _ = self.maps.hide(self.cpu, self.stack, at);
        }
        self.stack.set_depth(0);
    }
}
