//! Requests between CPUs to flush TLBs: their senders, the CPUs they meet, and ways to spare them.
//!
//! A recording has an event when a request is sent, to however many CPUs, and one at each CPU that
//! it interrupts while a recorded task runs there. A CPU that is idle or runs another program has
//! no event, so the difference is requests that met nobody who needed them.
mod pins;

use crate::price::{About, Answer, Effect, Moment, Row, Unit, Whole, percent};
use foldhash::HashMap;
use pins::ByProcess;
pub use pins::PinnableProgram;
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use ptarmigan_trace::{CloneKind, FlushEvent, Kind};
use std::collections::BTreeMap;

/// Counts requests by space.
#[derive(Default)]
pub struct Requests {
    of_task: HashMap<u32, u32>,
    spaces: ByProcess,
    programs: Vec<PinnableProgram>,
}

impl Requests {
    /// Returns the programs that sent requests, the most pinnable ones first: no program before the
    /// [`answer`](Row::answer), or if the recording has no flushes.
    pub fn programs(&self) -> &[PinnableProgram] {
        &self.programs
    }
}

impl Row for Requests {
    fn about(&self) -> About {
        About {
            name: "requests",
            title: "ask other CPUs less often to flush (pins, exact masks, INVLPGB)",
            reference: "R. van Riel, Update mm_cpumask lazily (209954cbc7d0, Linux 6.14) and INVLPGB \
                        (Linux 6.15), 2025",
            claim: "INVLPGB: 40 % to 4 % of CPU time in tlb_flush2_threads, 36 cores, by the cover letter",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let task = moment.event.task;
        if let Some(space) = moment.space {
            self.of_task.insert(task, space);
        }
        let space = self.of_task.get(&task).copied().unwrap_or(0);
        match moment.event.kind {
            Kind::Clone { child, kind } => {
                let forked = moment.effects.iter().find_map(|effect| match *effect {
                    Effect::Forked { child } => Some(child),
                    _ => None,
                });
                self.of_task.insert(child, forked.unwrap_or(space));
                if kind == CloneKind::Share {
                    self.spaces.thread(space);
                }
            }
            Kind::TlbFlush { reason, .. } => match FlushEvent::of(reason) {
                Some(FlushEvent::Requested) => self.spaces.request(space),
                Some(FlushEvent::ForOthers) => self.spaces.met(space),
                _ => {}
            },
            _ => {}
        }
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let linux = whole.flushes()?;
        let (sent, met, wrong) = (linux.requested.total(), linux.for_others.total(), linux.wrong_cpu);
        self.programs = self.spaces.programs(whole);
        let pinned: u64 = self.programs.iter().map(|program| program.pinnable).sum();
        let exact = sent.saturating_sub(met);
        let mut programs: BTreeMap<&str, u64> = BTreeMap::new();
        for row in &linux.requests {
            *programs.entry(&row.program).or_default() += row.requested.total();
        }
        let most = programs.iter().max_by_key(|(_, requests)| **requests);
        let (program, by_program) = most.map_or(("no program", 0), |(name, requests)| (name, *requests));
        let mut causes: Vec<_> = linux.by_cause.iter().filter(|row| row.requested.total() > 0).collect();
        causes.sort_by_key(|row| std::cmp::Reverse(row.requested.total()));
        let cause = causes.first().map_or("no cause", |row| row.cause.name());

        let mut answer = Answer::default();
        answer.figure("requests sent", sent as f64, "requests");
        for row in &causes {
            let name = format!("requests after {}", row.cause.name());
            answer.figure(name, row.requested.total() as f64, "requests");
        }
        answer.figure("requests of the first program", percent(by_program, sent), "%");
        answer.figure("flushes for a request", met as f64, "flushes");
        answer.figure("requests that met another program", wrong as f64, "requests");
        answer.figure("requests spared by pins", pinned as f64, "requests");
        // With all of its threads there, a program has nobody to ask.
        answer.figure("requests spared by one CPU", sent as f64, "requests");
        answer.figure("requests spared by an exact mask", exact as f64, "requests");
        answer.figure("requests spared by broadcasts", sent as f64, "requests");
        answer.saves(Unit::Request, pinned.max(exact) as i64);
        let first = causes.first().map_or(0, |row| row.requested.total());
        answer.counted = format!(
            "At least {} on {}, {:.0} % after {cause}, {:.0} % by {program}; {} met a CPU that ran a thread \
             of the space, and {} one with another recorded program.",
            several(sent, "request"),
            several(whole.trace.cpus as u64, "CPU"),
            percent(first, sent),
            percent(by_program, sent),
            Count(met),
            Count(wrong),
        );
        answer.cost = format!(
            "Pins spare {}, an exact mask {}, broadcasts all; a pinned process waits while other CPUs idle.",
            Count(pinned),
            Count(exact),
        );
        answer.when_not = format!(
            "Pins leave {} of processes whose threads run at once, and an exact mask {} that flushed.",
            several(sent - pinned.min(sent), "request"),
            Count(sent - exact),
        );
        answer.today = "taskset -c CPU pins, threads and children too; Linux 6.14 takes CPUs out of a mask by itself, but late; \
                        6.15 broadcasts for a process on more than three CPUs, where an AMD has INVLPGB."
            .to_owned();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
