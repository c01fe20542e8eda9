//! Local maps: a stack of slots for each CPU, for short uses.
//!
//! # Order
//!
//! Slots of a CPU are taken from the bottom up. Frames are mapped in a *scope*, and a guard made from
//! another one borrows that, so that guards go in the order in which a stack wants them:
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
//! [`LocalScope::window`] gives the order up, for code that takes a [`Window`]: a slot whose guard has
//! gone is used again when those above it have gone too.
//!
//! # What is flushed
//!
//! When a guard goes, its slot shows nothing any more, and the CPU forgets it: one page on one CPU. In
//! the middle of a flush (the guard is an interrupt handler's) a CPU cannot flush. Then the slot is
//! *stale*, and is flushed before it is used again.
//!
//! # Interrupts
//!
//! An interrupt handler may map frames at any instant: it takes slots above those of the code it
//! interrupts, and gives them back before it returns. So plain loads and stores suffice.
//!
//! # Task switches
//!
//! A task may be switched out with frames mapped ([`LocalMaps::switch_out`]), and goes on where it
//! was, on the same CPU ([`LocalMaps::switch_in`]). Guards that were forgotten show at the end of their
//! scope, and are an error at the next switch, which gives their slots back.
use super::slots::{MAX_SLOTS, SlotError, Slots};
use crate::addr::{FRAME_SIZE, Pfn, PhysAddr};
use crate::bootmem::{BootMemory, BootMemoryShort};
use crate::cpu::{CpuId, PerCpu, Pinned, WrongMachine};
use crate::frames::Frames;
use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use crate::tlb::{NewEntry, Runs, Shootdown, Tlb, TlbRefusal};
use crate::window::{DirectMap, OpenWindow, Window, WindowGuard};
use core::fmt;

/// Slots of a CPU at most.
pub const MAX_DEPTH: usize = 32;

/// Shows nothing, and the CPU has forgotten what it showed.
const EMPTY: u8 = 0;
/// Shows nothing; the CPU may know what it showed.
const STALE: u8 = 1;
/// Shows a frame.
const LIVE: u8 = 2;
/// Shows a frame whose guard was forgotten.
const FORGOTTEN: u8 = 3;

struct LocalSlot {
    frame: AtomicU32,
    state: AtomicU8,
}

/// The stack of a CPU. Only this CPU writes to it.
#[derive(Default)]
struct Stack {
    /// Slots below this one are taken.
    depth: AtomicU8,
    slots: [LocalSlot; MAX_DEPTH],
}

impl Default for LocalSlot {
    fn default() -> Self {
        LocalSlot { frame: AtomicU32::new(Pfn::NONE.0), state: AtomicU8::new(EMPTY) }
    }
}

impl Stack {
    fn depth(&self) -> usize {
        usize::from(self.depth.load(Relaxed))
    }

    fn set_depth(&self, depth: usize) {
        self.depth.store(depth as u8, Relaxed);
    }

    fn state(&self, at: usize) -> u8 {
        self.slots[at].state.load(Relaxed)
    }

    fn set_state(&self, at: usize, state: u8) {
        self.slots[at].state.store(state, Relaxed);
    }

    fn frame(&self, at: usize) -> Pfn {
        Pfn(self.slots[at].frame.load(Relaxed))
    }
}

/// Why local maps cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalSetupError {
    /// The depth is not 1 to [`MAX_DEPTH`], or there are not as many slots for each CPU.
    Depth {
        /// Slots for each CPU that were asked for.
        depth: usize,
        /// Slots in all.
        slots: usize,
    },
    /// The parts are of different machines.
    WrongMachine(WrongMachine),
    /// The stacks do not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for LocalSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalSetupError::Depth { depth, slots } => write!(
                f,
                "{depth} slots for each CPU, of {slots} in all: 1 to {MAX_DEPTH} will do, for all CPUs"
            ),
            LocalSetupError::WrongMachine(e) => e.fmt(f),
            LocalSetupError::Boot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for LocalSetupError {}

/// Why a frame was not mapped; nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LocalError {
    /// There is no such frame.
    NoSuchFrame(Pfn),
    /// All slots of the CPU are in use.
    Overflow {
        /// Which CPU.
        cpu: CpuId,
        /// Its slots.
        depth: usize,
    },
    /// The pin is of another machine.
    WrongMachine(WrongMachine),
    /// The next slot is stale, and the CPU cannot flush now.
    Refused(TlbRefusal),
    /// The machine beneath could not change a slot.
    Slot(SlotError),
}

