//! Carries out the steps of a trace: on a memory, and on a sanitizer for each stage.
use super::discipline::{Discipline, Store};
use super::register::{Register, Stage};
use super::step::{Fence, Hint, Step};
use super::tlbi::{Reach, Tlbi};
use super::trace::{Entry, Trace};
use super::trees::{PAGE, Trees, linked, root_and_number};
use crate::replay::machine::Limit;
use crate::replay::memory::{END, Full, Pages};
use crate::replay::origins::Origins;
use crate::replay::recent::Origin;
use ptsan::{
    Adversary, Arch, Barrier, Config, Content, Flush, Guard, Hold, Kind, Memory, Sanitizer, TraceFrame,
};
use std::collections::{HashMap, HashSet};

/// The most bytes that one step clears or sets.
const MOST_BYTES: u64 = 1 << 26;
/// The most steps that cannot be which are kept. All are counted.
const MOST_LIES: usize = 64;
/// Bits that hardware may set: the access flag, and the dirty state below it.
const HARDWARE: u64 = 1 << 10 | 1 << 7;

/// A step that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImpossibleStep {
    pub(super) line: u64,
    pub(super) what: String,
    pub(super) instead: &'static str,
}

/// The number of steps, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCounts {
    pub(super) allocated: u64,
    pub(super) freed: u64,
    pub(super) stores: u64,
    pub(super) roots: u64,
    pub(super) invalidations: u64,
}

/// The sanitizer of a stage.
pub(super) struct Checked {
    pub(super) stage: Stage,
    /// The name of its format.
    pub(super) name: &'static str,
    pub(super) sanitizer: Sanitizer,
    noted: Origins,
    /// The pages whose tables are allocated.
    live: HashSet<u64>,
}

/// The machine of a trace.
pub(super) struct CasemateMachine {
    pub(super) stages: Vec<Checked>,
    pub(super) discipline: Discipline,
    pub(super) counts: StepCounts,
    pub(super) lies: (Vec<ImpossibleStep>, u64),
    trees: Trees,
    memory: Pages,
    cpus: usize,
    /// The code of each source.
    sources: Vec<ptsan::Trace>,
    nobody: ptsan::Trace,
    /// The VMID that a CPU has loaded.
    vmids: HashMap<u16, u64>,
    /// CPUs that have broadcast an invalidation since their last full barrier.
    broadcasting: HashSet<u16>,
    /// The control registers, as they were first.
    control: [Option<u64>; 2],
    /// Whether changes under a lock must be flushed before it is released.
    flush_first: bool,
}

/// The choices of a replay, beside the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) seed: Option<u64>,
    pub(super) keep: usize,
    pub(super) pages: usize,
    /// Whether locks are checked.
    pub(super) locks: bool,
    /// Whether changes under the lock of a tree must be flushed before it is released.
    pub(super) flush_before_unlock: bool,
}

/// Returns the code that a source names: `file:line`, or `function:file:line`.
fn code(source: &str) -> ptsan::Trace {
    let parts: Vec<&str> = source.split(':').collect();
    let frame = match parts.as_slice() {
        [function, .., _] if parts.len() > 2 => {
            TraceFrame { symbol: (*function).to_owned(), at: Some(source[function.len() + 1..].to_owned()) }
        }
        _ => TraceFrame { symbol: source.to_owned(), at: None },
    };
    ptsan::Trace::new(vec![frame])
}

impl CasemateMachine {
    pub(super) fn new(trace: &Trace, trees: Trees, options: Options) -> Self {
        let cpus = trace.cpus();
        let checked = |stage: Stage, arch: &Arch| {
            let config = Config {
                cpus,
                asids: true,
                barriers: true,
                two_stages: stage == Stage::Two,
                locks: options.locks,
                adversary: options.seed.map(Adversary::new),
                keep: options.keep,
                track_origins: true,
                ..Config::new(arch.clone())
            };
            let mut sanitizer = Sanitizer::new(config);
            if stage == Stage::One {
                sanitizer.space_created(0);
            }
            Checked { stage, name: arch.name, sanitizer, noted: Origins::default(), live: HashSet::new() }
        };
        let stages = Stage::ALL
            .into_iter()
            .filter_map(|stage| trees.arch[stage.index()].as_ref().map(|arch| checked(stage, arch)))
            .collect();
        Self {
            stages,
            discipline: Discipline::new(options.locks),
            counts: StepCounts::default(),
            lies: (Vec::new(), 0),
            trees,
            memory: Pages::new(options.pages),
            cpus,
            sources: trace.sources.iter().map(|source| code(source)).collect(),
            nobody: ptsan::Trace::new(Vec::new()),
            vmids: HashMap::new(),
            broadcasting: HashSet::new(),
            control: [None, None],
            flush_first: options.flush_before_unlock,
        }
    }

