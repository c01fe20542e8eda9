//! Replays a trace on a machine: tasks, their address spaces, and which CPU has which of them loaded.
//!
//! The order is that of the recording, on one worker; recorded CPUs are logical CPUs with lists and a TLB of their
//! own.
use super::events::{Loaded, Step, What};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::frames::NoFrame;
use ptarmigan::hosted::CpuSlot;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, Advice, AreaError, AreaFlags, FaultError, Space, SpaceMachine};
use ptarmigan::tlb::SpaceId;
use ptarmigan_trace::{AreaKind, CloneKind, FaultFlags, Kind, MapFlags, Prot, Sampled};

/// Sees what happens as it happens; [`Unwatched`] sees nothing and costs nothing.
pub trait Watch {
    /// A fault has been served.
    fn served(&mut self, cpu: usize, va: u64, access: Access);
    /// An event is done.
    fn event(&mut self) {}
}

/// Nobody watches.
pub struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn served(&mut self, _: usize, _: u64, _: Access) {}
}

/// How a sample of Linux's count compared.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The task it was taken of.
    pub task: u32,
    /// Our count of tables, the top not included.
    pub own: u32,
    /// Linux's.
    pub linux: u32,
    /// When.
    pub at: Sampled,
}

/// What came of a replay.
#[derive(Default)]
pub struct Outcome {
    /// Samples compared.
    pub checked: u64,
    /// Those that were equal.
    pub equal: u64,
    /// Those that were not.
    pub differing: Vec<Sample>,
    /// Faults where there was no area, or one that did not allow it: in the recording, signals mostly.
    pub outside: u64,
    /// Calls that asked for something impossible here.
    pub odd: u64,
    /// The first of them.
    pub first_odd: Option<String>,
    /// Events of tasks that have no space because there was no memory for it.
    pub skipped: u64,
    /// Times that memory ran out.
    pub out_of_memory: u64,
    /// The first of them: task, event, reason.
    pub first_out_of_memory: Option<(u32, u64, NoFrame)>,
}

struct Entry<F: Format> {
    space: Space<F>,
    /// Tasks that use it.
    users: u32,
}

#[derive(Clone, Copy, Default)]
struct Current {
    /// What the CPU has loaded.
    space: Option<u32>,
    /// It runs nothing of it.
    lazy: bool,
}

/// The state of a replay.
pub struct Engine<'a, F: Format, M, W> {
    m: &'a M,
    slots: &'a [CpuSlot],
    /// The space of each task.
    tasks: Vec<Option<u32>>,
    spaces: Vec<Option<Entry<F>>>,
    free: Vec<u32>,
    current: Vec<Current>,
    next_id: u32,
    event: u64,
    keep_going: bool,
    watch: W,
    outcome: Outcome,
}

/// Memory ran out and the replay was not asked to go on.
pub struct Stopped;

/// Why an event could not be replayed.
enum Trouble {
    NoFrame(NoFrame),
    Odd(String),
}

impl From<AreaError> for Trouble {
    fn from(e: AreaError) -> Self {
        match e {
            AreaError::NoFrame(e) => Trouble::NoFrame(e),
            e => Trouble::Odd(e.to_string()),
        }
    }
}

impl From<NoFrame> for Trouble {
    fn from(e: NoFrame) -> Self {
        Trouble::NoFrame(e)
    }
}

const PAGE: u32 = 12;

fn range(start: u64, pages: u64) -> VirtRange {
    VirtRange { start: start << PAGE, end: start.saturating_add(pages) << PAGE }
}

fn permissions(prot: Prot) -> AreaFlags {
    // Both number them alike.
    AreaFlags(u16::from(prot.0) & AreaFlags::PERMISSIONS.0)
}

impl<'a, F: Format, M: SpaceMachine, W: Watch> Engine<'a, F, M, W> {
    /// A machine with one task, the recorded command, in an empty space.
    ///
    /// # Errors
    /// If there is no memory for that.
    pub fn new(
        m: &'a M,
        slots: &'a [CpuSlot],
        trace: &Loaded,
        keep_going: bool,
        watch: W,
    ) -> Result<Self, NoFrame> {
        let mut engine = Engine {
            m,
            slots,
            tasks: vec![None; trace.tasks as usize],
            spaces: Vec::new(),
            free: Vec::new(),
            current: vec![Current::default(); slots.len()],
            next_id: 0,
            event: 0,
            keep_going,
            watch,
            outcome: Outcome::default(),
        };
        let id = engine.id();
        let first = Space::new(m, &slots[0].pin(), id)?;
        engine.tasks[0] = Some(engine.add(first));
        Ok(engine)
    }

    fn id(&mut self) -> SpaceId {
        self.next_id += 1;
        SpaceId(self.next_id)
    }

    fn add(&mut self, space: Space<F>) -> u32 {
        let entry = Some(Entry { space, users: 1 });
        match self.free.pop() {
            Some(at) => {
                self.spaces[at as usize] = entry;
                at
            }
            None => {
                self.spaces.push(entry);
                (self.spaces.len() - 1) as u32
            }
        }
    }

