//! Advice to the author of a program: the recording is written anew as the corrected program would
//! make it, and both are replayed.
//!
//! * `seen` is a finder's view of a replay; `survey` is the replay that provides it.
//! * `edit` writes a recording anew.
//! * `work` prices what Linux does for pages, with prices that are measured on this host.
//! * `library` counts the large pages that the library has in the recording as it is.
//! * `huge`, `empty`, `zones` with `pack`, and `share` each know one kind of advice.
mod edit;
mod empty;
mod huge;
mod library;
mod pack;
mod seen;
mod share;
mod spread;
mod survey;
pub mod work;
mod zones;

use super::advice::{Advice, Rejected, To, Variant, Verdict};
use super::figures::{Figures, Saved, percent};
use super::measure::{Compared, Measure, Side};
use crate::measure::page_prices::PagePrices;
use empty::EmptyTables;
use huge::{HugeRegions, ONE_BY_ONE};
use ptarmigan_replay::terminal::words::{several, several_were};
use ptarmigan_replay::{Failure, SPLIT, SoloTrace, Trace};
use share::Forks;
use zones::Zones;

/// A change of a program that may pay.
struct Proposal {
    kind: &'static str,
    title: String,
    /// The text before the savings, as sentences; may be empty.
    before: String,
    how: &'static str,
    not_measured: &'static str,
    mended: Trace,
}

/// Looks for advice to the author of a recorded program.
///
/// # Errors
/// If a replay cannot be set up, or memory runs out.
pub fn advise(
    recorded: &SoloTrace,
    whole: &Figures,
    measure: &Measure,
    prices: Option<PagePrices>,
) -> Result<Vec<Verdict>, Failure> {
    let trace = recorded.trace();
    measure.say("looking at the program");
    let mut finders = (HugeRegions::new(trace.access_unknown), EmptyTables::default(), Zones::default());
    survey::survey(recorded, &measure.usual, &mut finders)?;
    let (mut huge, empty, zones) = finders;
    huge.finish();
    let look = Look { recorded, whole, measure };
    Ok(vec![
        look.huge(&huge, prices)?,
        look.empty(&empty)?,
        look.spread(spread::sparse(&zones))?,
        look.spread(spread::arenas(&zones))?,
        look.share(&Forks::of(trace))?,
    ])
}

struct Look<'a> {
    recorded: &'a SoloTrace,
    /// The replay as recorded.
    whole: &'a Figures,
    measure: &'a Measure,
}

fn milliseconds(ns: f64) -> String {
    format!("{:.0} ms", ns / 1e6)
}

fn not(kind: &'static str, reason: String) -> Verdict {
    Verdict::Not(Rejected { kind, to: To::Program, measured: true, reason })
}

