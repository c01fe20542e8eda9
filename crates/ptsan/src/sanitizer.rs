//! The sanitizer: configuration, the hooks of CPUs, and results.
use crate::arch::{Arch, Entry};
use crate::frames::{Frames, Holder, REGISTERS};
use crate::hash::FastMap;
use crate::history::{Happened, HistoryEvent};
use crate::memory::Memory;
use crate::mmu::{Cpu, CpuState, Flush, Loaded, Register, Strides, Target};
use crate::report::{Finding, Kind, Place, Reports, Rule};
use std::fmt;

/// What to simulate and how much to keep.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many CPUs there are, at most 65,535.
    pub cpus: usize,
    /// The page-table format.
    pub arch: Arch,
    /// Cached entries are tagged with their address space and survive a switch to another (PCID, ASID).
    ///
    /// A table may then be given back while a CPU that has *another* space loaded holds it: what counts is that it
    /// is flushed before that CPU uses the space again, and a walk that shows it was not is reported.
    pub asids: bool,
    /// Frames may stand at several levels: an entry of the top points at the top itself.
    pub recursive: bool,
    /// When a table is first reached by a walk and nothing told of its linking, report entries in it that equal what
    /// was there at its allocation. Code that clears a table and then happens to write the very same entries
    /// looks the same, so this is off unless asked for.
    pub infer_leftovers: bool,
    /// Whenever an access makes one CPU walk, every other CPU that has the same root loaded, active or lazy, walks
    /// speculatively for the same address. Hardware may; so a test that accesses memory from one CPU finds the
    /// shootdowns that the others miss.
    pub eager_walkers: bool,
    /// How many findings are kept in full; all are counted.
    pub keep: usize,
}

impl Config {
    /// One CPU, no ASIDs, 64 findings kept.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self {
            cpus: 1,
            arch,
            asids: false,
            recursive: false,
            infer_leftovers: false,
            eager_walkers: false,
            keep: 64,
        }
    }
}

/// Work done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Accesses translated, with or without success.
    pub translations: u64,
    /// Of these, answered by the TLB.
    pub tlb_hits: u64,
    /// Walks of the tables, probes included.
    pub walks: u64,
    /// Of these, begun at a cached paging-structure entry.
    pub structure_hits: u64,
    /// Faults on cached entries that memory answers otherwise: legal, the handler retries.
    pub spurious_faults: u64,
}

/// A software MMU per CPU, and the shadow state of every table frame.
///
/// The hooks are called in the order in which things happen; code under test that runs on several threads keeps the
/// sanitizer behind a lock, held across the store and its hook.
///
/// No hook panics: arguments that make no sense are findings too ([`Kind::Misuse`]).
pub struct Sanitizer {
    pub(crate) config: Config,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) frames: Frames,
    pub(crate) reports: Reports,
    pub(crate) event: u64,
    pub(crate) stats: Stats,
    spaces: FastMap<u64, ()>,
}