    /// Replays all of `trace`, then ends what has not ended; `tick` is called now and then with the number of steps
    /// done.
    ///
    /// # Errors
    /// [`Stopped`] if memory ran out, with everything taken down, too; [`Outcome`] says where.
    pub fn run(mut self, trace: &Loaded, mut tick: impl FnMut(u64)) -> (Outcome, W, Result<(), Stopped>) {
        let mut result = Ok(());
        for (n, step) in trace.steps.iter().enumerate() {
            self.event = n as u64;
            if let Err(stopped) = self.step(step, trace) {
                result = Err(stopped);
                break;
            }
            self.watch.event();
            if n & 0xffff == 0 {
                tick(n as u64);
            }
        }
        for at in 0..self.spaces.len() {
            if let Some(entry) = self.spaces[at].take() {
                entry.space.end(self.m, &self.slots[0].pin());
            }
        }
        (self.outcome, self.watch, result)
    }

    #[inline(always)]
    fn step(&mut self, step: &Step, trace: &Loaded) -> Result<(), Stopped> {
        let cpu = usize::from(step.cpu);
        if let What::Idle = step.what {
            self.idle(cpu);
            return Ok(());
        }
        let Some(at) = self.tasks[step.task as usize] else {
            return self.step_without_space(step, trace);
        };
        if self.current[cpu].space != Some(at) || self.current[cpu].lazy {
            self.switch(cpu, at);
        }
        let trouble = match step.what {
            What::Fault { page, flags } => self.fault(cpu, at, page, flags),
            What::Rare(n) => self.rare(cpu, at, step.task, trace.rare[n as usize]),
            What::Idle => Ok(()),
        };
        match trouble {
            Ok(()) => Ok(()),
            Err(trouble) => self.note(step.task, trouble),
        }
    }

    /// Events of a task whose space could not be made: its end, and a new start with `execve`.
    #[cold]
    fn step_without_space(&mut self, step: &Step, trace: &Loaded) -> Result<(), Stopped> {
        self.outcome.skipped += 1;
        if let What::Rare(n) = step.what
            && let Kind::Exec { stack_end, arg_pages } = trace.rare[n as usize]
            && let Err(trouble) = self.exec(usize::from(step.cpu), None, step.task, stack_end, arg_pages)
        {
            return self.note(step.task, trouble);
        }
        Ok(())
    }

    #[cold]
    fn note(&mut self, task: u32, trouble: Trouble) -> Result<(), Stopped> {
        match trouble {
            Trouble::Odd(what) => {
                self.outcome.odd += 1;
                let event = self.event;
                self.outcome.first_odd.get_or_insert_with(|| format!("event {event}, task {task}: {what}"));
                Ok(())
            }
            Trouble::NoFrame(e) => {
                self.outcome.out_of_memory += 1;
                self.outcome.first_out_of_memory.get_or_insert((task, self.event, e));
                if self.keep_going { Ok(()) } else { Err(Stopped) }
            }
        }
    }

    fn switch(&mut self, cpu: usize, to: u32) {
        let pin = self.slots[cpu].pin();
        let current = self.current[cpu];
        if current.space != Some(to)
            && let Some(from) = current.space
            && let Some(entry) = &self.spaces[from as usize]
        {
            entry.space.deactivate(self.m, &pin);
        }
        if let Some(entry) = &self.spaces[to as usize] {
            entry.space.activate(self.m, &pin);
            self.current[cpu] = Current { space: Some(to), lazy: false };
        }
    }

    fn idle(&mut self, cpu: usize) {
        let pin = self.slots[cpu].pin();
        let current = self.current[cpu];
        if let (Some(at), false) = (current.space, current.lazy)
            && let Some(entry) = &self.spaces[at as usize]
        {
            entry.space.rest(self.m, &pin);
            self.current[cpu].lazy = true;
        }
        self.m.policy().idle(&pin);
    }

    #[inline(always)]
    fn fault(&mut self, cpu: usize, at: u32, page: u64, flags: FaultFlags) -> Result<(), Trouble> {
        let Some(entry) = &mut self.spaces[at as usize] else { return Ok(()) };
        let va = page << PAGE;
        let access = if flags.0 & FaultFlags::WRITE != 0 { Access::Write } else { Access::Read };
        match entry.space.fault(self.m, &self.slots[cpu].pin(), VirtAddr(va), access) {
            Ok(_) => {
                self.watch.served(cpu, va, access);
                Ok(())
            }
            Err(FaultError::NoFrame(e)) => Err(e.into()),
            Err(_) => {
                self.outcome.outside += 1;
                Ok(())
            }
        }
    }

