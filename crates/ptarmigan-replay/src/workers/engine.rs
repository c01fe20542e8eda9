//! Carries a program out: one worker, its CPUs, and the address spaces that it has in hand.
use super::idle::clear_ahead;
use super::look::{SpaceLook, When};
use super::machine::{ReplayMachine, ReplayMmu};
use super::outcome::{Outcome, Sample};
use super::progress::{Cancelled, Progress};
use super::spaces::WorkerSpaces;
use super::step::{FailedStep, StepError};
use super::watch::Watch;
use crate::input::schedule::{Op, Program};
use crate::input::trace::{PackedEvent, PackedKind, Trace};
use crate::linux::{
    Blocks, CallError, HugeFaults, PAGE, begin, call, ends_unknown, follow_advice, forked, huge_only,
    is_found, is_huge_only, refused, tables_of,
};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::cpu::{CpuId, NodeId};
use ptarmigan::format::Format;
use ptarmigan::frames::NoFrame;
use ptarmigan::machine::On;
use ptarmigan::page::Level;
use ptarmigan::space::{
    Access, Area, AreaFlags, Done, EmptyTables, FaultError, Space, SpaceMachine, SpaceMut, SpaceRef,
};
use ptarmigan_hosted::{CpuSlot, Host};
use ptarmigan_trace::{FaultFlags, Kind};

/// One worker.
pub struct Engine<'a, 'w, F: Format, M> {
    /// The machine.
    pub m: &'a M,
    /// The host of the machine.
    pub host: &'a Host<F>,
    /// The worker's CPUs.
    pub slots: Vec<CpuSlot>,
    /// The trace.
    pub trace: &'a Trace,
    /// The address spaces as this worker sees them.
    pub spaces: WorkerSpaces<'a, F>,
    /// Its number in the crew.
    pub worker: usize,
    /// The number of the worker that programs call worker 0.
    pub first_worker: usize,
    /// Whether other workers use the same spaces, so that their CPUs may send flush requests to
    /// this worker's CPUs.
    pub crewed: bool,
    /// The progress of all workers.
    pub progress: &'a Progress,
    /// Whether to continue when memory runs out.
    pub keep_going: bool,
    /// Frames that an idle CPU clears ahead of need.
    pub idle_zero: u32,
    /// Whether spaces have large pages where the recorded ones had.
    pub large_pages: bool,
    /// The empty tables that spaces give back.
    pub empty_tables: EmptyTables,
    /// The blocks of pages that a fault on anonymous memory maps.
    pub blocks: Blocks,
    /// The observer, if there is one.
    pub watch: Option<&'w mut (dyn Watch + Send + 'w)>,
    /// The results so far.
    pub outcome: Outcome,
}

impl<F: Format, M: ReplayMachine<F>> Engine<'_, '_, F, M> {
    /// Executes `program`. Calls `tick` now and then with the number of operations since the
    /// previous call.
    ///
    /// # Errors
    /// [`FailedStep`] names the step that ended the program early.
    pub fn run(&mut self, program: &Program, tick: &dyn Fn(u64)) -> Result<(), FailedStep> {
        const TICK: usize = 1 << 16;
        if let Some(watch) = &mut self.watch {
            watch.starts();
        }
        for (n, part) in program.ops.chunks(TICK).enumerate() {
            for (at, op) in (n * TICK..).zip(part) {
                if self.crewed {
                    self.serve();
                }
                if let Err(error) = self.step(*op) {
                    self.failed(program.origins[at], error)?;
                }
                if let Some(watch) = &mut self.watch {
                    watch.done(at);
                }
            }
            tick(part.len() as u64);
            if self.progress.is_stopped() {
                let event = program.origins[n * TICK];
                return Err(FailedStep { event, error: StepError::Cancelled });
            }
        }
        Ok(())
    }

