//! Larger windows around read faults on files: Linux maps the pages of the file that are in memory
//! within 64 KiB around the fault.
//!
//! The rules are Linux's: a read fault maps the aligned window around its page, cut to the area and
//! to the range of one table. A write maps its page alone. A fork passes on areas with private
//! pages. That all pages of a window are in memory is the bound: the recorded window is tried, too,
//! and faults within it show how often it does not hold.
use crate::linux::PAGE;
use crate::pages::REGION;
use crate::price::{About, Answer, Effect, Moment, PageSets, Row, Unit, Whole, percent};
use ptarmigan::space::{AreaFlags, Done};
use ptarmigan_term::Count;
use ptarmigan_term::words::{several, several_were};
use ptarmigan_trace::{FaultFlags, Kind};

/// Pages of the windows that are tried, Linux's own first.
const WINDOWS: [u64; 5] = [16, 32, 64, 128, REGION];
const NAMES: [&str; 5] = ["64K", "128K", "256K", "512K", "2M"];

/// Windows of five sizes.
#[derive(Default)]
pub struct FaultAround {
    /// By size: the pages that windows have mapped.
    around: PageSets<{ WINDOWS.len() }>,
    /// Faults on files and shared memory.
    faults: u64,
    /// Writes among them.
    writes: u64,
    spared: [u64; WINDOWS.len()],
}

impl FaultAround {
    fn fault(&mut self, moment: &Moment<'_>, space: u32, page: u64, writes: bool) {
        let Some(area) = moment.view.and_then(|view| view.area(page << PAGE)) else { return };
        if !area.flags.has(AreaFlags::SHARED) && !area.flags.has(AreaFlags::BACKED) {
            return;
        }
        self.faults += 1;
        if writes {
            self.writes += 1;
            return;
        }
        // The kernel's own pages (vdso) have no neighbours in memory.
        let alone = area.flags.has(AreaFlags::SPECIAL);
        let new = moment.effects.iter().any(|effect| matches!(effect, Effect::Mapped { .. }));
        for ((set, pages), spared) in
            self.around.table(space, page).iter_mut().zip(WINDOWS).zip(&mut self.spared)
        {
            if alone || !new {
                continue;
            }
            *spared += u64::from(set.has(page));
            let start = page / pages * pages;
            set.add_all(&(start.max(area.start >> PAGE)..(start + pages).min(area.end >> PAGE)));
        }
    }
}

impl Row for FaultAround {
    fn about(&self) -> About {
        About {
            name: "fault-around",
            title: "map more of a file around a read fault",
            reference: "K. Shutemov, map few pages around fault address, Linux 3.15 (2014)",
            claim: "the author measured fewer faults and shorter builds with 64 KiB, the setting since then",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        self.around.follow(moment);
        let Some(space) = moment.space else { return };
        let Kind::Fault { page, flags } = moment.event.kind else { return };
        for effect in moment.effects {
            if let Effect::Served(done) = *effect {
                let writes = flags.0 & FaultFlags::WRITE != 0 || matches!(done, Done::Copied | Done::Reused);
                self.fault(moment, space, page, writes);
            }
        }
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        if self.faults == 0 {
            return Err("no fault on a file or on shared memory is in the recording".to_owned());
        }
        let mut answer = Answer::default();
        answer.figure("faults on files and shared memory", self.faults as f64, "faults");
        for (name, spared) in NAMES.into_iter().zip(self.spared) {
            answer.figure(format!("faults saved at {name}"), percent(spared, self.faults), "%");
        }
        // A window of 2 MiB has the most, but maps far more than is read.
        let [missed, _, _, spared, _] = self.spared;
        answer.saves(Unit::Fault, spared as i64);
        answer.counted = format!(
            "Windows of 512K spare at most {} of {} on files and shared memory ({:.0} %), if all pages are \
             in memory.",
            Count(spared),
            several(self.faults, "fault"),
            percent(spared, self.faults),
        );
        answer.cost = "A fault maps up to 128 pages, most of which may never be read, and a fork or an \
                       end takes them away again."
            .to_owned();
        answer.when_not = format!(
            "{} write, which no window spares; {} in the 64K around an earlier one, so its page was not in \
             memory; {} are on other memory.",
            several(self.writes, "fault"),
            several_were(missed, "fault"),
            Count(whole.faults - self.faults.min(whole.faults)),
        );
        answer.today = "echo 524288 >/sys/kernel/debug/fault_around_bytes (debugfs).".to_owned();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
