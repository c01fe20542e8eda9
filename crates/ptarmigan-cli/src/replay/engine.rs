//! Carries a program out: one worker, its CPUs, and the address spaces that it has in hand.
use super::calls::{Alone, PAGE, call};
use super::cells::NotMine;
use super::events::{Loaded, Step, What};
use super::outcome::{Outcome, Sample, Trouble};
use super::relay::{Relay, Told};
use super::schedule::{Op, Program};
use super::spaces::{Held, Of};
use super::watch::Watch;
use super::zero::clear_ahead;
use ptarmigan::addr::VirtAddr;
use ptarmigan::cpu::CpuId;
use ptarmigan::format::Format;
use ptarmigan::hosted::{CpuSlot, Host};
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, Area, AreaFlags, Done, FaultError, Space, SpaceMachine};
use ptarmigan_trace::{FaultFlags, Kind};

/// Why a worker did not come to the end of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Memory ran out, and the replay was not asked to go on.
    NoMemory,
    /// Another worker stopped.
    Told,
    /// A space was not this worker's at this event of the trace: the schedule is wrong.
    NotMine {
        /// The event.
        event: u32,
    },
}

/// One worker.
pub struct Engine<'a, F: Format, M, W> {
    /// The machine.
    pub m: &'a M,
    /// The host that the machine is made of.
    pub host: &'a Host<F>,
    /// The worker's CPUs.
    pub slots: Vec<CpuSlot>,
    /// The trace.
    pub trace: &'a Loaded,
    /// The spaces.
    pub spaces: Held<'a, F>,
    /// Its number in the crew.
    pub worker: usize,
    /// The number that programs call worker 0.
    pub first_worker: usize,
    /// Other workers use the same spaces: their CPUs may ask this one's to forget something.
    pub crewed: bool,
    /// The crew.
    pub relay: &'a Relay,
    /// Whether to go on when memory has run out.
    pub keep_going: bool,
    /// Frames that an idle CPU clears ahead.
    pub idle_zero: u32,
    /// Who looks on.
    pub watch: W,
    /// What has come of it.
    pub outcome: Outcome,
}

/// What came in the way of one thing.
enum Hitch {
    Trouble(Trouble),
    NotMine,
    Told,
}

impl From<Trouble> for Hitch {
    fn from(trouble: Trouble) -> Self {
        Hitch::Trouble(trouble)
    }
}

impl From<NotMine> for Hitch {
    fn from(_: NotMine) -> Self {
        Hitch::NotMine
    }
}

impl From<Told> for Hitch {
    fn from(_: Told) -> Self {
        Hitch::Told
    }
}

