//! The sanitizer: what it consists of, and results.
use crate::adversary::Chance;
use crate::bbm::Told;
use crate::config::{Config, Stats};
use crate::frames::{Frame, Frames};
use crate::hash::FastMap;
use crate::mmu::Cpu;
use crate::operations::Operations;
use crate::report::{Allow, Details, Finding, Kind, Place, Reports, Rule};
use std::fmt;
use std::time::Instant;

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
    pub(crate) spaces: FastMap<u64, ()>,
    /// What the entries held whose stores are told.
    pub(crate) told: FastMap<u64, Told>,
    /// What the code under test is in the middle of.
    pub(crate) operations: Operations,
    /// What the adversary draws from.
    pub(crate) chance: Option<Box<Chance>>,
}

impl Sanitizer {
    /// A machine whose CPUs have nothing loaded.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let config = config.with_environment(|name| std::env::var(name).ok());
        let seed = config.adversary.map(|a| a.seed);
        let cpus = (0..config.cpus.min(usize::from(u16::MAX))).map(|_| Cpu::new()).collect();
        let mut new = Self {
            cpus,
            frames: Frames::default(),
            reports: Reports::new(config.keep, config.backtraces, config.suppressions.clone(), seed),
            event: 0,
            stats: Stats::default(),
            spaces: FastMap::default(),
            told: FastMap::default(),
            operations: Operations::default(),
            chance: config.adversary.map(|a| Box::new(Chance::new(a))),
            config,
        };
        if !new.config.arch.is_usable() {
            new.misuse(Rule::BadArch, Place::default());
            // Without CPUs and levels nothing is ever decoded.
            new.cpus.clear();
            new.config.arch.levels.clear();
        }
        new
    }

    /// The run is over: tables that were not given back are leaks, and the report lists allowed findings that were not
    /// seen.
    pub fn finish(&mut self) {
        self.hook(|s| {
            s.reports.finish();
            for f in s.frames.allocated() {
                let place = Place { frame: Some(f.phys), level: f.level, ..Place::default() };
                let details = || details_of(Some(f), format!("{} bytes", f.size));
                s.reports.add(s.event, (Kind::Leak, Rule::StillAllocated), place, details);
            }
        });
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

    /// How many findings were allowed ([`Config::suppressions`]); they count nowhere else.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.reports.allowed()
    }

    /// What was allowed and not seen so far.
    pub fn unused_suppressions(&self) -> impl Iterator<Item = &Allow> {
        self.reports.unused()
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
        let frame = || place.frame.and_then(|p| self.frames.find(p)).and_then(|f| self.frames.get(f));
        self.reports.add(self.event, (kind, rule), place, || details_of(frame(), note()));
    }

    /// What all hooks have in common: they are counted, and timed if asked for.
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

fn details_of(frame: Option<&Frame>, note: String) -> Details {
    let history = frame.map_or_else(Vec::new, |f| f.history.to_vec());
    let origins = frame.and_then(|f| f.origins.as_deref()).cloned().unwrap_or_default();
    Details { note, history, origins }
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