    /// Answers the flush requests to this worker's CPUs.
    #[inline]
    fn serve(&self) {
        for slot in &self.slots {
            self.m.tlb().serve(&slot.pin());
        }
    }

    /// Waits until another worker reaches a milestone. While this worker sleeps its CPUs are
    /// vacant, and CPUs with flush requests for them carry these out themselves.
    #[cold]
    fn wait(&mut self, other: usize, milestone: u32) -> Result<(), Cancelled> {
        if !self.progress.spin(other, milestone, || self.serve()) {
            let cpus: Vec<usize> = self.slots.iter().map(|slot| usize::from(slot.cpu().0)).collect();
            self.slots.clear();
            self.progress.sleep(other, milestone);
            for cpu in cpus {
                self.slots.push(loop {
                    match self.host.slot(cpu) {
                        Some(slot) => break slot,
                        None => std::thread::yield_now(),
                    }
                });
            }
        }
        if self.progress.is_reached(other, milestone) { Ok(()) } else { Err(Cancelled) }
    }

    /// Counts a failed call. Any other failed step ends the program.
    #[cold]
    fn failed(&mut self, event: u32, error: StepError) -> Result<(), FailedStep> {
        if let StepError::Call(call) = &error {
            let task = self.trace.steps[event as usize].task;
            self.outcome.note(event, task, call);
            if self.keep_going || !matches!(call, CallError::NoFrame(_)) {
                return Ok(());
            }
        }
        Err(FailedStep { event, error })
    }

    #[inline]
    fn step(&mut self, op: Op) -> Result<(), StepError> {
        if self.watch.is_some() {
            self.before(&op)?;
        }
        match op {
            Op::Fault { page, space, slot, flags } => self.fault(page, space, slot, flags),
            op => self.other(op),
        }?;
        if self.watch.is_none() {
            return Ok(());
        }
        self.look(&op, When::Made)?;
        self.look(&op, When::After)
    }

    /// Tells the observer that an operation begins, and shows it the space.
    fn before(&mut self, op: &Op) -> Result<(), StepError> {
        if !matches!(op, Op::Wait { .. } | Op::Milestone)
            && let Some(watch) = &mut self.watch
        {
            watch.begins();
        }
        self.look(op, When::Before)
    }

    /// Shows the observer the space of an operation.
    fn look(&mut self, op: &Op, when: When) -> Result<(), StepError> {
        let Some(watch) = self.watch.as_mut().filter(|watch| watch.looks(op, when)) else { return Ok(()) };
        let (space, slot) = match *op {
            Op::Fork { child, slot, .. } if when == When::Made => (child, slot),
            Op::Exec { next, slot, .. } if when == When::Made => (next, slot),
            _ if when == When::Made => return Ok(()),
            Op::Fault { space, slot, .. }
            | Op::Call { space, slot, .. }
            | Op::Fork { space, slot, .. }
            | Op::Exec { space, slot, .. }
            | Op::Exit { space, slot, .. } => (space, slot),
            _ => return Ok(()),
        };
        let pin = self.slots[usize::from(slot)].pin();
        if let Some(SpaceRef::Own(space)) = self.spaces.get(space)? {
            watch.look(op, when, &SpaceLook { space, on: self.m.on(&pin)? });
        }
        Ok(())
    }

