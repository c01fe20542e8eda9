//! Advice on huge pages of private memory.
use super::super::super::advice::{MappingPlace, Variant, Verdict};
use super::super::super::figures::{Figures, percent};
use super::super::super::measure::Compared;
use super::super::huge::{HugeRegions, ONE_BY_ONE, Spot};
use super::super::rejected::{Unfit, not};
use super::super::seen::{PAGE, REGION};
use super::super::work::LinuxWork;
use super::super::{library, switches};
use super::{Look, Proposal, Tables, list};
use crate::advise::advice::Details;
use ptarmigan_replay::{SPLIT, SoloTrace};
use ptarmigan_term::words::{several, several_were};
use ptarmigan_term::{Bytes, Count, Failure, Time};
use ptarmigan_trace::Cause;
use ptarmigan_trace::Runtime;
use std::collections::BTreeSet;

const KIND: &str = "huge-pages";
/// Mappings that a piece of advice names.
const PLACES: usize = 3;

/// More bytes than that, which a switch for all memory of a process takes beside full regions, are
/// too many.
const OTHERS: u64 = 128 << 20;
/// Fewer are not worth a word.
const FEW_OTHERS: u64 = 1 << 20;
/// How memory gets huge pages without the rest.
const OWN_MEMORY: &str = "madvise(MADV_HUGEPAGE) on this memory alone, aligned to 2 MiB, before it is touched: a \
                          switch for all memory of the process would make sparse regions huge, too.";

/// Says why full regions do not count.
fn left_out(unfit: Unfit) -> Vec<String> {
    let mut reasons = Vec::new();
    if unfit.forked > 0 {
        reasons.push(format!(
            "{} full, but the program forks and goes on writing while children have them: the first write \
             splits a huge page, each write copies 4 KiB as before, and forks copy 512 entries again",
            several_were(unfit.forked, "region")
        ));
    }
    if unfit.protected > 0 {
        reasons.push(format!(
            "{} full, but mprotect changes parts of 2 MiB: the first such call splits a huge page",
            several_were(unfit.protected, "region")
        ));
    }
    if unfit.awaited > 0 {
        reasons.push(format!(
            "{} full, but the program waited about once for each fault: it seems that a thread brings the \
             pages (userfaultfd), and then huge pages save nothing",
            several_were(unfit.awaited, "region")
        ));
    }
    if unfit.disabled > 0 {
        reasons.push(format!(
            "{} full, but Ruby turns huge pages off for its process: prctl(PR_SET_THP_DISABLE)",
            several_were(unfit.disabled, "region")
        ));
    }
    if unfit.wrappers > 0 {
        reasons
            .push(format!("{} full of programs that start others", several_were(unfit.wrappers, "region")));
    }
    reasons
}

/// Returns the system time with huge pages and without, and the range of the difference.
fn takes(linux: &LinuxWork) -> String {
    let [least, most] = linux.saved_ns.map(|ns| match ns < 0.0 {
        true => format!("{} more", Time::from_nanos(-ns)),
        false => format!("{} less", Time::from_nanos(ns)),
    });
    let prices = match linux.prices.stored {
        Some(_) => "the stored prices of pages",
        None => "prices of pages measured here",
    };
    format!(
        "takes {} instead of {} of system time by {prices} (from {least} to {most})",
        Time::from_nanos(linux.with_ns),
        Time::from_nanos(linux.without_ns),
    )
}

