//! Flushes of this host, timed.
use std::io;

use super::case::{Case, Grid};
use super::mappings::Mappings;
use super::random::Random;
use super::sample::TimedFlush;
use crate::neighbour::Neighbour;
use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::clock::Clock;

/// Times that a case is repeated because the neighbour did not run all the time.
const TRIES: usize = 100;

/// Flushes of this process, on its first CPU alone or with a neighbour on the second.
pub(super) struct HostFlush {
    mappings: Mappings,
    clock: Clock,
    neighbour: Option<Neighbour>,
    _here: AffinityGuard,
}

impl HostFlush {
    /// Maps pages, and stays on one CPU from now on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub(super) fn new(grid: Grid, seed: u64) -> io::Result<Self> {
        // First, as a thread inherits where its parent may run.
        let neighbour = if grid.cpus > 1 { Some(Neighbour::start()?) } else { None };
        let here = AffinityGuard::on(0)?;
        let mappings = Mappings::new(grid.most_pages() + 1, &mut Random(seed))?;
        Ok(HostFlush { mappings, clock: Clock::calibrate(), neighbour, _here: here })
    }

    /// Carries a case out, and returns its time and whether the neighbour ran.
    fn once(&mut self, case: Case) -> io::Result<(f64, bool)> {
        let Case { setting, call, pages } = case;
        let HostFlush { mappings, clock, neighbour, .. } = self;
        mappings.prepare(call, pages)?;
        mappings.read(setting.working_set);
        if let Some(neighbour) = neighbour {
            neighbour.wait()?;
        }
        let beats = |neighbour: &Option<Neighbour>| neighbour.as_ref().map(Neighbour::beats);
        let first = beats(neighbour);
        let start = clock.now();
        let done = mappings.call(call, pages);
        mappings.read(setting.working_set);
        let ns = clock.between(start, clock.now());
        let ran = neighbour.is_none() || beats(neighbour) != first;
        done?;
        mappings.undo(call, pages)?;
        Ok((ns, ran))
    }
}

impl TimedFlush for HostFlush {
    type Error = io::Error;

    fn time(&mut self, case: Case) -> io::Result<f64> {
        for _ in 0..TRIES {
            let (ns, ran) = self.once(case)?;
            if ran {
                return Ok(ns);
            }
        }
        Err(Neighbour::absent())
    }
}
