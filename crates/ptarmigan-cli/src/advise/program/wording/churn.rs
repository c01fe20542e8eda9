//! Advice on memory that a program gives back and takes again, and on arrays that grow.
use super::super::super::advice::{Details, Verdict};
use super::super::churn::{Churn, ChurnSaving, Remapped};
use super::super::growth::{Growth, GrowthSaving};
use super::super::languages::{self, Language};
use super::super::rejected::not;
use super::super::seen::PAGE;
use super::super::switches::{self, Returning};
use super::{CHURN, GROWTH, Look, Proposal, Tables, list};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count, Failure, Time};
use ptarmigan_trace::{Call, Cause, Object};
use std::collections::{BTreeMap, BTreeSet};

/// The least part of a program's faults that come back.
const LEAST_PART: f64 = 0.05;
/// The fewest faults of a program that come back, or calls that give memory back.
const LEAST: u64 = 256;

/// The most threads that a runtime has for itself.
const THREADS_OF_RUNTIME: u64 = 16;
/// More mappings than the segments of a library have.
const SEGMENTS: u64 = 16;
/// Bytes that a program may have more at its peak, beside twice as much.
const MORE: u64 = 64 << 20;

impl Look<'_> {
    /// Advises to keep memory that a program gives back and takes again.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn churn(&self, found: &Churn) -> Result<Verdict, Failure> {
        let kind = CHURN;
        let mut programs: BTreeMap<usize, ChurnSaving> = BTreeMap::new();
        for (number, comes) in &found.programs {
            if found.is_followed(*number) {
                programs.entry(self.facts.program(*number)).or_default().add(comes);
            }
        }
        let all: u64 = programs.values().map(|comes| comes.faults).sum();
        programs.retain(|program, comes| {
            let many = self.are_many(*program, comes.faults);
            let often = comes.calls.values().sum::<u64>() >= LEAST;
            self.is_users(*program)
                && (many || often && self.counts(self.call_seconds(*program, &comes.calls)))
        });
        if programs.is_empty() {
            let reason = match all {
                0 => "no program faults memory in again that it gave back".to_owned(),
                n => format!("{} on memory that was given back, which is little", several(n, "fault")),
            };
            return Ok(not(kind, reason));
        }
        // Where no page comes back, it is the calls that are too many.
        let back: u64 = programs.values().map(|comes| comes.faults).sum();
        let count = |comes: &ChurnSaving| if back > 0 { comes.faults } else { comes.calls.values().sum() };
        let shares = self.shares(programs.iter().map(|(program, comes)| (*program, count(comes), None)));
        let (most, kept) = (found.recorded.most << PAGE, found.kept.most << PAGE);
        // Calls alone are no reason to keep memory that nobody needs again.
        let bound = if back > 0 { most * 2 + MORE } else { most + most / 8 };
        if kept > bound {
            let kept_by =
                format!("memory that {} would keep takes {} at most", list(&shares, false), Bytes(kept));
            return Ok(not(kind, format!("{kept_by}, instead of {}", Bytes(most))));
        }
        let mut calls: BTreeMap<Call, u64> = BTreeMap::new();
        for (call, n) in programs.values().flat_map(|comes| &comes.calls) {
            *calls.entry(*call).or_default() += n;
        }
        let named: Vec<String> =
            calls.iter().map(|(call, n)| format!("{} {}", Count(*n), call.name())).collect();
        let seconds: f64 =
            programs.iter().map(|(program, comes)| self.call_seconds(*program, &comes.calls)).sum();
        let giver = [Call::Munmap, Call::Madvise, Call::Brk]
            .into_iter()
            .filter(|call| calls.contains_key(call))
            .max_by_key(|call| calls[call])
            .and_then(|call| Some((call, self.caller(&shares, Cause::Call(call))?)));
        let mut before = format!(
            "{} of {} are on pages that the process had and gave back. ",
            Count(back),
            several(self.whole.faults, "fault")
        );
        if !named.is_empty() {
            let took = if seconds > 0.0 {
                format!(", which took {}", Time::from_secs(seconds))
            } else {
                String::new()
            };
            before += &format!("Not made if it keeps them: {}{took}. ", named.join(", "));
        }
        if let Some((call, giver)) = giver {
            before += &format!("Most {} by {giver}. ", call.name());
        }
        before += &format!("Private memory is at most {} instead of {}. ", Bytes(kept), Bytes(most));
        let hows: BTreeSet<String> =
            programs.iter().map(|(program, comes)| self.how_to_keep(*program, comes)).collect();
        let caller = self.caller(&shares, Cause::Fault);
        let chosen =
            |number: u32| found.is_followed(number) && programs.contains_key(&self.facts.program(number));
        self.weigh(Proposal {
            kind,
            title: match back {
                0 => {
                    format!("give memory back less often: {}, by {}", named.join(", "), list(&shares, false))
                }
                _ => format!(
                    "keep memory that comes back: {}, by {}",
                    several(back, "fault"),
                    list(&shares, false)
                ),
            },
            before,
            how: hows.into_iter().collect::<Vec<_>>().join(". ") + ".",
            not_measured:
                "memory that has to be cleared before it is used again, and free memory that falls \
                           to pieces."
                    .to_owned(),
            corrected: found.rewrite(self.recorded.trace(), chosen),
            faults_as_calls: 0,
            details: Details { programs: shares, caller, ..Details::default() },
            seconds: Some(seconds).filter(|_| self.facts.timed),
            seconds_of: None,
            raises_peak: true,
            tables: Tables::Open,
        })
    }

    /// Advises to keep mappings of files and shared memory that a program unmaps and maps again.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn mapped_again(&self, found: &Churn) -> Result<Option<Verdict>, Failure> {
        let mut counts: BTreeMap<usize, (u64, u32, Remapped)> = BTreeMap::new();
        for (number, again) in &found.again {
            let of = counts.entry(self.facts.program(*number)).or_insert((0, *number, *again));
            of.0 += again.times;
        }
        let seconds = |program: usize, times: u64| {
            let calls = BTreeMap::from([(Call::Mmap, times), (Call::Munmap, times)]);
            self.call_seconds(program, &calls)
        };
        counts
            .retain(|program, (times, ..)| self.is_users(*program) && self.counts(seconds(*program, *times)));
        let Some((_, (_, number, again))) = counts.iter().max_by_key(|(_, (times, ..))| *times) else {
            return Ok(None);
        };
        let all: f64 = counts.iter().map(|(program, (times, ..))| seconds(*program, *times)).sum();
        let shares = self.shares(counts.iter().map(|(program, (times, ..))| (*program, *times, None)));
        let (name, is_library) = self.mapped_often(*number);
        let caller = self.caller(&shares, Cause::Call(Call::Mmap));
        self.weigh(Proposal {
            kind: CHURN,
            title: format!(
                "keep mappings of {name}: {} times, by {}",
                Count(shares.iter().map(|share| share.count).sum()),
                list(&shares, false)
            ),
            before: format!(
                "They are unmapped and mapped again in the same length, of {} and more: two calls each time, which \
                 took {}, and faults on the same pages. The recording does not say whether it is the same \
                 part. ",
                Bytes(again.pages << PAGE),
                Time::from_secs(all)
            ),
            how: if is_library {
                "load the library once and keep it: no dlclose, or dlopen with RTLD_NODELETE."
            } else {
                "keep the last mapping, and map larger parts at once; read small files into a buffer that stays."
            }
            .to_owned(),
            not_measured: "addresses that the kept mappings take, and pages of other parts.".to_owned(),
            corrected: found.without_mapped_again(self.recorded.trace(), |number| {
                counts.contains_key(&self.facts.program(number))
            }),
            faults_as_calls: 0,
            details: Details { programs: shares, caller, ..Details::default() },
            seconds: Some(all),
            seconds_of: None,
            raises_peak: true,
            tables: Tables::Open,
        })
        .map(Some)
    }

    /// Names what a program maps more than once, and whether it is a library.
    fn mapped_often(&self, number: u32) -> (String, bool) {
        let mut times: BTreeMap<(Object, &str), u64> = BTreeMap::new();
        for mapping in &self.facts.programs[self.facts.program(number)].mappings {
            if let Some(name) = mapping.name.as_deref() {
                *times.entry((mapping.object, name)).or_default() += 1;
            }
        }
        times.retain(|(object, _), times| match object {
            Object::File | Object::SharedMemory => *times > 1,
            // Each of its segments is a mapping.
            Object::Library => *times > SEGMENTS,
            _ => false,
        });
        let is_library = times.keys().all(|(object, _)| *object == Object::Library) && !times.is_empty();
        // The first of those with the most.
        let most = times.iter().rev().max_by_key(|(_, times)| **times).map(|(of, _)| *of);
        let text = match (times.len(), most) {
            (1, Some((object, name))) => format!("{} {name}", object.name()),
            (n, Some((_, name))) => format!("{} files, such as {name}", Count(n as u64)),
            (_, None) => "files or shared memory".to_owned(),
        };
        (text, is_library)
    }

    /// Advises to move arrays that grow instead of copying them.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn growth(&self, found: &Growth) -> Result<Verdict, Failure> {
        let mut programs: BTreeMap<usize, GrowthSaving> = BTreeMap::new();
        for (number, one) in &found.programs {
            programs.entry(self.facts.program(*number)).or_default().add(one);
        }
        programs.retain(|program, saving| self.is_users(*program) && self.are_many(*program, saving.faults));
        if programs.is_empty() {
            return Ok(not(GROWTH, "no program often copies a mapping into a longer one".to_owned()));
        }
        let sum = |of: fn(&GrowthSaving) -> u64| programs.values().map(of).sum::<u64>();
        let longest = programs.values().map(|saving| saving.longest).max().unwrap_or_default();
        let shares = self.shares(programs.iter().map(|(program, saving)| (*program, saving.faults, None)));
        let grown = programs.keys().map(|program| &self.facts.programs[*program]);
        // The calls that take the pages of the shorter ones away.
        let freed = |(program, saving): (&usize, &GrowthSaving)| {
            self.call_seconds(*program, &BTreeMap::from([(Call::Munmap, saving.steps)]))
        };
        let seconds: f64 = programs.iter().map(freed).sum();
        let caller = self.caller(&shares, Cause::Call(Call::Mmap));
        self.weigh(Proposal {
            kind: GROWTH,
            title: format!(
                "move arrays that grow: {} of copies, by {}",
                several(sum(|saving| saving.faults), "fault"),
                list(&shares, false)
            ),
            before: format!(
                "{} by a copy: a longer mapping of up to {}, and the shorter one is unmapped. ",
                several(sum(|saving| saving.steps), "step"),
                Bytes(longest << PAGE)
            ),
            how: languages::each(grown, Language::growing),
            not_measured: "the copy itself, which is not made either.".to_owned(),
            corrected: found
                .rewrite(self.recorded.trace(), |number| programs.contains_key(&self.facts.program(number))),
            faults_as_calls: 0,
            details: Details { programs: shares, caller, ..Details::default() },
            seconds: Some(seconds).filter(|_| self.facts.timed),
            seconds_of: None,
            raises_peak: false,
            tables: Tables::Open,
        })
    }

    /// Returns whether faults that a change spares are many beside all of a program.
    fn are_many(&self, program: usize, faults: u64) -> bool {
        faults >= LEAST && faults as f64 >= self.facts.programs[program].faults as f64 * LEAST_PART
    }

    /// Returns the seconds of so many calls of a program, as long as its others.
    fn call_seconds(&self, program: usize, calls: &BTreeMap<Call, u64>) -> f64 {
        let timed = &self.facts.programs[program].calls;
        let of = |(call, n): (&Call, &u64)| {
            let time = timed.get(call).copied().unwrap_or_default();
            time.ns as f64 / 1e9 * (*n as f64 / time.times.max(1) as f64).min(1.0)
        };
        calls.iter().map(of).sum()
    }

    fn how_to_keep(&self, program: usize, comes: &ChurnSaving) -> String {
        let made = |call: Call| comes.calls.get(&call).copied().unwrap_or_default();
        let all: u64 = comes.calls.values().sum();
        let brks = made(Call::Brk);
        let heap = comes.in_heap * 2 > comes.faults
            || comes.faults == 0 && brks * 2 > all
            || comes.taken == 0 && brks > 0;
        let most = |part: u64| !heap && part * 2 > comes.taken;
        let others = made(Call::Madvise) + made(Call::Mremap) + brks;
        let unmaps = made(Call::Munmap);
        let facts = &self.facts.programs[program];
        let memory = Returning {
            heap,
            stacks: if comes.faults > 0 { comes.in_stacks * 2 > comes.faults } else { most(comes.stacks) },
            threads: facts.threads > 0,
            workers: facts.threads > facts.starts.max(1) * THREADS_OF_RUNTIME,
            own: most(comes.reserves) || !heap && unmaps > others && comes.cuts * 4 > unmaps,
            advised: match heap {
                true => comes.heap_advised > brks,
                false => made(Call::Madvise) * 2 > all,
            },
            longest: comes.longest,
            kept: comes.kept,
        };
        if let Some(words) = switches::keep_by_name(&facts.name).filter(|_| !heap) {
            return words.to_owned();
        }
        let symbols = &self.recorded.trace().symbols;
        let freed_by = |call| self.facts.caller(program, Cause::Call(call), symbols);
        let by_buffers = |call| freed_by(call).is_some_and(|(by, _)| by.starts_with(switches::JAVA_FREE));
        if [Call::Munmap, Call::Brk, Call::Madvise].into_iter().any(by_buffers) {
            return switches::KEEP_BUFFERS.to_owned();
        }
        if self.facts.has_caller(program, switches::GHC_RUNTIME, symbols) && !heap {
            return switches::KEEP_GHC.to_owned();
        }
        switches::keep(switches::owner(&facts.runtimes, heap), memory)
    }
}
