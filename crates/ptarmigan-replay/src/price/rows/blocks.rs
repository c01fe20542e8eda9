//! Blocks of 16 KiB to 2 MiB for anonymous memory: one fault fills a whole block (multi-size huge
//! pages).
//!
//! The rules are Linux's with one size set to `always`: a write to a page that is not there fills
//! the aligned block around it if the block lies in one area and none of its pages is there yet;
//! otherwise it fills the page alone. A read maps the page of zeros, by itself. A fork shares a
//! block's pages one by one, and a write copies one of them.
use crate::counted::{CountedMachine, CountedRun};
use crate::linux::{Blocks, HugeFaults, PAGE};
use crate::price::{About, Answer, Effect, Judgement, Moment, PageSets, Row, Unit, Whole};
use foldhash::HashMap;
use ptarmigan::space::{AreaFlags, Done};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use ptarmigan_trace::Kind;

/// Sizes that are tried.
const SIZES: usize = 8;

/// What blocks of one size would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSize {
    /// Pages in a block.
    pub pages: u64,
    /// Faults that are left on anonymous memory.
    pub faults: u64,
    /// Pages that are cleared.
    pub cleared: u64,
}

/// The sums of a program, or of all.
#[derive(Clone, Copy, Debug)]
struct Sums {
    /// Faults on anonymous memory, as recorded, and how many of them cleared a page.
    faults: u64,
    touched: u64,
    sizes: [BlockSize; SIZES],
}

impl Default for Sums {
    fn default() -> Self {
        let sizes = std::array::from_fn(|n| BlockSize { pages: 4 << n, ..BlockSize::default() });
        Sums { faults: 0, touched: 0, sizes }
    }
}

/// Blocks of eight sizes.
#[derive(Default)]
pub struct BlockSizes {
    /// By size: the pages that are there, and those of them that a write would still copy.
    sets: PageSets<{ 2 * SIZES }>,
    programs: HashMap<u32, Sums>,
    /// The size of the answer: pages in a block, and faults that it saves.
    best: (u64, u64),
}

/// Returns the size as Linux writes it: `64K`.
fn name(pages: u64) -> String {
    let kib = pages << PAGE >> 10;
    if kib < 1024 { format!("{kib}K") } else { format!("{}M", kib >> 10) }
}

impl BlockSizes {
    /// A fault has been served; `mapped` says whether its page was not there before.
    fn fault(&mut self, moment: &Moment<'_>, space: u32, page: u64, (done, mapped): (Done, bool)) {
        let Some(area) = moment.view.and_then(|view| view.area(page << PAGE)) else { return };
        if area.flags.has(AreaFlags::SHARED) || area.flags.has(AreaFlags::BACKED) {
            return;
        }
        let sums = self.programs.entry(moment.program).or_default();
        sums.faults += 1;
        if !mapped {
            // It is copied, or written again: page by page, whatever the block.
            sums.sizes.iter_mut().for_each(|size| size.faults += 1);
            return;
        }
        let writes = done != Done::Zero;
        sums.touched += u64::from(writes);
        let table = self.sets.table(space, page);
        let (there, shared) = table.split_at_mut(SIZES);
        for (n, size) in sums.sizes.iter_mut().enumerate() {
            if there[n].has(page) {
                // It came with a block. If a fork shares it, a write still copies it.
                size.faults += u64::from(writes && shared[n].remove(page));
                continue;
            }
            size.faults += 1;
            let start = page / size.pages * size.pages;
            let block = start..start + size.pages;
            let fits = area.start <= start << PAGE && block.end << PAGE <= area.end;
            if writes && fits && !there[n].any(&block) {
                there[n].add_all(&block);
                size.cleared += size.pages;
            } else {
                there[n].add(page);
                size.cleared += u64::from(writes);
            }
        }
    }

    fn sum(&self) -> Sums {
        let mut all = Sums::default();
        for sums in self.programs.values() {
            all.faults += sums.faults;
            all.touched += sums.touched;
            for (all, size) in all.sizes.iter_mut().zip(sums.sizes) {
                all.faults += size.faults;
                all.cleared += size.cleared;
            }
        }
        all
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
        self.sets.follow(moment);
        let Some(space) = moment.space else { return };
        if let (Kind::Fault { page, .. }, Some(done)) = (moment.event.kind, moment.served()) {
            let mapped = moment.effects.iter().any(|effect| matches!(effect, Effect::Mapped { .. }));
            self.fault(moment, space, page, (done, mapped));
        }
        let mut copy = space;
        for effect in moment.effects {
            match *effect {
                Effect::Forked { child } => copy = child,
                Effect::TableCopied { start, .. } => {
                    // From now on both sides share what is there.
                    let share = |sets: &mut [_; 2 * SIZES]| sets.copy_within(..SIZES, SIZES);
                    share(self.sets.table(space, start));
                    share(self.sets.table(copy, start));
                }
                _ => {}
            }
        }
    }

    fn machine(&self, usual: CountedMachine) -> Option<CountedMachine> {
        let blocks = Blocks::new(&[self.best.0 << PAGE >> 10], &[]);
        // One of 2 MiB is a large page.
        (!blocks.is_empty()).then_some(CountedMachine { blocks: Some(blocks), ..usual })
    }

    fn judge(&self, usual: &CountedRun, changed: &CountedRun) -> Option<Judgement> {
        let replayed = changed.found_mapped as f64 - usual.found_mapped as f64;
        Some(Judgement { what: "faults saved", counted: self.best.1 as f64, replayed })
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let all = self.sum();
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
        for size in &all.sizes {
            let name = name(size.pages);
            answer.figure(format!("faults saved at {name}"), percent(all.faults - size.faults), "%");
            answer.figure(format!("pages cleared for each one touched at {name}"), ratio(size), "pages");
        }
        let value = |size: &BlockSize| {
            let mut weighed = Answer::default();
            weighed.saves(Unit::Fault, (all.faults - size.faults) as i64);
            weighed.saves(Unit::Clear, all.touched as i64 - size.cleared as i64);
            (weighed.ns(whole.prices).unwrap_or(0.0), weighed.savings)
        };
        let best = all.sizes.iter().max_by(|a, b| value(a).0.total_cmp(&value(b).0));
        let best = best.copied().unwrap_or_default();
        self.best = (best.pages, all.faults - best.faults);
        let most = all.sizes[SIZES - 1];
        answer.savings = value(&best).1;
        let kib = best.pages << PAGE >> 10;
        answer.counted = format!(
            "Blocks of {} take {} of {} on anonymous memory away ({:.0} %).",
            name(best.pages),
            Count(all.faults - best.faults),
            several(all.faults, "fault"),
            percent(all.faults - best.faults),
        );
        answer.cost = format!("It clears {:.2} pages for each one that is touched.", ratio(&best));
        answer.when_not = format!(
            "2M clears {:.2} pages for each one touched. {} of {} are on other memory, and stay.",
            ratio(&most),
            Count(whole.faults - all.faults),
            several(whole.faults, "fault"),
        );
        answer.today = format!(
            "echo always >/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled (Linux 6.8)."
        );
        Ok(answer)
    }
}