    #[inline]
    fn fault(&mut self, page: u64, space: u32, slot: u16, flags: FaultFlags) -> Result<(), StepError> {
        let Some(mut space) = self.spaces.get(space)? else {
            self.outcome.skipped += 1;
            return Ok(());
        };
        let slot = &self.slots[usize::from(slot)];
        let pin = slot.pin();
        let on = self.m.on(&pin)?;
        let (cpu, va) = (slot.cpu(), VirtAddr(page << PAGE));
        let write = flags.0 & FaultFlags::WRITE != 0
            || flags.may_write(self.trace.access_unknown)
                && is_written(space.edit(on, |edit| edit.area(va))?);
        let access = access(write, flags);
        if flags.0 & FaultFlags::REFUSED != 0
            && space.edit(on, |edit| edit.area(va))?.is_some_and(|area| allows(&area, access))
        {
            self.outcome.refused += 1;
            return Ok(space.edit(on, |mut edit| refused(&mut edit, va, access))??);
        }
        if self.trace.huge_only && space.edit(on, |edit| edit.area(va))?.is_some_and(|a| is_huge_only(&a)) {
            return Ok(space.edit(on, |mut edit| huge_only(&mut edit, va))??);
        }
        let huge = self.trace.huge;
        let tables = match huge {
            HugeFaults::Never => 0,
            _ => space.edit(on, |edit| edit.tree().count(Level::PTE))?,
        };
        let result = space.fault(on, va, access);
        if let Err(FaultError::BeyondObject(_)) = result {
            space.edit(on, |mut edit| refused(&mut edit, va, access))??;
        }
        if huge != HugeFaults::Never && result.is_ok() {
            space.edit(on, |mut edit| {
                let made = edit.tree().count(Level::PTE) > tables;
                if made && edit.area(va).is_some_and(|area| huge.prepares(&area, va.0, access)) {
                    edit.copy_on_fork(va)?;
                }
                Ok::<_, CallError>(())
            })??;
        }
        let block = match result {
            Ok(Done::Fresh) if !self.blocks.is_empty() => map_block(self.blocks, &mut space, on, va)?,
            _ => None,
        };
        if M::Mmu::REFILLS && result.is_ok() {
            let hash = |entry: &dyn Fn() -> _| self.m.mmu().refill(usize::from(cpu.0), va.0, access, entry);
            match space {
                SpaceRef::Own(space) => {
                    let tree = space.tree().on(on)?;
                    hash(&|| tree.refill(va, access));
                }
                SpaceRef::Shared(space) => space.refill(on, va, access, hash)?,
            }
        }
        self.served(result, cpu, va.0, access)?;
        if let Some((size, block)) = block {
            self.outcome.blocks[size] += 1;
            if let Some(watch) = &mut self.watch {
                watch.block(block);
            }
        }
        Ok(())
    }

    #[inline]
    fn served(
        &mut self,
        result: Result<Done, FaultError>,
        cpu: CpuId,
        va: u64,
        access: Access,
    ) -> Result<(), StepError> {
        match result {
            Ok(done) => {
                self.outcome.large_pages += u64::from(done == Done::Large);
                self.outcome.found_mapped += u64::from(done == Done::Spurious);
                if let Some(watch) = &mut self.watch {
                    watch.served(usize::from(cpu.0), va, access, done);
                }
            }
            Err(FaultError::NoFrame(e)) => return Err(e.into()),
            Err(_) => self.outcome.outside += 1,
        }
        Ok(())
    }

    fn other(&mut self, op: Op) -> Result<(), StepError> {
        match op {
            Op::Fault { .. } => {}
            Op::Call { rare, space, slot } => self.call(rare, space, slot)?,
            Op::Truth { event, space, slot } => {
                let Some(mut space) = self.spaces.get(space)? else {
                    self.outcome.skipped += 1;
                    return Ok(());
                };
                let pin = self.slots[usize::from(slot)].pin();
                let own = space.edit(self.m.on(&pin)?, |edit| counted_tables(&edit))?;
                self.compare(event, own);
            }
            Op::Fork { space, child, slot } => self.fork(space, child, slot)?,
            Op::Exec { rare, space, next, slot, last } => self.exec(rare, space, next, slot, last)?,
            Op::Exit { space, slot, last } => self.exit(space, slot, last)?,
            Op::Enter { space, slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                if let Some(space) = self.spaces.get(space)? {
                    space.activate(self.m.on(&pin)?)?;
                }
            }
            Op::Leave { space, slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                if let Some(space) = self.spaces.get(space)? {
                    space.deactivate(self.m.on(&pin)?)?;
                }
            }
            Op::Rest { space, slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                if let Some(space) = self.spaces.get(space)? {
                    space.rest(self.m.on(&pin)?)?;
                }
            }
            Op::Idle { slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                let on = self.m.on(&pin)?;
                on.idle();
                if self.idle_zero > 0 {
                    self.outcome.ahead += clear_ahead(on, self.idle_zero);
                }
            }
            Op::Claim { space } => self.spaces.claim(space)?,
            Op::Release { space } => self.spaces.release(space)?,
            Op::Share { space } => self.spaces.share(space)?,
            Op::Attach { space } => self.spaces.attach(space),
            Op::Detach { space } => self.spaces.detach(space),
            Op::Wait { worker, milestone } => {
                let other = self.first_worker + usize::from(worker);
                if !self.progress.is_reached(other, milestone) {
                    self.wait(other, milestone)?;
                }
            }
            Op::Milestone => self.progress.advance(self.worker),
        }
        Ok(())
    }