impl fmt::Display for LocalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalError::NoSuchFrame(pfn) => write!(f, "frame {pfn} is not under management"),
            LocalError::Overflow { cpu, depth } => {
                write!(f, "CPU {} has {depth} local maps already: configure a greater depth", cpu.0)
            }
            LocalError::WrongMachine(e) => e.fmt(f),
            LocalError::Refused(e) => e.fmt(f),
            LocalError::Slot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for LocalError {}

/// Why a task switch is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchError {
    /// Guards of the task were forgotten. Their slots have been given back, and the switch is done
    /// otherwise.
    Forgotten {
        /// How many.
        guards: usize,
        /// The frame of the lowest one.
        first: Pfn,
    },
    /// The task has maps that were saved already, and nothing has changed.
    Saved,
    /// The CPU has local maps of another task, and nothing has changed.
    InUse {
        /// How many.
        maps: usize,
    },
    /// The task's maps are those of another CPU, and nothing has changed.
    WrongCpu {
        /// The CPU that they are of.
        of: CpuId,
        /// The CPU of the pin.
        on: CpuId,
    },
    /// The pin is of another machine, and nothing has changed.
    WrongMachine(WrongMachine),
    /// The CPU cannot flush now, and nothing has changed.
    Refused(TlbRefusal),
    /// The machine beneath could not change a slot. Saved maps stay saved.
    Slot(SlotError),
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwitchError::Forgotten { guards, first } => {
                write!(f, "{guards} local map(s) were forgotten, the first of frame {first}: drop their guards")
            }
            SwitchError::Saved => f.write_str("the task's local maps are saved already: switch it in first"),
            SwitchError::InUse { maps } => {
                write!(f, "the CPU has {maps} local map(s) of another task: switch that out first")
            }
            SwitchError::WrongCpu { of, on } => {
                write!(f, "the task's local maps are CPU {}'s; it cannot go on on CPU {}", of.0, on.0)
            }
            SwitchError::WrongMachine(e) => e.fmt(f),
            SwitchError::Refused(e) => e.fmt(f),
            SwitchError::Slot(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for SwitchError {}

/// The local maps of a task that does not run.
pub struct TaskMaps {
    cpu: CpuId,
    depth: usize,
    /// [`Pfn::NONE`] for slots without a frame.
    frames: [Pfn; MAX_DEPTH],
}

impl Default for TaskMaps {
    fn default() -> Self {
        TaskMaps { cpu: CpuId(0), depth: 0, frames: [Pfn::NONE; MAX_DEPTH] }
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
    tlb: &'m Tlb<S>,
    frames: &'m Frames,
    low: DirectMap,
    slots: L,
    depth: usize,
    stacks: PerCpu<(), Stack>,
}

impl<'m, S: Shootdown, L: Slots> LocalMaps<'m, S, L> {
    /// Makes stacks of `depth` slots for each CPU of `tlb`. CPU `c` has the slots from `c * depth` on.
    ///
    /// # Errors
    ///
    /// [`LocalSetupError`].
    ///
    /// # Safety
    ///
    /// 1. The slots were made for the memory of `frames`, and `low` reaches the frames below its
    ///    limit.
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
        Ok(LocalMaps { tlb, frames, low, slots, depth, stacks })
    }

    /// Returns the bytes of boot memory that the stacks of `cpus` CPUs take at most.
    pub fn bytes(cpus: usize) -> usize {
        PerCpu::<(), Stack>::bytes(cpus)
    }

    /// Runs `f` with a scope in which frames can be mapped.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] for a pin of another machine; `f` has not run then.
    pub fn scope<R>(
        &self,
        pin: &Pinned<'_>,
        f: impl FnOnce(&mut LocalScope<'_, 'm, S, L>) -> R,
    ) -> Result<R, WrongMachine> {
        pin.check(self.tlb.machine())?;
        let Some(stack) = self.stacks.own_shown(pin) else {
            return Err(WrongMachine { called: self.tlb.machine(), given: pin.machine() });
        };
        let _left = Left { stack, base: stack.depth() };
        Ok(f(&mut LocalScope { maps: self, stack, pin }))
    }

    /// Returns how many slots of the CPU of `pin` are taken.
    pub fn depth(&self, pin: &Pinned<'_>) -> usize {
        self.stacks.own_shown(pin).map_or(0, Stack::depth)
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

    /// Shows `pfn` in slot `at`, which is taken and shows nothing.
    fn show(&self, pin: &Pinned<'_>, stack: &Stack, at: usize, pfn: Pfn) -> Result<(), LocalError> {
        if stack.state(at) == STALE {
            self.flush(pin, stack, at, at + 1).map_err(LocalError::Refused)?;
        }
        let slot = self.slot(pin.cpu(), at);
        // SAFETY: 1. the CPU's own, which this code has taken from the stack. 2. it is not stale. 3.
        // the callers have found the frame among those that the slots were made for.
        let raw = unsafe { self.slots.install(slot, pfn) }.map_err(LocalError::Slot)?;
        stack.slots[at].frame.store(pfn.0, Relaxed);
        stack.set_state(at, LIVE);
        let entry = NewEntry { space: None, va: self.slots.page(slot), shift: self.slots.shift(), raw };
        self.tlb.entry_became_valid(pin, &entry);
        Ok(())
    }

    /// Shows nothing in slot `at` any more.
    fn hide(&self, cpu: CpuId, stack: &Stack, at: usize) -> Result<(), SlotError> {
        // SAFETY: 1. the CPU's own. 2. its guard has gone, was forgotten in a scope that has ended, or
        // is of a task that does not run (contract of `switch_out`).
        unsafe { self.slots.remove(self.slot(cpu, at)) }?;
        stack.set_state(at, STALE);
        Ok(())
    }

    /// Takes a slot of the CPU and shows `pfn` there; `None` for a frame that needs none.
    fn push(&self, pin: &Pinned<'_>, stack: &Stack, pfn: Pfn) -> Result<Option<usize>, LocalError> {
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
        if let Err(e) = self.show(pin, stack, at, pfn) {
            stack.set_depth(at);
            return Err(e);
        }
        Ok(Some(at))
    }

    fn pop(&self, pin: &Pinned<'_>, stack: &Stack, at: usize) {
        match self.hide(pin.cpu(), stack, at) {
            // A refusal leaves it stale, for the next use.
            Ok(()) => _ = self.flush(pin, stack, at, at + 1),
            // It shows the frame still; the next switch tries again.
            Err(_) => stack.set_state(at, FORGOTTEN),
        }
        let mut depth = stack.depth();
        while depth > 0 && stack.state(depth - 1) < LIVE {
            depth -= 1;
        }
        stack.set_depth(depth);
    }

    fn guard<'a>(&'a self, pin: &'a Pinned<'a>, stack: &'a Stack, pfn: Pfn) -> Result<LocalGuard<'a, 'm, S, L>, LocalError> {
        let at = self.push(pin, stack, pfn)?;
        let base = match at {
            None => self.low.open(pfn.addr()).base(),
            Some(at) => self.slots.address(self.slot(pin.cpu(), at)),
        };
        Ok(LocalGuard { maps: self, pin, stack, at, base })
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
            if let Err(e) = self.hide(pin.cpu(), stack, at) {
                self.take_back(pin, stack, task, at);
                return Err(SwitchError::Slot(e));
            }
            if state == FORGOTTEN {
                first = if forgotten == 0 { stack.frame(at) } else { first };
                forgotten += 1;
            } else {
                task.frames[at] = stack.frame(at);
                highest = at + 1;
            }
        }
        (task.cpu, task.depth) = (pin.cpu(), highest);
        stack.set_depth(0);
        self.flush(pin, stack, 0, depth).map_err(SwitchError::Refused)?;
        if forgotten == 0 { Ok(()) } else { Err(SwitchError::Forgotten { guards: forgotten, first }) }
    }

    /// Shows again what was saved of the slots below `end`.
    fn take_back(&self, pin: &Pinned<'_>, stack: &Stack, task: &mut TaskMaps, end: usize) {
        for at in 0..end {
            let pfn = core::mem::replace(&mut task.frames[at], Pfn::NONE);
            if pfn != Pfn::NONE {
                let shown = self.show(pin, stack, at, pfn);
                debug_assert!(shown.is_ok(), "the slot was shown a moment ago");
            }
        }
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
        if stack.depth() != 0 {
            return Err(SwitchError::InUse { maps: stack.depth() });
        }
        if task.cpu != pin.cpu() {
            return Err(SwitchError::WrongCpu { of: task.cpu, on: pin.cpu() });
        }
        stack.set_depth(task.depth);
        for at in 0..task.depth {
            let pfn = task.frames[at];
            if pfn == Pfn::NONE {
                continue;
            }
            if let Err(e) = self.show(pin, stack, at, pfn) {
                for shown in 0..at {
                    if stack.state(shown) == LIVE {
                        let _ = self.hide(pin.cpu(), stack, shown);
                    }
                }
                stack.set_depth(0);
                return Err(match e {
                    LocalError::Refused(e) => SwitchError::Refused(e),
                    LocalError::Slot(e) => SwitchError::Slot(e),
                    _ => SwitchError::Saved,
                });
            }
        }
        *task = TaskMaps::default();
        Ok(())
    }
}

