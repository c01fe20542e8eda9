//! Holds the sanitizer's parts, and does the common work of all hooks.
use super::chance::Chance;
use super::config::Config;
use super::device_entries::DeviceEntries;
use super::hashed::Hashed;
use super::issued::Issued;
use super::locks::Locks;
use super::numbers::Numbers;
use super::operations::Operations;
use super::queue::Queued;
use super::readers::Readers;
use super::stats::Stats;
use super::written::WrittenPages;
use crate::arch::Entry;
use crate::cpu::Cpu;
use crate::hash::FastMap;
use crate::owed::{Debts, Runs};
use crate::report::{Details, Harness, Kind, MachineNames, Place, Reports, Rule, Stored};
use crate::shadow::{Frame, FrameRef, FrameTable, Mappings};
use std::collections::BTreeMap;
use std::time::Instant;

/// A software MMU per CPU, and the shadow state of every table frame.
///
/// Call the hooks in the order in which things happen. Code under test that runs on several threads
/// keeps the sanitizer behind a lock, held across the store and its hook.
///
/// No hook panics: nonsensical arguments are findings too ([`Kind::Misuse`]).
/// ```
/// use ptsan::{Arch, Config, Content, Kind, Sanitizer};
///
/// let memory = vec![0u8; 0x3000];
/// let mut san = Sanitizer::new(Config::new(Arch::x86_64()));
/// san.table_allocated(&memory, 0x1000, 4096, Some(3), Content::Zero);
/// san.switch(&memory, 0, 0x1000, 1);
/// san.table_freed(&memory, 0x1000, 4096);          // while CPU 0 has it loaded
/// assert_eq!(san.count(Kind::FreeBeforeFlush), 1);
/// assert!(san.to_string().contains("call switch or leave on CPU 0"));
/// ```
pub struct Sanitizer {
    pub(crate) config: Config,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) frames: FrameTable,
    pub(crate) reports: Reports,
    pub(crate) event: u64,
    pub(crate) stats: Stats,
    pub(crate) spaces: FastMap<u64, ()>,
    /// The locks of tables, and their holders.
    pub(crate) locks: Locks,
    /// The numbers that roots were given.
    pub(crate) numbers: Numbers,
    /// The flushes that CPUs owe.
    pub(crate) debts: Debts,
    /// Tables that were reported when they were freed: later findings about them have the same
    /// cause.
    pub(crate) blamed: FastMap<FrameRef, ()>,
    /// The entries that map frames to user mode.
    pub(crate) mappings: Mappings,
    /// Invalidations of devices that nobody has waited for.
    pub(crate) queue: Vec<Queued>,
    /// Entries of several words that devices read.
    pub(crate) device_entries: DeviceEntries,
    /// Software that walks tables without a lock.
    pub(crate) readers: Readers,
    /// Pages that were written through clean entries, with [`Config::accessed_dirty`].
    pub(crate) written: WrittenPages,
    /// Flushes that no barrier has completed.
    pub(crate) issued: Vec<Issued>,
    /// Flushes of stage 1 that no barrier has completed: the CPU, and the guest that it ran.
    pub(crate) issued_stage1: Vec<(usize, u64)>,
    /// Runs of entries to which stores were told.
    pub(crate) runs: Runs,
    /// Room for the ways to an entry.
    pub(crate) ways: Vec<(FrameRef, u64)>,
    /// Event of the last flush, where a barrier has to complete it.
    pub(crate) last_issued: u64,
    /// Event at which a CPU left a root last.
    pub(crate) last_departure: u64,
    /// Event of the last barrier.
    pub(crate) last_barrier: u64,
    /// The CPU that carries out the stores that are told.
    pub(crate) running: Option<usize>,
    /// Whether any store was told.
    pub(crate) tells: bool,
    /// The operations under way.
    pub(crate) operations: Operations,
    /// The hash table and the segments of spaces.
    pub(crate) hashed: Hashed,
    /// Whether an entry of zero is empty at all levels, as in all formats that exist.
    pub(crate) zero_is_empty: bool,
    /// Tables whose frees are final at the next full flush: address and bytes.
    pub(crate) deferred: BTreeMap<u64, u64>,
    /// The choices of the adversary.
    pub(crate) chance: Option<Box<Chance>>,
}