    fn call(&mut self, rare: u32, space: u32, slot: u16) -> Result<(), StepError> {
        let kind = self.trace.rare[rare as usize];
        let pin = self.slots[usize::from(slot)].pin();
        let on = self.m.on(&pin)?;
        let found = matches!(kind, Kind::Touched { flags, .. } if is_found(flags));
        let frames = on.frames();
        let all = || (0..frames.nodes()).map(|node| u64::from(frames.node_frames(NodeId(node)))).sum::<u64>();
        // The error names a power of two.
        let none = |tables: u64| {
            let order = tables.checked_next_power_of_two().map_or(63, u64::trailing_zeros) as u8;
            CallError::NoFrame(NoFrame::new(order.min(63), NodeId(0), frames.node_free(NodeId(0))))
        };
        let large_pages = self.large_pages;
        let Some(mut space) = self.spaces.get(space)? else {
            self.outcome.skipped += 1;
            return Ok(());
        };
        let (made, unknown) = space.edit(on, |mut edit| {
            let before = counted_tables(&edit);
            let tables = tables_of(&edit, kind);
            if tables > all() {
                return Err(none(tables));
            }
            let unknown = ends_unknown(&edit, kind);
            call(&mut edit, kind)?;
            if large_pages {
                follow_advice(&mut edit, kind)?;
            }
            let made = if found { counted_tables(&edit).abs_diff(before) } else { 0 };
            Ok((made, unknown))
        })??;
        self.outcome.found += u64::from(made);
        self.outcome.ends_unknown += u64::from(unknown);
        Ok(())
    }

    fn fork(&mut self, space: u32, child: u32, slot: u16) -> Result<(), StepError> {
        let pin = self.slots[usize::from(slot)].pin();
        let on = self.m.on(&pin)?;
        let Some(mut space) = self.spaces.get(space)? else {
            self.outcome.skipped += 1;
            return Ok(());
        };
        let copy = space.edit(on, |mut edit| edit.fork())?;
        let mut copy = Box::new(copy.map_err(StepError::from)?);
        // The copy is the child's, whatever comes of this.
        let result = if self.trace.locks { forked(&mut copy.edit(on)?) } else { Ok(()) };
        *self.spaces.own(child)? = Some(copy);
        Ok(result?)
    }

    fn exec(&mut self, rare: u32, space: u32, next: u32, slot: u16, last: bool) -> Result<(), StepError> {
        let Kind::Exec { stack_end, arg_pages } = self.trace.rare[rare as usize] else { return Ok(()) };
        let pin = self.slots[usize::from(slot)].pin();
        let on = self.m.on(&pin)?;
        // The new space is there before the old one goes.
        let end = stack_end << PAGE;
        let pages = (u64::from(arg_pages) << PAGE).div_ceil(1 << F::PAGE_SHIFT);
        let stack = VirtRange::new(end.saturating_sub(pages.max(1) << F::PAGE_SHIFT), end)?;
        let mut made = Space::exec(on, VirtAddr(end), pages);
        if let Ok(space) = &mut made {
            let huge = self.large_pages.then_some(self.trace.huge);
            begin(&mut space.edit(on)?, self.empty_tables, huge);
        }
        let written = made.as_ref().map_or(Ok(()), |space| self.m.arguments(on, space, stack));
        self.exit(space, slot, last)?;
        *self.spaces.own(next)? = Some(Box::new(made.map_err(StepError::from)?));
        Ok(written?)
    }