impl<F: Format, M: SpaceMachine, W: Watch> Engine<'_, F, M, W> {
    /// Carries `program` out; `tick` is called now and then with the number of things done since it was called last.
    ///
    /// # Errors
    /// [`Stopped`] says why it did not come to the end.
    pub fn run(&mut self, program: &Program, tick: impl Fn(u64)) -> Result<(), Stopped> {
        const TICK: usize = 1 << 16;
        for (n, part) in program.ops.chunks(TICK).enumerate() {
            for (at, op) in (n * TICK..).zip(part) {
                if self.crewed {
                    self.serve();
                }
                if let Err(hitch) = self.step(*op) {
                    self.hitch(hitch, program.origins[at])?;
                }
                self.watch.done(at);
            }
            tick(part.len() as u64);
            if self.relay.is_stopped() {
                return Err(Stopped::Told);
            }
        }
        Ok(())
    }

    /// Forgets what other CPUs ask this worker's to forget.
    #[inline(always)]
    fn serve(&self) {
        for slot in &self.slots {
            self.m.tlb().serve(&slot.pin());
        }
    }

    /// Waits until another worker has reached a post. While it sleeps, the CPUs are nobody's: whoever asks them to
    /// forget something does it for them.
    #[cold]
    fn wait(&mut self, other: usize, posts: u32) -> Result<(), Told> {
        if !self.relay.look(other, posts, || self.serve()) {
            let cpus: Vec<usize> = self.slots.iter().map(|slot| usize::from(slot.cpu().0)).collect();
            self.slots.clear();
            self.relay.sleep(other, posts);
            for cpu in cpus {
                self.slots.push(loop {
                    match self.host.slot(cpu) {
                        Some(slot) => break slot,
                        None => std::thread::yield_now(),
                    }
                });
            }
        }
        if self.relay.is_reached(other, posts) { Ok(()) } else { Err(Told) }
    }

    #[cold]
    fn hitch(&mut self, hitch: Hitch, event: u32) -> Result<(), Stopped> {
        match hitch {
            Hitch::Told => Err(Stopped::Told),
            Hitch::NotMine => Err(Stopped::NotMine { event }),
            Hitch::Trouble(trouble) => {
                let task = self.trace.steps[event as usize].task;
                let no_memory = self.outcome.note(event, task, trouble);
                if no_memory && !self.keep_going { Err(Stopped::NoMemory) } else { Ok(()) }
            }
        }
    }

    #[inline(always)]
    fn step(&mut self, op: Op) -> Result<(), Hitch> {
        if !matches!(op, Op::Wait { .. } | Op::Post) {
            self.watch.begins();
        }
        match op {
            Op::Fault { page, space, slot, flags } => self.fault(page, space, slot, flags),
            op => self.other(op),
        }
    }

    #[inline(always)]
    fn fault(&mut self, page: u64, space: u32, slot: u16, flags: FaultFlags) -> Result<(), Hitch> {
        let Ok(own) = self.spaces.own(space) else {
            return self.fault_shared(page, space, slot, flags);
        };
        let Some(space) = own else {
            self.outcome.skipped += 1;
            return Ok(());
        };
        let va = page << PAGE;
        let write = flags.0 & FaultFlags::WRITE != 0
            || self.trace.access_unknown && is_written(space.areas().find(self.m, va));
        let access = if write { Access::Write } else { Access::Read };
        let slot = &self.slots[usize::from(slot)];
        let result = space.fault(self.m, &slot.pin(), VirtAddr(va), access);
        self.served(result, slot.cpu(), va, access)
    }

    #[inline(never)]
    fn fault_shared(&mut self, page: u64, space: u32, slot: u16, flags: FaultFlags) -> Result<(), Hitch> {
        let Of::Shared(space) = self.spaces.get(space)? else {
            self.outcome.skipped += 1;
            return Ok(());
        };
        let va = page << PAGE;
        let slot = &self.slots[usize::from(slot)];
        let pin = slot.pin();
        let write = flags.0 & FaultFlags::WRITE != 0
            || self.trace.access_unknown && is_written(space.lock(self.m, &pin).area(VirtAddr(va)));
        let access = if write { Access::Write } else { Access::Read };
        let result = space.fault(self.m, &pin, VirtAddr(va), access);
        self.served(result, slot.cpu(), va, access)
    }

    #[inline(always)]
    fn served(
        &mut self,
        result: Result<Done, FaultError>,
        cpu: CpuId,
        va: u64,
        access: Access,
    ) -> Result<(), Hitch> {
        match result {
            Ok(_) => self.watch.served(usize::from(cpu.0), va, access),
            Err(FaultError::NoFrame(e)) => return Err(Trouble::NoFrame(e).into()),
            Err(_) => self.outcome.outside += 1,
        }
        Ok(())
    }

    fn other(&mut self, op: Op) -> Result<(), Hitch> {
        match op {
            Op::Fault { .. } => {}
            Op::Call { rare, space, slot } => self.call(rare, space, slot)?,
            Op::Truth { event, space, slot } => {
                let own = match self.spaces.get(space)? {
                    Of::Own(space) => space.tree().tables_below_top(),
                    Of::Shared(space) => {
                        let pin = self.slots[usize::from(slot)].pin();
                        space.lock(self.m, &pin).tree().tables_below_top()
                    }
                    Of::Nothing => {
                        self.outcome.skipped += 1;
                        return Ok(());
                    }
                };
                self.compare(event, own);
            }
            Op::Fork { space, child, slot } => self.fork(space, child, slot)?,
            Op::Exec { rare, space, next, slot, last } => self.exec(rare, space, next, slot, last)?,
            Op::Exit { space, slot, last } => self.exit(space, slot, last)?,
            Op::Enter { space, slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                match self.spaces.get(space)? {
                    Of::Own(space) => space.activate(self.m, &pin),
                    Of::Shared(space) => space.activate(self.m, &pin),
                    Of::Nothing => {}
                }
            }
            Op::Leave { space, slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                match self.spaces.get(space)? {
                    Of::Own(space) => space.deactivate(self.m, &pin),
                    Of::Shared(space) => space.deactivate(self.m, &pin),
                    Of::Nothing => {}
                }
            }
            Op::Rest { space, slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                match self.spaces.get(space)? {
                    Of::Own(space) => space.rest(self.m, &pin),
                    Of::Shared(space) => space.rest(self.m, &pin),
                    Of::Nothing => {}
                }
            }
            Op::Idle { slot } => {
                let pin = self.slots[usize::from(slot)].pin();
                self.m.policy().idle(&pin);
                if self.idle_zero > 0 {
                    self.outcome.ahead += clear_ahead(self.m, &pin, self.idle_zero);
                }
            }
            Op::Take { space } => self.spaces.take(space)?,
            Op::Give { space } => self.spaces.give(space)?,
            Op::Share { space } => self.spaces.share(space)?,
            Op::Join { space } => self.spaces.join(space),
            Op::Part { space } => self.spaces.part(space),
            Op::Wait { worker, posts } => {
                let other = self.first_worker + usize::from(worker);
                if !self.relay.is_reached(other, posts) {
                    self.wait(other, posts)?;
                }
            }
            Op::Post => self.relay.post(self.worker),
        }
        Ok(())
    }

    fn call(&mut self, rare: u32, space: u32, slot: u16) -> Result<(), Hitch> {
        let kind = self.trace.rare[rare as usize];
        let (m, pin) = (self.m, &self.slots[usize::from(slot)].pin());
        match self.spaces.get(space)? {
            Of::Own(space) => call(&mut Alone { m, pin, space }, kind)?,
            Of::Shared(space) => call(&mut space.lock(m, pin), kind)?,
            Of::Nothing => self.outcome.skipped += 1,
        }
        Ok(())
    }

    fn fork(&mut self, space: u32, child: u32, slot: u16) -> Result<(), Hitch> {
        let pin = self.slots[usize::from(slot)].pin();
        let copy = match self.spaces.get(space)? {
            Of::Own(space) => space.fork(self.m, &pin),
            Of::Shared(space) => space.lock(self.m, &pin).fork(),
            Of::Nothing => {
                self.outcome.skipped += 1;
                return Ok(());
            }
        };
        *self.spaces.own(child)? = Some(Box::new(copy.map_err(Trouble::from)?));
        Ok(())
    }

    fn exec(&mut self, rare: u32, space: u32, next: u32, slot: u16, last: bool) -> Result<(), Hitch> {
        let Kind::Exec { stack_end, arg_pages } = self.trace.rare[rare as usize] else { return Ok(()) };
        let pin = self.slots[usize::from(slot)].pin();
        // The new space is there before the old one goes.
        let made = Space::exec(self.m, &pin, VirtAddr(stack_end << PAGE), u64::from(arg_pages));
        self.exit(space, slot, last)?;
        *self.spaces.own(next)? = Some(Box::new(made.map_err(Trouble::from)?));
        Ok(())
    }

    /// A task leaves its space; the last one ends it.
    fn exit(&mut self, space: u32, slot: u16, last: bool) -> Result<(), Hitch> {
        if let Of::Nothing = self.spaces.get(space)? {
            self.outcome.skipped += 1;
        } else if last && let Some(space) = self.spaces.remove(space)? {
            space.end(self.m, &self.slots[usize::from(slot)].pin());
        }
        Ok(())
    }

    fn compare(&mut self, event: u32, own: u32) {
        let Step { task, what: What::Rare(rare), .. } = self.trace.steps[event as usize] else { return };
        let Kind::Truth { tables: linux, at } = self.trace.rare[rare as usize] else { return };
        // Our own count comes first.
        self.outcome.checked += 1;
        if own == linux {
            self.outcome.equal += 1;
        } else {
            self.outcome.differing.push(Sample { event, task, own, linux, at });
        }
    }
}

/// Whether a fault at `area` was a write, where the recording does not say.
fn is_written(area: Option<Area>) -> bool {
    area.is_some_and(|area| area.flags.has(AreaFlags::WRITE) && !area.flags.has(AreaFlags::SHARED))
}
