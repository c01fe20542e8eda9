//! Advice on memory: empty tables, layouts, arenas, and shared memory.
use super::super::super::advice::{Advice, Details, MappingPlace, Verdict};
use super::super::awaited::{self, Awaited};
use super::super::empty::EmptyTables;
use super::super::pack;
use super::super::protect::{Protected, Protections};
use super::super::rejected::not;
use super::super::seen::PAGE;
use super::super::shared::{SharedMappings, SharedObject, spaces_by_program};
use super::super::spread::{self, PackableZones};
use super::super::switches;
use super::{Look, PROTECT, Proposal, Tables, list};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count, Failure, Time};
use ptarmigan_trace::{Call, Cause, Runtime};
use std::collections::{BTreeMap, BTreeSet};

/// The least part of the tables, at the peak or at the end, that a denser layout has to save.
const LEAST_PART: f64 = 0.1;

/// The fewest calls that change protections.
const LEAST_PROTECTS: u64 = 256;
/// The fewest present pages of such a call, on average.
const MANY_PAGES: u64 = 64;
/// A part of the CPU time that is large.
const LARGE_PART: f64 = 0.1;
/// The fewest tables that it has to save.
const LEAST_TABLES: i64 = 8;

/// The words for a number of tables and their bytes.
fn tables(n: u64) -> String {
    format!("{} ({})", several(n, "table"), Bytes(n << PAGE))
}

/// Returns whether a denser layout saves a part of the tables that is worth a change of the
/// program. Tables that are made again and again are another matter.
fn is_much(advice: &Advice) -> bool {
    let Advice { saved, without, .. } = advice;
    let much = |saved: i64, of: u64| saved >= LEAST_TABLES && saved as f64 >= of as f64 * LEAST_PART;
    much(saved.tables_peak, without.tables_peak) || much(saved.tables_at_end, without.tables_at_end)
}

