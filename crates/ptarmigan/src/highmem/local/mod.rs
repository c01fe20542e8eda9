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
//! was, on the same CPU ([`LocalMaps::switch_in`]). Guards that were forgotten show at the end of
//! their scope, and are an error at the next switch, which gives their slots back.
mod error;
mod guard;
mod stack;

pub use error::{LocalError, LocalSetupError, SwitchError};
pub use guard::{LocalGuard, LocalScope, LocalWindow};
pub use stack::MAX_DEPTH;

use crate::addr::Pfn;
use crate::bootmem::BootMemory;
use crate::cpu::{CpuId, PerCpu, Pinned};
use crate::frames::Frames;
use crate::highmem::slots::{MAX_SLOTS, SlotError, Slots};
use crate::tlb::{NewEntry, Runs, Shootdown, Tlb, TlbRefusal};
use crate::window::DirectMap;
use stack::{EMPTY, FORGOTTEN, LIVE, STALE, Stack};

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
    /// Makes stacks of `depth` slots for each CPU of `tlb`. CPU `c` has the slots from `c * depth`
    /// on.
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

    /// Has the CPU forget slot `at`, which is stale.
    #[inline]
    fn flush_one(&self, pin: &Pinned<'_>, stack: &Stack, at: usize) -> Result<(), TlbRefusal> {
        let page = self.slots.page(self.slot(pin.cpu(), at));
        self.tlb.flush_own_page(pin, page, self.slots.shift())?;
        stack.set_state(at, EMPTY);
        Ok(())
    }

    /// Shows `pfn` in slot `at`, which is taken and shows nothing.
    fn show(&self, pin: &Pinned<'_>, stack: &Stack, at: usize, pfn: Pfn) -> Result<(), LocalError> {
        if stack.state(at) == STALE {
            self.flush_one(pin, stack, at).map_err(LocalError::Refused)?;
        }
        let slot = self.slot(pin.cpu(), at);
        // SAFETY: 1. the CPU's own, which this code has taken from the stack. 2. it is not stale.
        // 3. the callers have found the frame among those that the slots were made for.
        let raw = unsafe { self.slots.install(slot, pfn) }.map_err(LocalError::Slot)?;
        stack.set_frame(at, pfn);
        stack.set_state(at, LIVE);
        let entry = NewEntry::of_kernel(self.slots.page(slot), self.slots.shift(), raw);
        self.tlb.entry_became_valid(pin, &entry);
        Ok(())
    }

    /// Shows nothing in slot `at` any more.
    fn hide(&self, cpu: CpuId, stack: &Stack, at: usize) -> Result<(), SlotError> {
        // SAFETY: 1. the CPU's own. 2. its guard has gone, was forgotten in a scope that has ended,
        // or is of a task that does not run (contract of `switch_out`).
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
            Ok(()) => _ = self.flush_one(pin, stack, at),
            // It shows the frame still; the next switch tries again.
            Err(_) => stack.set_state(at, FORGOTTEN),
        }
        let mut depth = stack.depth();
        while depth > 0 && stack.state(depth - 1) < LIVE {
            depth -= 1;
        }
        stack.set_depth(depth);
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
