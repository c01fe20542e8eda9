//! Advice on forks: children that start programs, and large parents.
use super::super::super::advice::{Advice, Details, To, Verdict};
use super::super::super::expect::{Expect, Figure};
use super::super::super::figures::{Saved, percent};
use super::super::forks::{Copied, ForkSizes, StartingFork};
use super::super::languages::{self, Language};
use super::super::rejected::not;
use super::super::seen::PAGE;
use super::super::share::Forks;
use super::{LEAST_SECONDS, LOWER_BOUND, Look, Proposal, Tables, UNSEEN_WRITES, list};
use foldhash::HashSet;
use ptarmigan_term::Failure;
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count, Time};
use ptarmigan_trace::{Call, Cause};
use std::collections::BTreeMap;

/// The fewest tables that large forks copy.
const LEAST_TABLES: u64 = 64;
/// The least part of the programs' CPU time that a saving of seconds has to be.
const LEAST_PART: f64 = 0.01;

/// Seconds of a fork that copies next to nothing, to weigh advice where they are not known.
const NOMINAL_FORK: f64 = 1e-4;

impl Look<'_> {
    /// Returns the seconds of a fork that copies next to nothing: the price of this host, or the
    /// shortest fork of the recording. If that took more than a tenth of the mean, all forks copied
    /// much, and nothing is known of a small one.
    fn small_fork(&self) -> Option<f64> {
        let shortest = self.facts.shortest_fork().map(|ns| ns as f64);
        let recorded = shortest.zip(self.facts.mean_fork()).filter(|(one, mean)| one * 10.0 <= *mean);
        let recorded = recorded.map(|(one, _)| one);
        let price = self.prices.map(|prices| prices.middle.fork).filter(|price| *price > 0.0);
        let ns = match (price, recorded) {
            (Some(price), Some(recorded)) => Some(price.min(recorded)),
            (price, recorded) => price.or(recorded),
        };
        ns.map(|ns| ns / 1e9)
    }

    /// Returns the seconds of timed forks, by program, and the seconds that the same take as
    /// `vfork`: a fork of `small` seconds, and an `execve` that ends no copy, for which the parent
    /// waits. The shortest of the recording is such an `execve`.
    fn seconds(&self, events: &HashSet<u32>, small: f64) -> BTreeMap<usize, (u64, f64, f64)> {
        let mut sums: BTreeMap<usize, (u64, f64, f64)> = BTreeMap::new();
        for (event, fork) in &self.facts.forks {
            if !events.contains(event) {
                continue;
            }
            let (count, fork_s, vfork_s) = sums.entry(fork.program).or_default();
            *count += 1;
            if let Some(ns) = fork.ns {
                let exec = self.facts.exec_ns(fork.child).min(self.facts.shortest_exec());
                let exec = exec.unwrap_or(0) as f64 / 1e9;
                (*fork_s, *vfork_s) = (*fork_s + ns as f64 / 1e9, *vfork_s + small + exec);
            }
        }
        sums
    }

    /// Advises `vfork` for children that only start a program.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn share(&self, found: &Forks, sizes: &ForkSizes<'_>) -> Result<Vec<Verdict>, Failure> {
        let kind = "vfork";
        let starters = found.starters();
        if starters.is_empty() {
            let part = self.recorded.trace().coverage().part();
            let reason = match (found.all, found.vforks, part) {
                (0, 1.., _) => format!("it starts programs by vfork already ({})", Count(found.vforks)),
                (0, 0, Some(part)) => format!("nothing that was recorded forks ({part})"),
                (0, 0, None) => "the program does not fork".to_owned(),
                (n, ..) => format!("of {} none only starts another program", several(n, "fork")),
            };
            return Ok(vec![not(kind, reason)]);
        }
        let small = self.small_fork();
        let seconds = self.seconds(&starters, small.unwrap_or(NOMINAL_FORK));
        let of = |users: bool| {
            let some = seconds.iter().filter(move |(program, _)| self.is_users(**program) == users);
            let timed = self.facts.timed;
            self.shares(some.map(move |(program, (count, s, _))| (*program, *count, timed.then_some(*s))))
        };
        let (programs, wrappers) = (of(true), of(false));
        let mut verdicts: Vec<Verdict> =
            self.of_wrappers(kind, "forks that only start a program", &wrappers).into_iter().collect();
        let all: u64 = programs.iter().map(|share| share.count).sum();
        if all == 0 {
            return Ok(verdicts);
        }
        let users: HashSet<u32> = starters
            .iter()
            .copied()
            .filter(|event| self.facts.forks.get(event).is_some_and(|fork| self.is_users(fork.program)))
            .collect();
        let sum = |of: fn(&(u64, f64, f64)) -> f64| {
            seconds.iter().filter(|(program, _)| self.is_users(**program)).map(|(_, s)| of(s)).sum::<f64>()
        };
        let (now, then) = (sum(|s| s.1), sum(|s| s.2));
        let largest = users.iter().filter_map(|event| sizes.starting.get(event)).max();
        let mut before = format!("{} of all forks are followed by execve, and nothing else before it", {
            percent(users.len() as f64 / found.all as f64)
        });
        if let Some(StartingFork { pages, tables, .. }) = largest {
            before += &format!(
                "; the largest parent has {} in {}",
                Bytes(pages << PAGE),
                several(*tables, "leaf table")
            );
        }
        before += ". ";
        let mut ends = 0.0;
        if now > 0.0 {
            let then = small.map(|_| format!("; as vfork, execve included, about {}", Time::from_secs(then)));
            before += &format!("They took {}{}. ", Time::from_secs(now), then.unwrap_or_default());
            let execs: u64 =
                users.iter().filter_map(|event| self.facts.exec_ns(self.facts.forks.get(event)?.child)).sum();
            ends = execs as f64 / 1e9
                - users.len() as f64 * self.facts.shortest_exec().unwrap_or(0) as f64 / 1e9;
            if self.counts(ends) {
                before +=
                    &format!("The execve of their children took {} for the copies. ", Time::from_secs(ends));
            } else {
                ends = 0.0;
            }
        }
        if self.recorded.trace().access_unknown {
            before += LOWER_BOUND;
        }
        let caller = self.caller(&programs, Cause::Call(Call::Fork));
        let forks = (now - then).max(0.0);
        let forking = programs.iter().filter_map(|share| self.facts.named(&share.name));
        let how = languages::each(forking, Language::starting);
        verdicts.push(
            self.weigh(Proposal {
                kind,
                title: format!(
                    "share tables with children that only start a program: {} of {}, by {}",
                    Count(all),
                    several(found.all, "fork"),
                    list(&programs, programs.iter().any(|share| share.seconds.is_some()))
                ),
                before,
                how,
                not_measured: "what the parent could do while it waits for the child's execve, and what \
                           children do to memory without a fault: with vfork they write their parent's."
                    .to_owned(),
                corrected: found.only(|event| users.contains(&event)).rewrite(self.recorded.trace()),
                faults_as_calls: 0,
                details: Details { programs, caller, ..Details::default() },
                seconds: Some(forks + ends).filter(|saved| self.counts(*saved)),
                seconds_of: small.map(|_| (Figure::ForkSeconds, forks)),
                raises_peak: false,
                tables: Tables::Counted,
            })?,
        );
        Ok(verdicts)
    }

    /// Returns whether a saving of seconds is worth a change.
    pub fn counts(&self, seconds: f64) -> bool {
        let part = self.part_of_cpu(seconds);
        seconds >= LEAST_SECONDS && (part == 0.0 || part >= LEAST_PART)
    }

    /// Advises forks of a smaller process, for children that live on.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn forks(&self, found: &ForkSizes<'_>) -> Result<Vec<Verdict>, Failure> {
        let kind = "fork-memory";
        let mut verdicts = Vec::new();
        for (&program, copied) in &found.programs {
            if !self.is_users(program) {
                continue;
            }
            let timed = Time::from_nanos(copied.ns as f64);
            let name = &self.facts.programs[program].name;
            let took = if copied.timed > 0 { format!(" and took {timed}") } else { String::new() };
            let sizes = format!(
                "{} of {name} copied up to {} in {}{took}",
                several(copied.forks, "fork"),
                Bytes(copied.most_pages << PAGE),
                several(copied.tables, "leaf table")
            );
            if self.recorded.trace().access_unknown {
                verdicts.push(not(
                    kind,
                    format!("{sizes}; whether the children or their parent copy pages then, {UNSEEN_WRITES}"),
                ));
                continue;
            }
            if copied.is_snapshot() {
                verdicts.push(not(
                    kind,
                    format!(
                        "{sizes}; children read what they got, and the parent copies what it writes \
                         meanwhile ({}): a fork costs by the size of the data",
                        several(copied.by_parents, "page")
                    ),
                ));
                continue;
            }
            verdicts.push(self.large_fork(found, program, copied, sizes)?);
        }
        if verdicts.is_empty() {
            verdicts.push(not(kind, "no process of 16 MiB or more forks children that live on".to_owned()));
        }
        Ok(verdicts)
    }

    fn large_fork(
        &self,
        found: &ForkSizes<'_>,
        program: usize,
        copied: &Copied,
        sizes: String,
    ) -> Result<Verdict, Failure> {
        let kind = "fork-memory";
        let now = copied.ns as f64 / 1e9;
        let saved = self.small_fork().map(|small| now - copied.timed as f64 * small);
        let seconds = saved.filter(|saved| self.counts(*saved));
        if copied.tables < LEAST_TABLES && seconds.is_none() {
            return Ok(not(kind, format!("{sizes}: too little to save")));
        }
        let programs = self.shares([(program, copied.forks, (copied.timed > 0).then_some(now))].into_iter());
        let caller = self.caller(&programs, Cause::Call(Call::Fork));
        let facts = &self.facts.programs[program];
        let how = Language::of(facts).forking_early().to_owned();
        let untouched = found.untouched(program);
        let title = format!("fork from a smaller process: {}", facts.name);
        let not_measured = "reads of inherited pages, which make no fault: whether children need the memory \
                            is for you to tell. What it costs to hand them their data in another way."
            .to_owned();
        let details = Details { programs, caller, ..Details::default() };
        let written =
            format!("{sizes}. Children copied {} of it by writing. ", several(copied.by_children, "page"));
        if untouched > 0 {
            return self.weigh(Proposal {
                kind,
                title,
                before: format!(
                    "{written}They had no fault in {} of its mappings, all forks added up; without those: ",
                    Bytes(untouched << PAGE)
                ),
                how,
                not_measured,
                corrected: found.rewrite(self.recorded.trace(), program),
                faults_as_calls: 0,
                details,
                seconds,
                seconds_of: seconds.map(|saved| (Figure::ForkSeconds, saved)),
                raises_peak: false,
                tables: Tables::Counted,
            });
        }
        // Children write to all of the mappings: no replay shows what they would do without.
        let Some(seconds) = seconds else {
            return Ok(not(kind, format!("{sizes}; children write to each of its mappings")));
        };
        let names = [facts.name.clone()];
        let expect = Expect::new(Figure::ForkSeconds, &names, seconds, self.facts, self.whole);
        let without = self.whole.clone();
        let mut saved = Saved::between(&without, &without);
        saved.forget_times();
        Ok(Verdict::Advised(Box::new(Advice {
            kind,
            to: To::Program,
            title,
            figure: format!("{written}Forks of a small process take {} less.", Time::from_secs(seconds)),
            how,
            not_measured,
            value: self.part_of_cpu(seconds),
            with: without.clone(),
            without,
            saved,
            details: Details { expect: expect.into_iter().collect(), seconds: Some(seconds), ..details },
            linux: None,
            variants: Vec::new(),
        })))
    }
}