impl Look<'_> {
    /// Advises calls for whole tables where pieces leave empty ones.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn empty(&self, found: &EmptyTables) -> Result<Verdict, Failure> {
        let kind = "empty-tables";
        let regions = found.regions();
        let (told, wrappers): (Vec<_>, Vec<_>) =
            regions.into_iter().partition(|(number, _)| self.is_told(*number));
        let all: u64 = told.iter().map(|(_, n)| n).sum();
        let counted = match (found.peak, found.at_end) {
            (0, 0) => String::new(),
            (peak, 0) => format!("at most {} empty at once", tables(peak)),
            (0, at_end) => format!("{} empty at the ends of address spaces", tables(at_end)),
            (peak, at_end) => format!(
                "at most {} empty at once, and {} at the ends of address spaces",
                tables(peak),
                tables(at_end)
            ),
        };
        let mut reclaimed = String::new();
        if found.reclaimed > 0 {
            reclaimed = format!(
                "calls of MADV_DONTNEED for whole tables give {} back on Linux 6.14 and later, and none \
                 before",
                tables(found.reclaimed)
            );
        }
        if all == 0 {
            let mut reasons = vec![match (found.refilled, wrappers.as_slice()) {
                (0, []) => "memory that is given back leaves no empty table behind".to_owned(),
                (0, _) => "empty tables are of programs that start others".to_owned(),
                (n, _) => {
                    format!(
                        "calls for a part leave {} empty, and the program uses all of that again",
                        several(n, "table")
                    )
                }
            }];
            reasons.extend(Some(counted).filter(|text| !text.is_empty()));
            reasons.extend(Some(reclaimed).filter(|text| !text.is_empty()));
            return Ok(not(kind, reasons.join("; ")));
        }
        let programs = self.by_program(told.into_iter());
        let caller = self.caller(&programs, Cause::Call(Call::Madvise));
        let also = if reclaimed.is_empty() { String::new() } else { format!(" Beside that, {reclaimed}.") };
        self.weigh(Proposal {
            kind,
            title: format!(
                "give memory back in whole 2 MiB: {} left empty by {}",
                several(all, "table"),
                list(&programs, false)
            ),
            before: format!("Calls for a part take the last page of a table and leave it: {counted}.{also} "),
            how: "when the last page of an aligned 2 MiB is free, call madvise(MADV_DONTNEED) once for all \
                  2 MiB (Linux 6.14 and later frees the table then), or munmap them. jemalloc, mimalloc: a \
                  larger purge or segment size."
                .to_owned(),
            not_measured: "the calls themselves, and kernels before 6.14, which keep such tables until \
                           munmap."
                .to_owned(),
            corrected: found.rewrite(self.recorded.trace(), |number| self.is_told(number)),
            faults_as_calls: 0,
            details: Details { programs, caller, ..Details::default() },
            seconds: None,
            seconds_of: None,
            raises_peak: false,
            tables: Tables::Counted,
        })
    }

    /// Advises a denser layout, or fewer arenas.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn spread(&self, mut found: PackableZones) -> Result<Verdict, Failure> {
        found.programs.retain(|number, _| self.is_told(*number));
        if found.programs.is_empty() {
            return Ok(not(found.kind, found.without.to_owned()));
        }
        let runtimes = |number: u32| &self.facts.programs[self.facts.program(number)].runtimes;
        if found.kind == spread::ARENAS {
            // Arenas of that size are glibc's: an allocator that is known to be another one has
            // others.
            found.programs.retain(|number, _| {
                runtimes(*number).is_empty() || runtimes(*number).contains(&Runtime::Glibc)
            });
            if found.programs.is_empty() {
                return Ok(not(found.kind, "mappings of 64 MiB are not of glibc's malloc".to_owned()));
            }
        } else {
            // A runtime that maps all memory of a program has laid it out, not the program.
            let layer = |number: u32| switches::lays_out(self.facts.name(number), runtimes(number));
            let theirs: BTreeSet<String> = found
                .programs
                .keys()
                .filter_map(|number| Some(format!("{} of {}", layer(*number)?, self.facts.name(*number))))
                .collect();
            let all = found.title();
            found.programs.retain(|number, _| layer(*number).is_none());
            if found.programs.is_empty() {
                let theirs: Vec<String> = theirs.into_iter().collect();
                return Ok(not(found.kind, format!("{all}, laid out by {}", theirs.join(", "))));
            }
        }
        let programs = self.by_program(found.regions());
        let title = found.title();
        let PackableZones { kind, how, programs: packed, .. } = found;
        let verdict = self.weigh(Proposal {
            kind,
            title: format!("{title}: {}", list(&programs, false)),
            before: String::new(),
            how: how.to_owned(),
            not_measured: "what the data structures cost that keep pages together, and locks that are \
                           shared then; stacks of threads, and zones that mremap moves or that hold files, stay \
                           where they are."
                .to_owned(),
            corrected: pack::pack(self.recorded.trace(), &packed),
            faults_as_calls: 0,
            // One arena for many threads may cost many times the CPU time that its tables save.
            details: Details { programs, uncertain: kind == spread::ARENAS, ..Details::default() },
            seconds: None,
            seconds_of: None,
            raises_peak: false,
            tables: if kind == spread::SPARSE_LAYOUT { Tables::MadeAgain } else { Tables::Counted },
        })?;
        Ok(match verdict {
            Verdict::Advised(advice) if kind == spread::SPARSE_LAYOUT && !is_much(&advice) => not(
                kind,
                format!(
                    "{}: less than a tenth of the tables at the peak, and of those at the end of programs",
                    advice.title
                ),
            ),
            verdict => verdict,
        })
    }

    /// Advises to change the protection of fewer pages at once. `None` if calls walk few.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn protect(&self, found: &Protections) -> Result<Option<Verdict>, Failure> {
        let mut programs: BTreeMap<usize, (u32, Protected)> = BTreeMap::new();
        for (number, one) in &found.programs {
            let (first, all) = programs.entry(self.facts.program(*number)).or_insert((*number, *one));
            if first != number {
                (all.calls, all.pages) = (all.calls + one.calls, all.pages + one.pages);
                all.executable += one.executable;
                all.longest = std::cmp::max_by_key(all.longest, one.longest, |longest| longest.1);
            }
        }
        let seconds = |program: usize| {
            let timed = self.facts.programs[program].calls.get(&Call::Mprotect).copied().unwrap_or_default();
            timed.ns as f64 / 1e9
        };
        programs.retain(|program, (_, of)| {
            let walks = of.pages >= of.calls * MANY_PAGES;
            // A compiler at run time, or a write barrier.
            let much = self.part_of_cpu(seconds(*program)) >= LARGE_PART;
            let many = of.calls >= LEAST_PROTECTS && (walks || much);
            self.is_users(*program) && many && self.counts(seconds(*program))
        });
        let all: f64 = programs.keys().map(|program| seconds(*program)).sum();
        let calls: u64 = programs.values().map(|(_, of)| of.calls).sum();
        let pages: u64 = programs.values().map(|(_, of)| of.pages).sum();
        let Some((_, (number, of))) = programs.iter().max_by_key(|(_, (_, of))| of.pages) else {
            return Ok(None);
        };
        let walk = pages >= calls * MANY_PAGES;
        let code = programs.values().map(|(_, of)| of.executable).sum::<u64>() * 4 >= calls;
        let (first, length) = of.longest;
        let place = MappingPlace {
            program: self.facts.name(*number).to_owned(),
            mapping: self.facts.mapping(*number, first).unwrap_or_else(|| "memory".to_owned()),
            address: first << PAGE,
            bytes: length << PAGE,
        };
        let shares = self.shares(programs.iter().map(|(program, (_, of))| (*program, of.calls, None)));
        let caller = self.caller(&shares, Cause::Call(Call::Mprotect));
        self.weigh(Proposal {
            kind: PROTECT,
            title: format!(
                "{}: {} mprotect, by {}",
                if walk { "change the protection of fewer pages" } else { "change protections less often" },
                Count(calls),
                list(&shares, false)
            ),
            before: format!(
                "Each call changes and flushes all present pages of its range, {} on average. They took {}{}. ",
                Count(pages / calls),
                Time::from_secs(all),
                if walk { ", of which pages that need no change have the most" } else { "" }
            ),
            how: match (walk, code) {
                (true, _) => {
                    "mprotect the pages that are written, not the whole region; a second mapping that stays \
                     writable; or protection keys (pkey_mprotect once, then pkey_set)."
                }
                (false, true) => {
                    "a second mapping that stays writable; or protection keys (pkey_mprotect once, then \
                     pkey_set)."
                }
                (false, false) => {
                    "one call for a larger range. Where the faults tell which pages are written: marks that the \
                     program sets itself, write protection by userfaultfd (UFFDIO_WRITEPROTECT, Linux 5.7) or \
                     the soft-dirty bits of /proc/PID/pagemap. Where they guard: fewer guard pages."
                }
            }
            .to_owned(),
            not_measured: "what a call for a few pages takes.".to_owned(),
            corrected: self.recorded.trace().clone(),
            faults_as_calls: 0,
            details: Details { programs: shares, places: vec![place], caller, ..Details::default() },
            seconds: Some(all),
            seconds_of: None,
            raises_peak: false,
            tables: Tables::Counted,
        })
        .map(Some)
    }

    /// Advises to bring more than a page at each fault that another thread serves.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn awaited(&self, found: &Awaited) -> Result<Verdict, Failure> {
        let kind = "userfault";
        let shares = self.by_program(found.spared().into_iter());
        if shares.is_empty() {
            return Ok(not(kind, "no program waits about once for each fault".to_owned()));
        }
        let caller = self.caller(&shares, Cause::Fault);
        self.weigh(Proposal {
            kind,
            title: format!(
                "bring more than a page at each fault: {} wait for another thread, by {}",
                several(shares.iter().map(|share| share.count).sum(), "fault"),
                list(&shares, false)
            ),
            before: format!(
                "The program waited about once for each fault: it seems that a thread brings the pages \
                 (userfaultfd). One copy of {} serves the faults on all of its pages. ",
                Bytes(awaited::UNIT << PAGE)
            ),
            how: "UFFDIO_COPY of larger ranges around the fault, or of the whole memory in pieces ahead of the \
                  faults, in a thread of its own; a file that is mapped privately instead of copies."
                .to_owned(),
            not_measured: "the wake-ups that are not made (often the largest gain), and copies of pages that \
                           nobody reads."
                .to_owned(),
            corrected: found.rewrite(self.recorded.trace()),
            faults_as_calls: 0,
            // As many waits as faults may be a coincidence, as of a server with a page for each
            // request.
            details: Details { programs: shares, caller, uncertain: true, ..Details::default() },
            seconds: None,
            seconds_of: None,
            raises_peak: true,
            tables: Tables::Open,
        })
    }

    /// Names the tables of a file that many processes map, as a part of a sentence.
    fn of_file(&self, file: &SharedObject) -> String {
        let spaces = self.shares(file.spaces.iter().map(|(program, spaces)| (*program, *spaces, None)));
        format!(
            "{} of {}: {}, at most {} at once, for {} of a file that {} map ({}); {}",
            file.name.as_deref().unwrap_or_default(),
            Bytes(file.pages << PAGE),
            several(file.tables, "leaf table"),
            tables(file.tables_peak),
            Bytes(file.touched() << PAGE),
            several(spaces.iter().map(|share| share.count).sum(), "process"),
            list(&spaces, false),
            file.switch(&[])
        )
    }

    /// Advises huge pages for shared memory that many processes map.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn shared(&self, found: &SharedMappings<'_>) -> Result<Verdict, Failure> {
        let kind = "shared-memory";
        let chosen = found.found();
        if chosen.is_empty() {
            if let Some(file) = found.file() {
                return Ok(not(kind, self.of_file(file)));
            }
            let reason = match found.objects.len() {
                0 => "no shared memory of 4 MiB or more is mapped".to_owned(),
                n => format!(
                    "of {} of shared memory no two processes fill tables for one",
                    several(n as u64, "object")
                ),
            };
            return Ok(not(kind, reason));
        }
        let mut objects: Vec<&SharedObject> = chosen.iter().map(|at| &found.objects[*at]).collect();
        objects.sort_by_key(|object| std::cmp::Reverse(object.tables));
        let programs = self
            .shares(spaces_by_program(&objects).into_iter().map(|(program, spaces)| (program, spaces, None)));
        let names: Vec<&str> = programs.iter().map(|share| share.name.as_str()).collect();
        let sum = |of: fn(&SharedObject) -> u64| objects.iter().map(|object| of(object)).sum::<u64>();
        let (made, bytes) = (sum(|object| object.tables), sum(|object| object.pages) << PAGE);
        let processes: u64 = programs.iter().map(|share| share.count).sum();
        let place = |object: &&SharedObject| MappingPlace {
            program: names.first().copied().unwrap_or_default().to_owned(),
            mapping: object
                .name
                .as_ref()
                .map_or("shared memory".to_owned(), |name| format!("shared memory {name}")),
            address: object.range().start,
            bytes: object.range().len(),
        };
        let places = objects.iter().take(3).map(place).collect();
        let caller = self.caller(&programs, Cause::Fault);
        let mut switches: Vec<String> = objects.iter().map(|object| object.switch(&names)).collect();
        switches.dedup();
        switches.truncate(2);
        let (corrected, faults_as_calls) = found.rewrite(self.recorded.trace(), &chosen);
        let peak = objects.iter().map(|object| object.tables_peak).max().unwrap_or(0);
        self.weigh(Proposal {
            kind,
            title: format!(
                "use huge pages for {} of shared memory that {} map: {}",
                Bytes(bytes),
                several(processes, "process"),
                list(&programs, false)
            ),
            before: format!(
                "Each process fills leaf tables of its own for the same memory: {} in all, at most {} at \
                 once, for {} of data. ",
                tables(made),
                tables(peak),
                Bytes(sum(SharedObject::touched) << PAGE)
            ),
            how: switches.join(" "),
            not_measured: "the memory that reserved huge pages take from others, misses of the TLB, tables \
                           of the next level that Linux shares for hugetlb mappings of 1 GiB."
                .to_owned(),
            corrected,
            faults_as_calls,
            details: Details { programs, places, caller, ..Details::default() },
            seconds: None,
            seconds_of: None,
            raises_peak: false,
            tables: Tables::Counted,
        })
    }
}