impl Look<'_> {
    fn side<'s>(&self, trace: &'s SoloTrace) -> Side<'s> {
        Side { trace, on: self.measure.usual }
    }

    /// Replays a proposal.
    fn weigh(&self, proposal: Proposal) -> Result<Verdict, Failure> {
        let Proposal { kind, title, before, how, not_measured, mended } = proposal;
        self.measure.say(&format!("replaying with and without: {kind}"));
        let mended = SoloTrace::new(mended);
        // Whether it pays is a matter of counts, which one replay shows.
        let once = Figures::of(&[self.measure.once(self.side(&mended))?]);
        let saved = Saved::between(self.whole, &once);
        if !saved.pays(self.whole) {
            return Ok(not(kind, format!("{title}: {}", saved.reason(self.whole))));
        }
        let Compared { without, with, saved, .. } =
            self.measure.compare(self.side(self.recorded), self.side(&mended))?;
        // All rounds are slower: it costs more than it saves, whatever the counts say.
        if saved.slows() {
            return Ok(not(kind, format!("{title}: {}", saved.reason(&without))));
        }
        Ok(Verdict::Advised(Box::new(Advice {
            kind,
            to: To::Program,
            title,
            figure: format!("{before}{}", saved.sentence(&without)),
            how: how.to_owned(),
            not_measured: not_measured.to_owned(),
            value: saved.value(&without),
            without,
            with,
            saved,
            linux: None,
            variants: Vec::new(),
        })))
    }

    fn huge(&self, found: &HugeRegions, prices: Option<PagePrices>) -> Result<Verdict, Failure> {
        let kind = "huge-pages";
        let &HugeRegions { full, sparse, untouched, .. } = found;
        if full == 0 {
            let reason = match sparse {
                0 => "no aligned 2 MiB of private memory were touched".to_owned(),
                n => format!("{n} aligned regions of 2 MiB were touched, and none is full"),
            };
            return Ok(not(kind, reason));
        }
        let trace = self.recorded.trace();
        let mut verdict = self.weigh(Proposal {
            kind,
            title: format!("use huge pages for {} of 2 MiB, all full", several(full, "region")),
            before: String::new(),
            how: "madvise(MADV_HUGEPAGE) on memory that is aligned to 2 MiB, before it is touched; or \
                  transparent_hugepage/enabled = always. glibc's malloc: \
                  GLIBC_TUNABLES=glibc.malloc.hugetlb=1.",
            not_measured: "what clearing 2 MiB at once takes, the misses of the TLB that huge pages save \
                           (often their largest gain), whether the kernel finds 2 MiB in one piece, memory \
                           that is new to a virtual machine (its host finds it then, too).",
            mended: found.rewrite(trace, true, SPLIT),
        })?;
        let Verdict::Advised(advice) = &mut verdict else { return Ok(verdict) };
        if let Some(prices) = prices {
            let linux = found.work.priced(prices);
            advice.figure += &format!(
                " By prices of pages measured here, Linux on this machine takes {} instead of {} of system \
                 time: {} less.",
                milliseconds(linux.with_ns),
                milliseconds(linux.without_ns),
                percent(linux.share)
            );
            advice.linux = Some(linux);
        }
        let bare = SoloTrace::new(found.rewrite(trace, false, SPLIT));
        let bare = Figures::of(&[self.measure.once(self.side(&bare))?]);
        let tables = advice.without.tables_made.saturating_sub(bare.tables_made);
        advice.figure += &format!(
            " Linux keeps a table in reserve for each huge page, so VmPTE stays; a kernel that keeps none \
             makes {tables} fewer."
        );
        let mut split = None;
        if found.splits() > 0 {
            let old = SoloTrace::new(found.rewrite(trace, true, ONE_BY_ONE));
            let Compared { with, saved, .. } =
                self.measure.compare(self.side(self.recorded), self.side(&old))?;
            let share = match saved.work_share {
                0.0 => "no share of the time that the rounds could tell".to_owned(),
                share if share < 0.0 => format!("nothing: it is {} slower", percent(-share)),
                share => format!("{} of the replay's time", percent(share)),
            };
            advice.figure += &format!(
                " The first write to a huge page that a fork shares splits it: {}, and forks copy 512 \
                 entries there from then on. Linux before 6.9 copies them one by one, and saves {share}.",
                several(found.splits(), "split")
            );
            split = Some(Variant::new("entries of split pages copied one by one", &with));
        }
        if sparse > 0 {
            advice.figure += &format!(" {} touched and not full.", several_were(sparse, "further region"));
        }
        if untouched > 0 {
            advice.figure += &format!(" Pages that were never touched take {} KiB more.", untouched * 4);
        }
        advice.variants.push(Variant::new("without a table in reserve", &bare));
        advice.variants.extend(split);
        let (sentence, counted) = library::count(self.recorded, self.whole, self.measure);
        advice.figure += &sentence;
        advice.variants.extend(counted);
        Ok(verdict)
    }

    fn empty(&self, found: &EmptyTables) -> Result<Verdict, Failure> {
        let kind = "empty-tables";
        let regions = found.regions();
        if regions == 0 {
            let reason = match found.refilled {
                0 => "MADV_DONTNEED leaves no empty table behind".to_owned(),
                n => format!("the program uses all {n} tables again that MADV_DONTNEED leaves empty"),
            };
            return Ok(not(kind, reason));
        }
        self.weigh(Proposal {
            kind,
            title: format!("give memory back in whole 2 MiB: {} left empty", several(regions, "table")),
            before: "MADV_DONTNEED takes the last page of a table and leaves the table. ".to_owned(),
            how: "when the last page of an aligned 2 MiB is free, call madvise(MADV_DONTNEED) once for all \
                  2 MiB (Linux 6.14 and later frees the table then), or munmap them. jemalloc, mimalloc: a \
                  larger purge or segment size.",
            not_measured: "the calls themselves, and kernels before 6.14, which keep such tables until \
                           munmap.",
            mended: found.rewrite(self.recorded.trace()),
        })
    }

    fn spread(&self, found: Result<spread::Found, Rejected>) -> Result<Verdict, Failure> {
        let spread::Found { kind, title, how, programs } = match found {
            Ok(found) => found,
            Err(rejected) => return Ok(Verdict::Not(rejected)),
        };
        self.weigh(Proposal {
            kind,
            title,
            before: String::new(),
            how,
            not_measured: "what the data structures cost that keep pages together, and locks that are \
                           shared then; zones that mremap moves, or that hold files, stay where they are.",
            mended: pack::pack(self.recorded.trace(), &programs),
        })
    }

    fn share(&self, found: &Forks) -> Result<Verdict, Failure> {
        let kind = "vfork";
        let (starters, all) = (found.starters(), found.all);
        if starters == 0 {
            let reason = match all {
                0 => "the program does not fork".to_owned(),
                n => format!("of {n} forks none only starts another program"),
            };
            return Ok(not(kind, reason));
        }
        let part = percent(starters as f64 / all as f64);
        self.weigh(Proposal {
            kind,
            title: format!("share tables with children that only start a program: {starters} of {all} forks"),
            before: format!("{part} of all forks are followed by execve or exit, and nothing else. "),
            how: "posix_spawn, vfork, or clone(CLONE_VM | CLONE_VFORK) instead of fork.",
            not_measured: "that the parent waits for the child's execve, and what children do to memory \
                           without a fault: with vfork they write their parent's.",
            mended: found.rewrite(self.recorded.trace()),
        })
    }
}