impl Sanitizer {
    /// A machine whose CPUs have nothing loaded.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let cpus = (0..config.cpus.min(usize::from(u16::MAX))).map(|_| Cpu::new()).collect();
        let mut new = Self {
            cpus,
            frames: Frames::default(),
            reports: Reports::new(config.keep),
            event: 0,
            stats: Stats::default(),
            spaces: FastMap::default(),
            config,
        };
        if !new.config.arch.is_usable() {
            new.misuse(Rule::BadArch, Place::default());
            // Without CPUs nothing is ever decoded.
            new.cpus.clear();
        }
        new
    }

    /// An address space exists. Only needed before a flush of a space that no CPU has loaded yet.
    pub fn space_created(&mut self, space: u64) {
        self.event += 1;
        self.spaces.insert(space, ());
    }

    /// The address space is gone, and its number will not stand for another.
    ///
    /// What CPUs still hold for it is forgotten. Code that hands out hardware ASIDs again must not call this:
    /// whatever was not flushed is then found when the number is used with another root.
    pub fn space_destroyed(&mut self, space: u64) {
        self.event += 1;
        if self.spaces.remove(&space).is_none() {
            self.misuse(Rule::NoSuchSpace, Place { space: Some(space), ..Place::default() });
        }
        if let Some(cpu) = self.cpus.iter().position(|c| c.runs(space)) {
            let place = Place { space: Some(space), cpu: Some(cpu), ..Place::default() };
            self.misuse(Rule::SpaceLoaded, place);
        } else {
            for cpu in &mut self.cpus {
                cpu.forget(space);
            }
        }
    }

    /// The CPU loads `root` (physical address) and runs in `space`. To be called when the root is really loaded: a
    /// switch between threads of one space, or back from lazy mode ([`Sanitizer::resume`]), is none.
    ///
    /// Without ASIDs this drops what the CPU held, global translations excepted. With ASIDs everything is kept;
    /// a load that also flushes the space is followed by a [`Sanitizer::flush`] of [`Flush::space`].
    pub fn switch(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, root: u64, space: u64) {
        self.event += 1;
        if !self.has_cpu(cpu) {
            return;
        }
        self.spaces.insert(space, ());
        let top = self.config.arch.top();
        let level = self.config.arch.levels[top as usize];
        let place = Place {
            frame: Some(root),
            cpu: Some(cpu),
            level: Some(top),
            space: Some(space),
            ..Place::default()
        };
        let aligned = root.is_multiple_of(u64::from(level.table_bytes.max(1)).next_power_of_two());
        if !aligned || memory.read(root, level.entry_bytes).is_none() {
            self.misuse(Rule::BadRoot, place);
        }
        let frame = self.reached(memory, root, None, place, false);
        if let Some(f) = self.frames.get_mut(frame) {
            f.history.push(self.event, Happened::RootLoaded { cpu });
        }
        let c = &mut self.cpus[cpu];
        let context = c.enter(space, self.config.asids);
        c.loaded = Some(Loaded { space, root, frame, context });
        c.state = CpuState::Active;
        self.load_registers(memory, cpu);
    }

    /// The CPU goes on with kernel code and keeps the root loaded: its walker may still walk (REQ-5).
    pub fn lazy(&mut self, cpu: usize) {
        self.set_state(cpu, CpuState::Lazy);
    }

    /// A lazy CPU runs in the space again, without having loaded the root anew.
    pub fn resume(&mut self, cpu: usize) {
        self.set_state(cpu, CpuState::Active);
    }

    /// The CPU loads a root of the kernel alone. Without ASIDs this drops what it held, global translations excepted.
    pub fn leave(&mut self, cpu: usize) {
        self.event += 1;
        if !self.has_cpu(cpu) {
            return;
        }
        let c = &mut self.cpus[cpu];
        if let Some(loaded) = c.loaded.take()
            && !self.config.asids
        {
            c.contexts[loaded.context as usize].clear();
        }
        c.registers.clear();
        c.register_generation = c.register_generation.wrapping_add(1);
        c.state = CpuState::Away;
    }

    /// What the CPU does with its root, `None` if there is no such CPU.
    #[must_use]
    pub fn cpu_state(&self, cpu: usize) -> Option<CpuState> {
        self.cpus.get(cpu).map(|c| c.state)
    }

    /// The CPU carries out an invalidation. For a shootdown, call it for each CPU at the moment at which that CPU does
    /// its part; hardware that broadcasts is [`Sanitizer::flush_everywhere`].
    ///
    /// A space that the CPU does not hold is no mistake; one that was never loaded anywhere is.
    pub fn flush(&mut self, memory: &(impl Memory + ?Sized), cpu: usize, flush: Flush) {
        self.event += 1;
        if !self.has_cpu(cpu) {
            return;
        }
        let asids = self.config.asids;
        let arch = &self.config.arch;
        let c = &mut self.cpus[cpu];
        let (Target::Page { space, .. } | Target::Range { space, .. } | Target::Space(space)) = flush.target
        else {
            for context in c.contexts.iter_mut().chain([&mut c.globals]) {
                context.clear();
                context.note_flush(self.event, flush);
            }
            self.load_registers(memory, cpu);
            return;
        };
        let runs = c.runs(space);
        if let Target::Range { start, end, stride, .. } = flush.target
            && (stride == 0 || end < start)
        {
            let place = Place { cpu: Some(cpu), space: Some(space), va: Some(start), ..Place::default() };
            self.misuse(Rule::BadArgument, place);
            return;
        }
        // Invalidation by address reaches global translations if the space is the one that runs.
        let drop_by_address = |context: &mut crate::mmu::Context| match flush.target {
            Target::Page { va, .. } => context.flush_page(arch, va, flush.leaf_only),
            Target::Range { start, end, stride, .. } => {
                context.flush_range(arch, Strides { start, end, stride }, flush.leaf_only);
            }
            Target::Space(_) | Target::All => {}
        };
        if runs {
            drop_by_address(&mut c.globals);
        }
        if let Some(context) = c.context_of(space, asids) {
            drop_by_address(context);
            if matches!(flush.target, Target::Space(_)) {
                context.clear();
            }
            context.note_flush(self.event, flush);
        }
        if runs && matches!(flush.target, Target::Space(_)) {
            self.load_registers(memory, cpu);
        }
        if !self.spaces.contains_key(&space) {
            let place = Place { cpu: Some(cpu), space: Some(space), ..Place::default() };
            self.misuse(Rule::NoSuchSpace, place);
        }
    }

    /// Every CPU carries out the invalidation.
    pub fn flush_everywhere(&mut self, memory: &(impl Memory + ?Sized), flush: Flush) {
        for cpu in 0..self.cpus.len() {
            self.flush(memory, cpu, flush);
        }
    }

    /// The run is over: tables that were not given back are leaks.
    pub fn finish(&mut self) {
        self.event += 1;
        for f in self.frames.allocated() {
            let place = Place { frame: Some(f.phys), level: f.level, ..Place::default() };
            let note = || (format!("{} bytes", f.size), f.history.to_vec());
            self.reports.add(self.event, (Kind::Leak, Rule::StillAllocated), place, note);
        }
    }

    /// The findings kept, in the order in which they were made.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.reports.findings()
    }

    /// How many findings of a kind there were, repetitions included.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.reports.count(kind)
    }

    /// How many findings there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reports.total()
    }

    /// How many tables are allocated now.
    #[must_use]
    pub fn live_tables(&self) -> u64 {
        self.frames.live
    }

    /// Number of the last hook call.
    #[must_use]
    pub fn event(&self) -> u64 {
        self.event
    }

    /// Work done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Nothing was found.
    ///
    /// # Panics
    /// If something was, with the report as the message.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.total() == 0, "{self}");
    }

    fn set_state(&mut self, cpu: usize, state: CpuState) {
        self.event += 1;
        if !self.has_cpu(cpu) {
            return;
        }
        if self.cpus[cpu].loaded.is_none() {
            self.misuse(Rule::NoRoot, Place { cpu: Some(cpu), ..Place::default() });
            return;
        }
        self.cpus[cpu].state = state;
    }

    /// Reads the entries of the top into the registers of formats that have them.
    fn load_registers(&mut self, memory: &(impl Memory + ?Sized), cpu: usize) {
        let arch = &self.config.arch;
        let Some(loaded) = self.cpus[cpu].loaded else { return };
        if !arch.top_registers || arch.top() == 0 {
            return;
        }
        let (top, decode) = (arch.top(), arch.decode);
        let level = arch.levels[top as usize];
        let generation = self.cpus[cpu].register_generation.wrapping_add(1);
        let mut registers = Vec::with_capacity(level.entries());
        for index in 0..level.entries() as u64 {
            let at = loaded.root + index * u64::from(level.entry_bytes);
            let entry = memory.read(at, level.entry_bytes).map_or(Entry::Empty, |raw| decode(top, raw));
            let va = index << level.shift;
            let place = Place {
                va: Some(va),
                cpu: Some(cpu),
                level: Some(top - 1),
                space: Some(loaded.space),
                ..Place::default()
            };
            registers.push(match entry {
                Entry::Table { phys, perms } => {
                    let link = Some(crate::frames::Link { entry: at, parent: loaded.frame });
                    let place = Place { frame: Some(phys), ..place };
                    let frame = self.reached(memory, phys, link, place, false);
                    let position = self.config.arch.position(top - 1, va);
                    let since = self.event;
                    let holder = Holder { cpu: cpu as u16, context: REGISTERS, generation, position, since };
                    self.hold(frame, holder, va);
                    Register::Table { phys, perms, frame }
                }
                Entry::Empty | Entry::Leaf { .. } => Register::Empty,
                Entry::Malformed => {
                    let place = Place { frame: Some(loaded.root), level: Some(top), ..place };
                    self.report(Kind::MalformedEntry, Rule::Reserved, place, String::new);
                    Register::Empty
                }
            });
        }
        self.cpus[cpu].registers = registers;
        self.cpus[cpu].register_generation = generation;
    }

    pub(crate) fn has_cpu(&mut self, cpu: usize) -> bool {
        let has = cpu < self.cpus.len();
        if !has {
            self.misuse(Rule::NoSuchCpu, Place { cpu: Some(cpu), ..Place::default() });
        }
        has
    }

    pub(crate) fn misuse(&mut self, rule: Rule, place: Place) {
        self.report(Kind::Misuse, rule, place, String::new);
    }

    /// Adds a finding, with the history of the frame that it is about.
    pub(crate) fn report(&mut self, kind: Kind, rule: Rule, place: Place, note: impl FnOnce() -> String) {
        let frames = &self.frames;
        let details = || (note(), history_at(frames, place.frame));
        self.reports.add(self.event, (kind, rule), place, details);
    }
}

fn history_at(frames: &Frames, phys: Option<u64>) -> Vec<HistoryEvent> {
    phys.and_then(|p| frames.find(p))
        .and_then(|f| frames.get(f))
        .map_or_else(Vec::new, |f| f.history.to_vec())
}

impl fmt::Display for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reports.fmt(f)
    }
}

impl fmt::Debug for Sanitizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sanitizer")
            .field("arch", &self.config.arch.name)
            .field("cpus", &self.cpus.len())
            .field("event", &self.event)
            .field("live_tables", &self.frames.live)
            .field("findings", &self.total())
            .finish_non_exhaustive()
    }
}
