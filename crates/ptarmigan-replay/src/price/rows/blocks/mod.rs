//! Blocks of 16 KiB to 2 MiB for anonymous memory: one fault fills a whole block (multi-size huge
//! pages).
//!
//! The rules are Linux's with one size set to `always`: a write to a page that is not there fills
//! the aligned block around it if the block lies in one area and none of its pages is there yet;
//! otherwise it fills the page alone. A read maps the page of zeros, by itself. A fork shares a
//! block's pages one by one, and a write copies one of them.
mod fill;

use crate::counted::{CountedMachine, CountedRun};
use crate::linux::{Blocks, HugeFaults, PAGE};
use crate::price::{About, Answer, Effect, Judgement, Moment, Row, Unit, Whole};
use fill::{BlockSize, Fill, SIZES};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count};
use ptarmigan_trace::Kind;

/// The part of the largest saving that a smaller size has to reach.
const NEARLY: f64 = 0.95;

/// Blocks of eight sizes.
#[derive(Default)]
pub struct BlockSizes {
    fill: Fill,
    /// The size of the answer: pages in a block, and faults that it saves.
    best: (u64, u64),
}

/// Returns the size in bytes.
fn bytes(pages: u64) -> Bytes {
    Bytes(pages << PAGE)
}

impl BlockSizes {
    /// Returns the pages that the size of the answer clears for each one touched.
    pub fn cleared(&self) -> f64 {
        let sums = &self.fill.sums;
        let size = sums.sizes.iter().find(|size| size.pages == self.best.0);
        size.map_or(0.0, |size| size.cleared as f64 / (sums.touched as f64).max(1.0))
    }

    /// Returns the size of the answer in KiB, and the steps whose faults it spares, in order.
    pub fn best(&self) -> (u64, impl Iterator<Item = u32>) {
        let bit = 1 << self.best.0.trailing_zeros().saturating_sub(2);
        let steps = self.fill.spared.iter().zip(0..).filter(move |(spared, _)| *spared & bit != 0);
        (bytes(self.best.0).kib(), steps.map(|(_, step)| step))
    }
}

impl Row for BlockSizes {
    fn about(&self) -> About {
        About {
            name: "blocks",
            title: "fill blocks of 16 KiB to 2 MiB at one fault (mTHP)",
            reference: "R. Roberts, multi-size THP for anonymous memory, Linux 6.8 (2024)",
            claim: "the series measured less time in the kernel for a kernel build on 64 cores of AArch64",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let Some(space) = moment.space else { return };
        self.fill.follow(moment, space);
        if let (Kind::Fault { page, .. }, Some(done)) = (moment.event.kind, moment.served()) {
            let mapped = moment.effects.iter().any(|effect| matches!(effect, Effect::Mapped { .. }));
            self.fill.fault(moment, space, page, (done, mapped));
        }
    }

    fn machine(&self, usual: CountedMachine) -> Option<CountedMachine> {
        let blocks = Blocks::new(&[bytes(self.best.0).kib()], &[]);
        Some(CountedMachine { blocks: Some(blocks), ..usual })
    }

    fn judge(&self, usual: &CountedRun, changed: &CountedRun) -> Option<Judgement> {
        let replayed = changed.found_mapped as f64 - usual.found_mapped as f64;
        Some(Judgement { what: "faults saved", counted: self.best.1 as f64, replayed })
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let all = self.fill.sums;
        let trace = whole.trace;
        if trace.huge == HugeFaults::Always || !trace.blocks.is_empty() {
            return Err("the recorded machine filled blocks or huge pages by itself, so that the \
                        recording lacks the faults; record with them off, or with madvise"
                .to_owned());
        }
        if all.faults == 0 {
            return Err("no fault on anonymous memory is in the recording".to_owned());
        }
        let percent = |part: u64| 100.0 * part as f64 / all.faults as f64;
        let ratio = |size: &BlockSize| size.cleared as f64 / (all.touched as f64).max(1.0);
        let mut answer = Answer::default();
        answer.figure("faults on anonymous memory", all.faults as f64, "faults");
        for size in &all.sizes {
            let name = bytes(size.pages).option();
            answer.figure(format!("faults saved at {name}"), percent(all.faults - size.faults), "%");
            answer.figure(format!("pages cleared for each one touched at {name}"), ratio(size), "pages");
        }
        let switched = percent(all.faults - all.switch.faults);
        answer.figure("faults saved at 2M with heaps in steps of 2M", switched, "%");
        let value = |size: &BlockSize| {
            let mut weighed = Answer::default();
            weighed.saves(Unit::Fault, (all.faults - size.faults) as i64);
            weighed.saves(Unit::Clear, all.touched as i64 - size.cleared as i64);
            // Without prices a page that is cleared counts as a fault.
            let ns = weighed.ns(whole.prices).filter(|_| whole.prices.reused > 0.0);
            let counts = weighed.savings.iter().map(|saving| saving.count as f64).sum();
            (ns.unwrap_or(counts), weighed.savings)
        };
        // The smallest that saves nearly as much as the best: less memory is cleared. One of 2 MiB
        // is a huge page, which a write after a fork splits.
        let smaller = &all.sizes[..SIZES - 1];
        let most = smaller.iter().map(|size| value(size).0).fold(0.0, f64::max);
        let best = smaller.iter().find(|size| value(size).0 >= most * NEARLY);
        let best = best.copied().unwrap_or(smaller[0]);
        self.best = (best.pages, all.faults - best.faults);
        answer.savings = value(&best).1;
        let kib = bytes(best.pages).kib();
        answer.counted = format!(
            "Blocks of {} take {} of {} on anonymous memory away ({:.0} %).",
            bytes(best.pages).option(),
            Count(all.faults - best.faults),
            several(all.faults, "fault"),
            percent(all.faults - best.faults),
        );
        answer.cost = format!("It clears {:.2} pages for each one that is touched.", ratio(&best));
        answer.when_not = format!(
            "2M clears {:.2} pages for each one touched. {} of {} are on other memory, and stay.",
            ratio(&all.sizes[SIZES - 1]),
            Count(whole.faults - all.faults),
            several(whole.faults, "fault"),
        );
        answer.today = format!(
            "echo always >/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled (Linux 6.8)."
        );
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