impl Sanitizer {
    /// Creates a machine whose CPUs have no root loaded.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut config = config.with_environment(|name| std::env::var(name).ok());
        config.arch.sets_dirty |= config.accessed_dirty | config.walkers_set_bits;
        let seed = config.adversary.map(|a| a.seed);
        let mut harness = Harness::default();
        config.harness.iter().for_each(|pattern| harness.mark(pattern));
        let most = usize::from(u16::MAX);
        config.cpus = config.cpus.min(most);
        config.devices = config.devices.min(most - config.cpus);
        let readers = (config.cpus, config.devices);
        let cpus = (0..readers.0 + readers.1).map(|n| Cpu::new(config.tlb, n >= readers.0)).collect();
        let mut new = Self {
            cpus,
            frames: FrameTable::new(config.told),
            reports: Reports::new(
                config.keep,
                config.backtraces,
                config.suppressions.clone(),
                seed,
                MachineNames { level_names: config.arch.level_names, cpus: readers.0, devices: readers.1 },
                (harness, config.stores),
            ),
            event: 0,
            stats: Stats::default(),
            spaces: FastMap::default(),
            locks: Locks::default(),
            numbers: Numbers::default(),
            debts: Debts::new(config.debts),
            blamed: FastMap::default(),
            mappings: Mappings::default(),
            queue: Vec::new(),
            device_entries: DeviceEntries::default(),
            readers: Readers::default(),
            written: WrittenPages::default(),
            issued: Vec::new(),
            issued_stage1: Vec::new(),
            runs: Runs::default(),
            ways: Vec::new(),
            last_issued: 0,
            last_departure: 0,
            last_barrier: 0,
            running: None,
            tells: false,
            operations: Operations::default(),
            hashed: Hashed::default(),
            zero_is_empty: (0..=config.arch.top())
                .all(|level| (config.arch.decode)(level, 0) == Entry::Empty),
            deferred: BTreeMap::new(),
            chance: config.adversary.map(|a| Box::new(Chance::new(a))),
            config,
        };
        if !new.config.arch.is_usable() {
            new.misuse(Rule::BadArch, Place::default());
            // Without CPUs and levels no entry is ever decoded.
            new.cpus.clear();
            (new.config.cpus, new.config.devices) = (0, 0);
            new.config.arch.levels.clear();
        }
        new
    }

    /// Returns whether a number stands for a device: see [`Sanitizer::device`].
    pub(crate) fn is_device(&self, number: usize) -> bool {
        number >= self.config.cpus
    }

    /// Returns whether what a CPU or device caches is tagged with the space, and survives a switch.
    /// For a device the domain is the tag: another one does not drop its entries.
    pub(crate) fn is_tagged(&self, number: usize) -> bool {
        self.config.asids || self.is_device(number)
    }

    /// Names a CPU or a device.
    pub(crate) fn reader(&self, number: usize) -> String {
        let Config { cpus, devices, .. } = self.config;
        MachineNames { cpus, devices, ..MachineNames::default() }.reader(number)
    }

    pub(crate) fn has_cpu(&mut self, cpu: usize) -> bool {
        let has = cpu < self.cpus.len();
        if !has {
            self.misuse(Rule::NoSuchCpu, Place { cpu: Some(cpu), ..Place::default() });
        }
        has
    }

    /// Gives the adversary an address to remember.
    #[inline]
    pub(crate) fn notice(&mut self, va: u64) {
        if let Some(chance) = &mut self.chance {
            chance.remember(va);
        }
    }

    pub(crate) fn misuse(&mut self, rule: Rule, place: Place) {
        self.report(Kind::Misuse, rule, place, String::new);
    }

    /// Adds a finding, with the history of the frame that it is about.
    pub(crate) fn report(&mut self, kind: Kind, rule: Rule, place: Place, note: impl FnOnce() -> String) {
        self.report_of(None, (kind, rule), place, note);
    }

    /// Adds a finding that follows from a store.
    pub(crate) fn report_of(
        &mut self,
        store: Option<&Stored>,
        rule: (Kind, Rule),
        place: Place,
        note: impl FnOnce() -> String,
    ) {
        let mut note = Some(note);
        self.report_noted(store, rule, place, &mut || note.take().map_or_else(String::new, |note| note()));
    }

    /// As [`Self::report_of`], compiled once for all its callers.
    fn report_noted(
        &mut self,
        store: Option<&Stored>,
        rule: (Kind, Rule),
        place: Place,
        note: &mut dyn FnMut() -> String,
    ) {
        let frame = || place.frame.and_then(|p| self.frames.find(p)).and_then(|f| self.frames.get(f));
        self.reports.add(self.event, rule, place, store, &mut || details_of(frame(), note()));
    }

    /// Runs the body of a hook: counts it, and times it if configured.
    #[inline]
    pub(crate) fn hook<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.event += 1;
        self.stats.hooks += 1;
        if !self.config.timed {
            return body(self);
        }
        let start = Instant::now();
        let result = body(self);
        self.stats.nanoseconds += start.elapsed().as_nanos() as u64;
        result
    }
}

pub(crate) fn details_of(frame: Option<&Frame>, note: String) -> Details {
    let history = frame.map_or_else(Vec::new, |f| f.history.to_vec());
    let origins = frame.and_then(|f| f.origins.as_deref()).cloned().unwrap_or_default();
    Details { note, history, origins }
}