    /// Removes a task from its space. The last task ends the space.
    fn exit(&mut self, space: u32, slot: u16, last: bool) -> Result<(), StepError> {
        if self.spaces.get(space)?.is_none() {
            self.outcome.skipped += 1;
        } else if last && let Some(space) = self.spaces.remove(space)? {
            let pin = self.slots[usize::from(slot)].pin();
            space.end(self.m.on(&pin)?).map_err(|refused| refused.error)?;
        }
        Ok(())
    }

    fn compare(&mut self, event: u32, own: u32) {
        let PackedEvent { task, what: PackedKind::Rare(rare), .. } = self.trace.steps[event as usize] else {
            return;
        };
        let Kind::Truth { tables: linux, at } = self.trace.rare[rare as usize] else { return };
        // The library's count comes before Linux's.
        self.outcome.checked += 1;
        if own == linux {
            self.outcome.equal += 1;
        } else {
            self.outcome.differing.push(Sample { event, task, own, linux, at });
        }
    }
}

/// Maps the rest of the block around the page at `va`, which has just been mapped for a write, if
/// the recorded machine did so. Returns the size of the block, and the block.
#[cold]
fn map_block<F: Format, M: SpaceMachine>(
    blocks: Blocks,
    space: &mut SpaceRef<'_, F>,
    on: On<'_, M>,
    va: VirtAddr,
) -> Result<Option<(usize, VirtRange)>, StepError> {
    let found = space.edit(on, |edit| {
        let area = edit.area(va)?;
        blocks.around(&area, va.0, |range| {
            let mut pages = 0;
            let walked = edit.tree().walk(on, range, |_, _, _| pages += 1);
            debug_assert!(walked.is_ok(), "the space is of this machine");
            pages > 1
        })
    })?;
    let Some((size, block)) = found else { return Ok(None) };
    for page in (block.start..block.end).step_by(1 << PAGE).filter(|page| *page != va.0) {
        match space.fault(on, VirtAddr(page), Access::Write) {
            Err(FaultError::NoFrame(e)) => return Err(e.into()),
            mapped => debug_assert!(mapped.is_ok(), "the area holds the block"),
        }
    }
    Ok(Some((size, block)))
}

/// Returns the tables of a space as Linux counts them: those below the root, and the table that it
/// keeps in reserve for each huge page.
fn counted_tables<F: Format, M: SpaceMachine>(space: &SpaceMut<'_, F, M>) -> u32 {
    space.tree().tables_below_root() + space.reserved_tables()
}

/// Returns the access of a recorded fault.
#[inline]
fn access(write: bool, flags: FaultFlags) -> Access {
    match write {
        true => Access::Write,
        false if flags.0 & FaultFlags::EXEC != 0 => Access::Exec,
        false => Access::Read,
    }
}

/// Whether an area allows an access.
fn allows(area: &Area, access: Access) -> bool {
    match access {
        Access::Write => area.flags.has(AreaFlags::WRITE),
        Access::Read => area.flags.0 & AreaFlags::PERMISSIONS.0 != 0,
        Access::Exec => area.flags.has(AreaFlags::EXEC),
    }
}

/// Whether a fault at `area` was a write, where the recording does not say.
fn is_written(area: Option<Area>) -> bool {
    area.is_some_and(|area| area.flags.has(AreaFlags::WRITE) && !area.flags.has(AreaFlags::SHARED))
}