impl Look<'_> {
    /// Advises huge pages for full regions. `blocks` faults mapped several pages each.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn huge(&self, found: &HugeRegions, unfit: Unfit, blocks: u64) -> Result<Verdict, Failure> {
        let &HugeRegions { full, sparse, untouched, .. } = found;
        if full == 0 {
            let mut reasons = left_out(unfit);
            if found.found > 0 {
                reasons.push(format!(
                    "{} full, but the pages came without faults (userfaultfd, populated or written by the \
                     kernel): a huge page saves nothing there",
                    several_were(found.found, "region")
                ));
            }
            if reasons.is_empty() {
                reasons.push(match sparse {
                    0 => "no faults fill aligned 2 MiB of private memory".to_owned(),
                    n if blocks > 0 => format!(
                        "{} touched, of 2 MiB each, and none is full by faults on single pages; {} mapped \
                         several pages each",
                        several_were(n, "aligned region"),
                        several(blocks, "fault"),
                    ),
                    n => format!(
                        "{} touched, of 2 MiB each, and none is full",
                        several_were(n, "aligned region")
                    ),
                });
            }
            return Ok(not(KIND, reasons.join("; ")));
        }
        let trace = self.recorded.trace();
        let rest = found.rest() << PAGE;
        let programs = self.by_program(found.spots.iter().map(|spot| (spot.program, 1)));
        let places = self.places(&found.spots);
        let caller = self.caller(&programs, Cause::Fault);
        let title = format!(
            "use huge pages for {} of 2 MiB, all full: {}",
            several(full, "region"),
            list(&programs, false)
        );
        let linux = self.prices.map(|prices| found.work.priced(prices));
        if let Some(worse) = linux.filter(|linux| linux.saved() <= 0.0) {
            let spared = several(found.spared(), "fault");
            return Ok(not(KIND, format!("{title}: saves {spared}, but {}", takes(&worse))));
        }
        let mut verdict = self.weigh(Proposal {
            kind: KIND,
            title,
            before: String::new(),
            how: if rest > OTHERS { OWN_MEMORY.to_owned() } else { self.switches(&found.spots) },
            not_measured: "the misses of the TLB that huge pages save \
                           (often their largest gain), and whether the kernel finds 2 MiB in one piece."
                .to_owned(),
            corrected: found.rewrite(trace, true, SPLIT),
            faults_as_calls: 0,
            details: Details { programs, places, caller, ..Details::default() },
            seconds: None,
            seconds_of: None,
            raises_peak: false,
            tables: Tables::Counted,
        })?;
        let Verdict::Advised(advice) = &mut verdict else { return Ok(verdict) };
        if let Some(linux) = linux {
            match linux.share {
                Some(share) => {
                    advice.figure += &format!(" It {}: {} less.", takes(&linux), percent(share));
                }
                // Shares of the replay would promise what the prices do not.
                None => {
                    let faults = several(advice.without.faults, "fault");
                    advice.figure = format!(
                        "Saves {} of {faults}. It {}: try it and measure.",
                        Count(advice.saved.faults.max(0).unsigned_abs()),
                        takes(&linux)
                    );
                }
            }
            advice.details.seconds = Some(linux.saved() / 1e9);
            advice.details.uncertain = linux.share.is_none();
            advice.linux = Some(linux);
        }
        let bare = SoloTrace::new(found.rewrite(trace, false, SPLIT));
        let bare = Figures::of(&[self.measure.once(self.side(&bare))?]);
        let tables = advice.without.tables_made.saturating_sub(bare.tables_made);
        advice.figure += " Linux keeps a table in reserve for each huge page, so VmPTE stays";
        advice.figure += &match tables {
            0 => ".".to_owned(),
            n => format!("; a kernel that keeps none makes {} fewer.", several(n, "table")),
        };
        let mut split = None;
        if found.splits() > 0 {
            let old = SoloTrace::new(found.rewrite(trace, true, ONE_BY_ONE));
            let Compared { with, saved, .. } =
                self.measure.compare(self.side(self.recorded), self.side(&old))?;
            let share = match saved.work_share {
                _ if !self.measure.compares() => String::new(),
                0.0 => ", and saves no share of the time that the rounds could tell".to_owned(),
                share if share < 0.0 => format!(", and saves nothing: it is {} slower", percent(-share)),
                share => format!(", and saves {} of the replay's time", percent(share)),
            };
            advice.figure += &format!(
                " The first write to a huge page that a fork shares splits it: {}, and forks copy 512 \
                 entries there from then on. Linux before 6.9 copies them one by one{share}.",
                several(found.splits(), "split")
            );
            split = Some(Variant::new("entries of split pages copied one by one", &with));
        }
        for reason in left_out(unfit) {
            advice.figure += &format!(" Left out: {reason}.");
        }
        if sparse > 0 {
            advice.figure += &format!(" {} touched and not full", several_were(sparse, "further region"));
            advice.figure += &match rest {
                ..FEW_OTHERS => ".".to_owned(),
                _ => format!(": a switch for all of a process takes up to {} more for them.", Bytes(rest)),
            };
        }
        if untouched > 0 {
            advice.figure += &format!(" Pages that were never touched take {} more.", Bytes(untouched << 12));
        }
        advice.variants.push(Variant::new("without a table in reserve", &bare));
        advice.variants.extend(split);
        let (sentence, counted) = library::count(self.recorded, self.whole, self.measure);
        // In the library, heaps that grow in pieces and memory that is read first have no large
        // pages.
        let none = counted.as_ref().and_then(|one| one.large.as_ref()).is_some_and(|large| large.mapped == 0);
        if !none {
            advice.figure += &sentence;
        }
        advice.variants.extend(counted);
        Ok(verdict)
    }

    fn is_heap(&self, spot: &Spot) -> bool {
        let ends = [0, REGION - 1].map(|page| spot.region * REGION + page);
        ends.iter().any(|page| self.facts.mapping(spot.program, *page).as_deref() == Some("heap"))
    }

    /// Returns the largest runs of regions.
    fn places(&self, spots: &[Spot]) -> Vec<MappingPlace> {
        let mut sorted = spots.to_vec();
        sorted.sort_unstable_by_key(|spot| (spot.space, spot.region));
        sorted.dedup_by_key(|spot| (spot.space, spot.region));
        let mut runs: Vec<(Spot, u64)> = Vec::new();
        for spot in sorted {
            match runs.last_mut() {
                Some((first, n)) if first.space == spot.space && first.region + *n == spot.region => *n += 1,
                _ => runs.push((spot, 1)),
            }
        }
        runs.sort_by_key(|(spot, n)| (std::cmp::Reverse(*n), *spot));
        let place = |(spot, n): &(Spot, u64)| {
            let page = spot.region * REGION;
            let known = self.facts.mapping(spot.program, page);
            MappingPlace {
                program: self.facts.name(spot.program).to_owned(),
                mapping: known.unwrap_or_else(|| {
                    if self.is_heap(spot) { "heap".to_owned() } else { "anonymous memory".to_owned() }
                }),
                address: page << PAGE,
                bytes: (n * REGION) << PAGE,
            }
        };
        runs.iter().take(PLACES).map(place).collect()
    }

    /// Returns how to get huge pages: the switches of the allocators that own the regions, if they
    /// are known.
    fn switches(&self, spots: &[Spot]) -> String {
        let owner = |spot: &Spot| {
            let program = &self.facts.programs[self.facts.program(spot.program)];
            let heap = self.is_heap(spot);
            Some((program.name.clone(), switches::owner(&program.runtimes, heap)?, heap))
        };
        let owners: Vec<Option<(String, _, _)>> = spots.iter().map(owner).collect();
        let known: BTreeSet<_> = owners.iter().flatten().collect();
        let words = |(program, owner, heap): &&(String, Runtime, bool)| {
            let named = switches::huge_by_name(program).filter(|_| !heap);
            let switch = named.map_or_else(|| switches::switch(*owner, *heap), str::to_owned);
            format!("{program}: {switch}.")
        };
        // What holds for the heap holds for what malloc maps beside it.
        let again = |of: &&&(String, Runtime, bool)| {
            !of.2 && switches::huge_by_name(&of.0).is_none() && known.contains(&(of.0.clone(), of.1, true))
        };
        let mut text: Vec<String> = known.iter().filter(|of| !again(of)).take(4).map(words).collect();
        if known.is_empty() || owners.contains(&None) {
            let rest = if known.is_empty() { "" } else { "For other memory: " };
            text.push(format!(
                "{rest}madvise(MADV_HUGEPAGE) on memory that is aligned to 2 MiB, before it is touched; or \
                 transparent_hugepage/enabled = always. The recording does not tell which allocator it is \
                 of, so no switch is named."
            ));
            if spots.iter().zip(&owners).any(|(spot, owner)| owner.is_none() && self.is_heap(spot)) {
                text.push(format!("But {}.", switches::unknown_heap()));
            }
        } else {
            text.push(
                "For memory that the program maps itself: madvise(MADV_HUGEPAGE), aligned to 2 MiB, before \
                 it is touched."
                    .to_owned(),
            );
        }
        text.join(" ")
    }
}