/// The end of a scope.
struct Left<'a> {
    stack: &'a Stack,
    base: usize,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        // Guards of the scope have gone by now, but for those that were forgotten.
        for at in self.base..self.stack.depth() {
            if self.stack.state(at) == LIVE {
                self.stack.set_state(at, FORGOTTEN);
            }
        }
    }
}

/// Where frames can be mapped on the CPU that the caller is pinned to.
pub struct LocalScope<'a, 'm, S: Shootdown, L> {
    maps: &'a LocalMaps<'m, S, L>,
    stack: &'a Stack,
    pin: &'a Pinned<'a>,
}

impl<'m, S: Shootdown, L: Slots> LocalScope<'_, 'm, S, L> {
    /// Maps a frame.
    ///
    /// # Errors
    ///
    /// [`LocalError`].
    #[inline]
    pub fn map(&mut self, pfn: Pfn) -> Result<LocalGuard<'_, 'm, S, L>, LocalError> {
        self.maps.guard(self.pin, self.stack, pfn)
    }

    /// Returns the scope as a [`Window`], whose guards may go in any order.
    pub fn window(&mut self) -> LocalWindow<'_, 'm, S, L> {
        LocalWindow { maps: self.maps, stack: self.stack, pin: self.pin }
    }
}

/// A frame that is mapped on this CPU; not any more when dropped.
pub struct LocalGuard<'a, 'm, S: Shootdown, L: Slots> {
    maps: &'a LocalMaps<'m, S, L>,
    pin: &'a Pinned<'a>,
    stack: &'a Stack,
    /// `None` for a frame that needs no slot.
    at: Option<usize>,
    base: *mut u8,
}

