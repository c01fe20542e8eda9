//! Advice on blocks of pages that one fault fills (multi-size huge pages).
use super::super::super::advice::{Details, Verdict};
use super::super::edit::Edit;
use super::super::rejected::not;
use super::{Look, Proposal, Tables, list};
use ptarmigan_replay::price::{Answer, BlockSizes, Unit};
use ptarmigan_replay::{Blocks, Tasks, Trace};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Failure};
use std::collections::BTreeMap;

const KIND: &str = "mthp";
/// The most pages that may be cleared for each one that is touched.
const MOST_CLEARED: f64 = 1.5;
/// The least part of the faults that has to go: the setting is the whole machine's.
const LEAST_PART: f64 = 0.1;

impl Look<'_> {
    /// Advises the size of blocks that `ptarmigan price` finds best, unless huge pages, of which
    /// the advice saves `huge` faults, do the most of it.
    ///
    /// # Errors
    /// If a replay cannot be set up, or memory runs out.
    pub fn blocks(&self, found: &BlockSizes, answer: Option<Answer>, huge: i64) -> Result<Verdict, Failure> {
        let trace = self.recorded.trace();
        let Some(answer) = answer else {
            return Ok(not(KIND, "the recording lacks the faults that blocks would spare".to_owned()));
        };
        let (kib, spared) = found.best();
        let spared: Vec<u32> = spared.collect();
        let size = Bytes(kib << 10);
        let saved = several(spared.len() as u64, "fault");
        let reason = |why: &str| Ok(not(KIND, format!("blocks of {size} spare {saved}: {why}")));
        if (spared.len() as f64) < LEAST_PART * self.whole.faults as f64 {
            return reason("too few for a setting of the whole machine");
        }
        if found.cleared() > MOST_CLEARED {
            return reason(&format!("but {:.1} pages are cleared for each one touched", found.cleared()));
        }
        if 2 * huge > spared.len() as i64 {
            return reason("huge pages spare most of them");
        }
        let programs = self.by_program(counts(trace, &spared).into_iter());
        let corrected =
            Trace { blocks: Blocks::new(&[kib], &[]), ..Edit::without(trace, spared.iter().copied()) };
        let cleared = answer.savings.iter().find(|saving| saving.unit == Unit::Clear);
        let more = cleared.map_or(0, |saving| saving.count.min(0).unsigned_abs());
        self.weigh(Proposal {
            kind: KIND,
            title: format!("fill blocks of {size} at one fault: {}", list(&programs, false)),
            before: String::new(),
            how: format!(
                "echo always >/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled (Linux 6.8 and \
                 later). For chosen programs: madvise instead of always, and madvise(MADV_HUGEPAGE) on \
                 their memory; with glibc GLIBC_TUNABLES=glibc.malloc.hugetlb=1 does so for malloc."
            ),
            not_measured: format!(
                "the memory that is cleared and not touched ({} in all, less at once), other programs, and a \
                 machine short of free blocks.",
                Bytes(more << 12)
            ),
            corrected,
            faults_as_calls: 0,
            details: Details { programs, ..Details::default() },
            seconds: None,
            seconds_of: None,
            raises_peak: true,
            tables: Tables::Open,
        })
    }
}

/// Counts steps by the number of the program that their task runs.
fn counts(trace: &Trace, steps: &[u32]) -> BTreeMap<u32, u64> {
    let (mut tasks, mut counts) = (Tasks::new(trace), BTreeMap::new());
    let mut steps = steps.iter().peekable();
    for (step, number) in trace.steps.iter().zip(0_u32..) {
        let program = tasks.step(trace, step);
        if steps.next_if(|next| **next == number).is_some()
            && let Some(program) = program
        {
            *counts.entry(program).or_default() += 1;
        }
    }
    counts
}
