//! A test of page-table code in a few lines.
use super::pool::Pool;
use super::seeds;
use super::session::Session;
use crate::arch::Arch;
use crate::state::{Adversary, Config};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A test that runs many times, each time from another seed: memory, frames, CPUs, a sanitizer with
/// an [`Adversary`], and the check at the end.
///
/// A run that fails prints its seed and the command that repeats it. `PTSAN_SEED=7 cargo test` runs
/// that seed alone.
/// ```
/// use ptsan::{Arch, Test};
///
/// Test::new(Arch::x86_2level()).cpus(2).seeds(0..50).run(|s| {
///     let (root, table) = (s.table().unwrap(), s.table().unwrap());
///     s.memory[root as usize..].fill(0);
///     s.put(root, table | 7);                                     // the code under test maps page 5
///     s.put(table + 5 * 4, 0x9007);
///     s.each_cpu(|s| s.load(root));
///     let cpu = s.below(2) as usize;
///     assert_eq!(s.on(cpu).access(0x5123), Ok(0x9123));
///     s.put(root, 0);                                             // unmaps it
///     s.each_cpu(|s| s.flush(0x5000));
///     s.free(table);
///     s.each_cpu(|s| s.leave());
///     s.free(root);
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Test {
    config: Config,
    frames: u64,
    seeds: Range<u64>,
}

impl Test {
    /// Creates a test with one CPU, an adversary, 256 frames and the seeds below 100.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self::with(Config { adversary: Some(Adversary::new(0)), ..Config::new(arch) })
    }

    /// Creates a test from a configuration. The adversary, if there is one, gets each run's seed.
    #[must_use]
    pub fn with(config: Config) -> Self {
        Self { config, frames: 256, seeds: 0..100 }
    }

    /// Sets the number of CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.config.cpus = cpus;
        self
    }

    /// Sets the size of memory, in frames that hold a usual table of the format. The frame at
    /// address 0 is not handed out.
    #[must_use]
    pub fn frames(mut self, frames: u64) -> Self {
        self.frames = frames;
        self
    }

    /// Sets the seeds of the runs.
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Runs the test: `body` once for each seed, each time with a fresh session. When it returns,
    /// the session is [finished](Session::finish): findings and leaks fail the test.
    ///
    /// # Panics
    /// Panics if `body` does, or with the report if there are findings. Panics if there are no
    /// seeds, or if `PTSAN_SEED` is no number.
    #[track_caller]
    pub fn run(self, body: impl Fn(&mut Session<Vec<u8>>)) {
        let frame = self.config.arch.granule();
        let bytes = self.frames.saturating_mul(frame);
        self.each(|seed, config| {
            let memory = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
            let mut session = Session::with(config, memory);
            session.pool = Pool::new(frame..bytes, frame, seed);
            match catch_unwind(AssertUnwindSafe(|| body(&mut session))) {
                Ok(()) => session.finish(),
                Err(panic) => {
                    if session.sanitizer.total() > 0 {
                        eprintln!("{}", session.sanitizer);
                    }
                    resume_unwind(panic);
                }
            }
        });
    }

    /// Calls `body` for each seed, for tests that make their machine themselves: a
    /// [`Shared`](crate::Shared) one, an adapter's, one in a scheduler's model. The adversary of
    /// the configuration has the seed.
    ///
    /// # Panics
    /// Panics if `body` does, after the seed was printed. Panics if there are no seeds, or if
    /// `PTSAN_SEED` is no number.
    #[track_caller]
    pub fn each(self, body: impl Fn(u64, Config)) {
        seeds::for_each(self.seeds, |seed| {
            let adversary = self.config.adversary.map(|a| Adversary { seed, ..a });
            body(seed, Config { adversary, ..self.config.clone() });
        });
    }
}