    /// Carries out a step.
    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), Limit> {
        let origin = Origin { record: entry.line, pc: entry.source.map(u64::from) };
        let callers = entry.source.map_or(&self.nobody, |source| &self.sources[source as usize]).clone();
        let misuses = self.misuses();
        for checked in &mut self.stages {
            checked.noted.begins(&checked.sanitizer, origin);
            checked.sanitizer.called_from(Some(callers.clone()));
            checked.sanitizer.running_on(usize::from(entry.thread));
        }
        self.carry_out(entry).map_err(|Full| Limit::Memory)?;
        if self.misuses() > misuses {
            let instead = "record what the system did, in the order in which it happened";
            self.lie(entry, "the sanitizer cannot make sense of it".to_owned(), instead);
        }
        for checked in &mut self.stages {
            checked.noted.ended(&checked.sanitizer, origin);
        }
        Ok(())
    }

    /// Ends the machine: findings name lines in place of events.
    pub(super) fn finish(&mut self) {
        let sources = &self.sources;
        let nobody = &self.nobody;
        for checked in &mut self.stages {
            let callers = |source: u64| sources.get(source as usize).unwrap_or(nobody).clone();
            checked.noted.name(&mut checked.sanitizer, "line", callers);
        }
    }

    fn misuses(&self) -> u64 {
        self.stages.iter().map(|checked| checked.sanitizer.count(Kind::Misuse)).sum()
    }

    fn lie(&mut self, entry: &Entry, what: String, instead: &'static str) {
        self.lies.1 += 1;
        if self.lies.0.len() < MOST_LIES {
            self.lies.0.push(ImpossibleStep { line: entry.line, what, instead });
        }
    }

    /// Checks a range of memory; one that cannot be is a lie.
    fn fits(&mut self, entry: &Entry, at: u64, size: u64) -> bool {
        let fits = at.is_multiple_of(8)
            && size.is_multiple_of(8)
            && (1..=MOST_BYTES).contains(&size)
            && at.checked_add(size).is_some_and(|end| end <= END);
        if !fits {
            let instead =
                "record physical addresses and sizes that are multiples of 8, at most 64 MiB at once";
            self.lie(entry, format!("{size:#x} bytes at {at:#x}"), instead);
        }
        fits
    }

    fn carry_out(&mut self, entry: &Entry) -> Result<(), Full> {
        match entry.step {
            Step::Write { release, at, value } => {
                if self.fits(entry, at, 8) {
                    self.write(entry, at, value, release)?;
                }
            }
            Step::Read { at, value } => self.read(entry, at, value),
            Step::Init { at, size } => {
                if self.fits(entry, at, size) {
                    self.initialize(entry, at, size)?;
                }
            }
            Step::Set { at, size, byte } => {
                if self.fits(entry, at, size) {
                    let value = u64::from_ne_bytes([byte; 8]);
                    for at in (at..at + size).step_by(8) {
                        self.write(entry, at, value, false)?;
                    }
                }
            }
            Step::Free { at, size } => {
                if self.fits(entry, at, size) {
                    (at / PAGE..(at + size).div_ceil(PAGE)).for_each(|page| self.release(page));
                }
            }
            Step::Fence(fence) => self.fence(entry.thread, fence),
            Step::Tlbi(tlbi) => self.invalidate(entry.thread, tlbi),
            Step::Sysreg { register, value } => self.register(entry, register, value),
            Step::Hint { hint, at, value } => match hint {
                Hint::RootLock => {
                    self.discipline.root_lock(at, value);
                    if self.discipline.is_loaded(at) {
                        self.guard(at, value);
                    }
                }
                Hint::OwnerRoot => {
                    if self.discipline.owner_root(at, value) {
                        self.moved(at / PAGE);
                    }
                }
                Hint::Release => self.release(at / PAGE),
                Hint::ThreadOwner => self.discipline.thread_owner(at, value),
            },
            Step::Lock { at } => {
                if self.discipline.locked(entry, at) {
                    let cpu = usize::from(entry.thread);
                    let take = |checked: &mut Checked| checked.sanitizer.lock_taken(cpu, at, Hold::Exclusive);
                    self.stages.iter_mut().for_each(take);
                }
            }
            Step::Unlock { at } => {
                if self.discipline.unlocked(entry, at) {
                    for checked in &mut self.stages {
                        checked.sanitizer.lock_released(&self.memory, usize::from(entry.thread), at);
                    }
                }
            }
        }
        Ok(())
    }

    fn word(&self, at: u64) -> u64 {
        self.memory.read(at, 8).unwrap_or(0)
    }

    /// Stores a word, and tells the stages whose table it is in.
    fn write(&mut self, entry: &Entry, at: u64, value: u64, release: bool) -> Result<(), Full> {
        let store = Store { at, old: self.word(at), new: value, release };
        self.discipline.stored(entry, &self.trees, store);
        self.adopt(at, value);
        let trees = &self.trees;
        let told = |checked: &&mut Checked| trees.is_table(checked.stage, at);
        // An entry of a thread needs no lock: the store is told as the holder's.
        let owned = self.discipline.is_of_thread(at);
        let lock = self.discipline.lock_over(at).filter(|_| owned);
        for checked in self.stages.iter_mut().filter(told) {
            // Walkers may come just before a store, too.
            checked.sanitizer.adversary_step(&self.memory);
        }
        self.memory.write(at, &value.to_le_bytes())?;
        self.counts.stores += 1;
        let cpu = usize::from(entry.thread);
        for checked in self.stages.iter_mut().filter(told) {
            let san = &mut checked.sanitizer;
            match lock {
                Some((lock, None)) => san.lock_taken(cpu, lock, Hold::Exclusive),
                Some((_, Some(holder))) => san.running_on(usize::from(holder)),
                None => {}
            }
            san.entry_written(&self.memory, at);
            match lock {
                Some((lock, None)) => san.lock_released(&self.memory, cpu, lock),
                Some((_, Some(_))) => san.running_on(cpu),
                None => {}
            }
        }
        Ok(())
    }

    /// A descriptor that links a table of another tree takes it for this one.
    fn adopt(&mut self, at: u64, value: u64) {
        let Some(table) = linked(value).filter(|_| self.trees.may_link(at)) else { return };
        let (Some(from), Some(to)) = (self.discipline.tree(table), self.discipline.tree(at)) else { return };
        let live = self.stages.iter().any(|checked| checked.live.contains(&(table / PAGE)));
        if from != to && live {
            self.discipline.owner_root(table, to);
            self.moved(table / PAGE);
        }
    }

    /// A table comes to another tree: it was given back by one, and handed out to the other.
    fn moved(&mut self, page: u64) {
        for checked in &mut self.stages {
            let Some(bytes) = self.trees.bytes(checked.stage, page) else { continue };
            if checked.live.contains(&page) {
                checked.sanitizer.table_freed(&self.memory, page * PAGE, bytes);
                let content = Content::Unchecked;
                checked.sanitizer.table_allocated(&self.memory, page * PAGE, bytes, None, content);
            }
        }
    }

    /// Compares a load with the stores before it. Bits that hardware sets may differ.
    fn read(&mut self, entry: &Entry, at: u64, value: u64) {
        let known = self.word(at);
        let tables = self.stages.iter().any(|checked| checked.live.contains(&(at / PAGE)));
        if tables && (known ^ value) & !HARDWARE != 0 {
            let instead = "record every store to a table";
            self.lie(entry, format!("a load of {value:#x} from {at:#x}, which holds {known:#x}"), instead);
        }
    }

    /// Clears memory. Pages that hold no table now, and some time will, are handed out.
    fn initialize(&mut self, entry: &Entry, at: u64, size: u64) -> Result<(), Full> {
        let end = at + size;
        for page in at / PAGE..end.div_ceil(PAGE) {
            let part = at.max(page * PAGE)..end.min((page + 1) * PAGE);
            let live = self.stages.iter().any(|checked| checked.live.contains(&page));
            let clean = self.memory.is_zero(page * PAGE, PAGE) == Some(true);
            let words = if clean { 0..0 } else { part.clone() };
            for word in words.step_by(8) {
                if self.word(word) == 0 {
                    continue;
                }
                if live {
                    self.write(entry, word, 0, false)?;
                } else {
                    self.memory.write(word, &[0; 8])?;
                }
            }
            let content = if part.end - part.start == PAGE { Content::Zero } else { Content::Unchecked };
            self.hand_out(page, content);
        }
        Ok(())
    }

    fn hand_out(&mut self, page: u64, content: Content) {
        for checked in &mut self.stages {
            if !self.trees.is_table(checked.stage, page * PAGE) || !checked.live.insert(page) {
                continue;
            }
            if let Some(bytes) = self.trees.bytes(checked.stage, page) {
                // The rest of a root of several pages may be cleared later.
                let content = if bytes > PAGE { Content::Unchecked } else { content };
                self.counts.allocated += 1;
                checked.sanitizer.table_allocated(&self.memory, page * PAGE, bytes, None, content);
            }
        }
    }

    fn release(&mut self, page: u64) {
        self.discipline.released(page);
        for checked in &mut self.stages {
            if !checked.live.remove(&page) {
                continue;
            }
            if let Some(bytes) = self.trees.bytes(checked.stage, page) {
                self.counts.freed += 1;
                checked.sanitizer.table_freed(&self.memory, page * PAGE, bytes);
            }
        }
    }

    fn fence(&mut self, thread: u16, fence: Fence) {
        let barrier = match fence {
            Fence::Instructions => Barrier::Instruction,
            Fence::Stores => Barrier::Stores,
            // Other CPUs may not have carried out a broadcast yet.
            Fence::Own if self.broadcasting.contains(&thread) => Barrier::Stores,
            Fence::Full | Fence::Own => {
                self.broadcasting.remove(&thread);
                Barrier::Data
            }
        };
        for checked in &mut self.stages {
            checked.sanitizer.barrier(usize::from(thread), barrier);
        }
    }

    fn invalidate(&mut self, thread: u16, tlbi: Tlbi) {
        self.counts.invalidations += 1;
        if tlbi.broadcast {
            self.broadcasting.insert(thread);
        }
        let number = match tlbi.stage {
            Stage::One => Some(0),
            Stage::Two => self.vmids.get(&thread).copied(),
        };
        let flush = match (tlbi.reach, number) {
            (Reach::All, _) => Some(Flush::all()),
            (Reach::Guest, Some(number)) => Some(Flush::space(number)),
            (Reach::Range { start, end, leaf_only }, Some(number)) => {
                Some(Flush { leaf_only, ..Flush::range(number, start, end, PAGE) })
            }
            // A number that was never loaded is flushed: legal, and without effect here.
            (Reach::Guest | Reach::Range { .. }, None) => None,
            (Reach::GuestStage1 | Reach::GuestAddress, _) => None,
        };
        let Some(checked) = self.stages.iter_mut().find(|checked| checked.stage == tlbi.stage) else {
            return;
        };
        let only = usize::from(thread);
        let cpus = if tlbi.broadcast { 0..self.cpus } else { only..only + 1 };
        for cpu in cpus {
            if let Some(flush) = flush {
                checked.sanitizer.flush(&self.memory, cpu, flush);
            } else if tlbi.reach == Reach::GuestStage1 {
                checked.sanitizer.stage1_flushed(cpu);
            }
        }
    }

    fn register(&mut self, entry: &Entry, register: Register, value: u64) {
        match register {
            Register::Root(stage) => self.load(entry, stage, value),
            Register::Control(stage) => {
                // Other fields have no meaning here: the size, the start level, the granule.
                let shape = value & 0xc0ff;
                if self.control[stage.index()].replace(shape).is_some_and(|before| before != shape) {
                    let what = format!("the format of {} changes while the system runs", stage.register());
                    self.lie(entry, what, "record the registers of one format; a log has one for each stage");
                }
            }
            Register::Other => {}
        }
    }

    fn load(&mut self, entry: &Entry, stage: Stage, value: u64) {
        let cpu = usize::from(entry.thread);
        let Some(checked) = self.stages.iter_mut().find(|checked| checked.stage == stage) else { return };
        if value == 0 {
            checked.sanitizer.leave(cpu);
            self.vmids.remove(&entry.thread);
            return;
        }
        let (root, number) = root_and_number(value);
        let bytes = self.trees.bytes(stage, root / PAGE).unwrap_or(PAGE).next_power_of_two();
        if !root.is_multiple_of(bytes) {
            let instead = "record the value of the register: the root at a multiple of its size";
            self.lie(
                entry,
                format!("a root at {root:#x}, and roots are at multiples of {bytes:#x}"),
                instead,
            );
            return;
        }
        self.counts.roots += 1;
        let new = self.discipline.loaded(entry, stage, root, number);
        let number = if stage == Stage::One { 0 } else { number };
        if new {
            checked.sanitizer.number_given(root, number);
        }
        checked.sanitizer.switch(&self.memory, cpu, root, number);
        // The exception return that follows synchronizes it, and logs do not have that.
        checked.sanitizer.barrier(cpu, Barrier::Instruction);
        if stage == Stage::Two {
            self.vmids.insert(entry.thread, number);
        }
        if let Some(lock) = self.discipline.lock_of(root).filter(|_| new) {
            self.guard(root, lock);
        }
    }

    /// Tells of the lock of a tree, which stores to it need from now on.
    fn guard(&mut self, root: u64, lock: u64) {
        let guard = Guard { lock, flush_first: self.flush_first };
        self.stages.iter_mut().for_each(|checked| checked.sanitizer.lock_guards(root, guard));
    }
}