impl<'m, S: Shootdown, L: Slots> LocalGuard<'_, 'm, S, L> {
    /// Maps another frame, for no longer than this one. The pointer of this guard, taken before, may
    /// be used meanwhile.
    ///
    /// # Errors
    ///
    /// [`LocalError`].
    #[inline]
    pub fn map(&mut self, pfn: Pfn) -> Result<LocalGuard<'_, 'm, S, L>, LocalError> {
        self.maps.guard(self.pin, self.stack, pfn)
    }
}

impl<S: Shootdown, L: Slots> Drop for LocalGuard<'_, '_, S, L> {
    #[inline]
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.maps.pop(self.pin, self.stack, at);
        }
    }
}

// SAFETY: the slot shows the frame until the guard is dropped, and the guard stays on its CPU.
unsafe impl<S: Shootdown, L: Slots> WindowGuard for LocalGuard<'_, '_, S, L> {
    #[inline(always)]
    fn base(&self) -> *mut u8 {
        self.base
    }
}

/// A [`LocalScope`] as a window, for frames one by one.
pub struct LocalWindow<'a, 'm, S: Shootdown, L> {
    maps: &'a LocalMaps<'m, S, L>,
    stack: &'a Stack,
    pin: &'a Pinned<'a>,
}

// SAFETY: it is for memory that is handed out frame by frame. 1. a slot shows the whole frame while
// its guard lives. 2. slots of one frame reach the same frame. 3. the offset of `at` in its frame is
// added by shifting the base, and slots are as aligned as frames.
unsafe impl<'m, S: Shootdown, L: Slots> Window for LocalWindow<'_, 'm, S, L> {
    type Guard<'a>
        = LocalGuard<'a, 'm, S, L>
    where
        Self: 'a;
    type Error = LocalError;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, LocalError> {
        let mut guard = self.maps.guard(self.pin, self.stack, at.pfn())?;
        guard.base = guard.base.wrapping_add(at.0 as usize % FRAME_SIZE);
        Ok(guard)
    }
}