    fn rare(&mut self, cpu: usize, at: u32, task: u32, kind: Kind) -> Result<(), Trouble> {
        let pin = self.slots[cpu].pin();
        let m = self.m;
        let Some(entry) = &mut self.spaces[at as usize] else { return Ok(()) };
        let space = &mut entry.space;
        match kind {
            Kind::Fault { .. } | Kind::Idle | Kind::TlbFlush { .. } => {}
            Kind::Clone { child, kind: CloneKind::Fork } => {
                let id = self.id();
                let Some(entry) = &mut self.spaces[at as usize] else { return Ok(()) };
                let copy = entry.space.fork(m, &pin, id)?;
                self.tasks[child as usize] = Some(self.add(copy));
            }
            Kind::Clone { child, .. } => {
                entry.users += 1;
                self.tasks[child as usize] = Some(at);
            }
            Kind::Exec { stack_end, arg_pages } => {
                return self.exec(cpu, Some(at), task, stack_end, arg_pages);
            }
            Kind::Exit { .. } => self.leave(cpu, at, task),
            Kind::Area { start, pages, prot, kind } => {
                let range = range(start, pages);
                let flags = permissions(prot);
                match kind {
                    AreaKind::Stack => space.move_stack(m, &pin, range, flags)?,
                    AreaKind::Anon => space.mmap(m, &pin, range, flags, 0)?,
                    AreaKind::File => space.mmap(m, &pin, range, flags.with(AreaFlags::BACKED), 1)?,
                    AreaKind::Special => {
                        let flags = flags.with(AreaFlags::BACKED).with(AreaFlags::SPECIAL);
                        space.mmap(m, &pin, range, flags, 1)?;
                    }
                }
            }
            Kind::Mmap { start, pages, prot, flags } => {
                let area = range(start, pages);
                let mut kind = permissions(prot);
                for (bit, to) in
                    [(MapFlags::SHARED, AreaFlags::SHARED), (MapFlags::GROWSDOWN, AreaFlags::GROWS_DOWN)]
                {
                    if flags.0 & bit != 0 {
                        kind = kind.with(to);
                    }
                }
                if flags.0 & MapFlags::ANON == 0 {
                    kind = kind.with(AreaFlags::BACKED);
                }
                let object = u32::from(kind.has(AreaFlags::BACKED) || kind.has(AreaFlags::SHARED));
                space.mmap(m, &pin, area, kind, object)?;
                if flags.0 & MapFlags::POPULATE != 0 {
                    let write = kind.has(AreaFlags::WRITE) && !kind.has(AreaFlags::SHARED);
                    space.populate(m, &pin, area, if write { Access::Write } else { Access::Read })?;
                }
            }
            Kind::Munmap { start, pages } => space.munmap(m, &pin, range(start, pages))?,
            Kind::Brk { end } => space.brk(m, &pin, VirtAddr(end << PAGE))?,
            Kind::Mremap { from, old_pages, to, new_pages, keep } => {
                space.mremap(m, &pin, range(from, old_pages), range(to, new_pages), keep)?;
            }
            Kind::Mprotect { start, pages, prot } => {
                space.mprotect(m, &pin, range(start, pages), permissions(prot))?;
            }
            Kind::Madvise { start, pages, advice } => {
                if let Some(advice) = advice_of(advice) {
                    space.madvise(m, &pin, range(start, pages), advice)?;
                }
            }
            Kind::Truth { tables, at } => {
                // Our own count comes first.
                let own = space.tree().tables_below_top();
                let linux = tables;
                self.outcome.checked += 1;
                if own == linux {
                    self.outcome.equal += 1;
                } else {
                    self.outcome.differing.push(Sample { task, own, linux, at });
                }
            }
        }
        Ok(())
    }

    fn exec(
        &mut self,
        cpu: usize,
        old: Option<u32>,
        task: u32,
        stack_end: u64,
        arg_pages: u32,
    ) -> Result<(), Trouble> {
        let pin = self.slots[cpu].pin();
        let id = self.id();
        let end = VirtAddr(stack_end << PAGE);
        // The new space is there before the old one goes.
        let made = Space::exec(self.m, &pin, id, end, u64::from(arg_pages));
        if let Some(old) = old {
            self.leave(cpu, old, task);
        }
        let at = self.add(made?);
        self.tasks[task as usize] = Some(at);
        self.switch(cpu, at);
        Ok(())
    }

    /// A task leaves its space; the last one ends it.
    fn leave(&mut self, cpu: usize, at: u32, task: u32) {
        self.tasks[task as usize] = None;
        let Some(entry) = &mut self.spaces[at as usize] else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        if let Some(entry) = self.spaces[at as usize].take() {
            entry.space.end(self.m, &self.slots[cpu].pin());
            // Its end has moved every CPU that had it loaded to another root.
            for current in &mut self.current {
                if current.space == Some(at) {
                    *current = Current::default();
                }
            }
            self.free.push(at);
        }
    }
}

/// What Linux's advice means for tables; `None` if nothing.
fn advice_of(number: u16) -> Option<Advice> {
    Some(match number {
        4 | 24 => Advice::DontNeed,
        10 => Advice::DontFork(true),
        11 => Advice::DontFork(false),
        18 => Advice::WipeOnFork(true),
        19 => Advice::WipeOnFork(false),
        22 => Advice::Populate(Access::Read),
        23 => Advice::Populate(Access::Write),
        _ => return None,
    })
}
