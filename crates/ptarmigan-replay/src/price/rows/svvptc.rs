//! No fence at a new entry: a RISC-V CPU with Svvptc sees entries that become valid by itself.
use crate::price::{About, Answer, Effect, Moment, Row, Whole, percent};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use ptarmigan_trace::{FaultFlags, Kind};

/// Counts faults by whether their page was mapped before.
#[derive(Default)]
pub struct Svvptc {
    /// Of pages that were not mapped.
    new: u64,
    /// Of pages that were.
    changed: u64,
}

impl Row for Svvptc {
    fn about(&self) -> About {
        About {
            name: "svvptc",
            title: "leave the fence at a new entry out (RISC-V Svvptc)",
            reference: "A. Ghiti, Svvptc extension to remove preventive sfence.vma, Linux 6.12 (2024)",
            claim: "lat_pagefault 20 % and boot 6 % faster on a board, by the series' cover letter",
        }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let Kind::Fault { flags, .. } = moment.event.kind else { return };
        let has = |test: fn(&Effect) -> bool| moment.effects.iter().any(test);
        if has(|effect| matches!(effect, Effect::Served(_))) {
            // An entry of Linux that the replay does not have came with a fault on a neighbour.
            let present = flags.0 & FaultFlags::PRESENT != 0;
            let new = !present && has(|effect| matches!(effect, Effect::Mapped { .. }));
            *(if new { &mut self.new } else { &mut self.changed }) += 1;
        }
    }

    fn answer(&mut self, _: &Whole<'_>) -> Result<Answer, String> {
        let all = self.new + self.changed;
        if all == 0 {
            return Err("no fault that maps a page is in the recording".to_owned());
        }
        let mut answer = Answer::default();
        answer.figure("fences spared", self.new as f64, "fences");
        answer.figure("of all faults", percent(self.new, all), "%");
        answer.figure("faults that keep theirs", self.changed as f64, "faults");
        answer.counted = format!(
            "{} spared, at {:.0} % of {}; at least, as a fault on a file maps neighbours, each with a fence.",
            several(self.new, "fence"),
            percent(self.new, all),
            several(all, "fault"),
        );
        answer.cost = format!(
            "A CPU without a fence may fault once more for an entry: at most {} times.",
            Count(self.new)
        );
        answer.when_not = format!(
            "{} change an entry that was there, and keep the fence. On x86-64 and AArch64 no fault on a \
             page that was not there has one.",
            several(self.changed, "fault"),
        );
        answer.today = "Nothing to set: Linux 6.12 does it where the RISC-V CPU has Svvptc.".to_owned();
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::tests::{END, START, answer, map, write};
    use ptarmigan_trace::CloneKind;

    #[test]
    fn only_new_entries_spare_a_fence() {
        let fork = Kind::Clone { child: 1, kind: CloneKind::Fork };
        let refused = FaultFlags(FaultFlags::USER | FaultFlags::REFUSED);
        let present = FaultFlags(FaultFlags::USER | FaultFlags::WRITE | FaultFlags::PRESENT);
        let events = [
            (0, map(START, 8)),
            (0, write(START)),
            (0, write(START + 1)),
            (0, Kind::Fault { page: START + 99, flags: refused }),
            (0, fork),
            // A copy, and a page that is given back: both change an entry.
            (1, write(START)),
            (0, write(START)),
            (1, write(START + 2)),
            // A neighbour's fault has brought it before.
            (1, Kind::Fault { page: START + 3, flags: present }),
            (1, END),
            (0, END),
        ];
        let found = answer(&events, Svvptc::default()).unwrap();
        let values: Vec<f64> = found.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [3.0, 50.0, 3.0]);
        assert!(found.when_not.starts_with("3 faults change"), "{}", found.when_not);
    }

    #[test]
    fn a_recording_without_faults_cannot_tell() {
        let refused = answer(&[(0, map(START, 8)), (0, END)], Svvptc::default()).unwrap_err();
        assert_eq!(refused, "no fault that maps a page is in the recording");
    }
}
