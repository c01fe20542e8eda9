//! A proposal of one's own: a fault maps the next page, too. Prints the faults that this spares in
//! the shipped fixture, and in a recording if the command line names one.
use ptarmigan_replay::model::page_prices::PriceSet;
use ptarmigan_replay::price::{About, Answer, Moment, Priced, Row, Whole, percent, price};
use ptarmigan_replay::{SoloTrace, Trace};
use ptarmigan_term::{Failure, print};
use ptarmigan_trace::{FaultFlags, Kind};
use std::{collections::HashMap, path::Path, process::ExitCode, time::Duration};

/// The page that each task's last fault would have mapped ahead.
#[derive(Default)]
struct NextPage {
    ahead: HashMap<u32, u64>,
    spared: u64,
}

impl Row for NextPage {
    fn about(&self) -> About {
        About { name: "next-page", title: "map the next page, too", reference: "this example", claim: "none" }
    }

    fn event(&mut self, moment: &Moment<'_>) {
        let Kind::Fault { page, flags } = moment.event.kind else { return };
        if flags.0 & FaultFlags::PRESENT != 0 {
            return; // The page was mapped, but not for this access.
        }
        if self.ahead.remove(&moment.event.task) == Some(page) {
            self.spared += 1; // This fault does not happen, so it maps no page ahead.
        } else {
            self.ahead.insert(moment.event.task, page + 1);
        }
    }

    fn answer(&mut self, whole: &Whole<'_>) -> Result<Answer, String> {
        let (spared, share) = (self.spared, percent(self.spared, whole.faults));
        let counted = format!("{spared} of {} faults spared ({share:.0} %)", whole.faults);
        Ok(Answer { counted, ..Answer::default() })
    }
}

/// Prices the proposal on a recording, and returns a line about it.
pub fn line(path: &Path) -> Result<String, Failure> {
    let (solo, rows) = (SoloTrace::new(Trace::open(path)?), vec![Box::<NextPage>::default() as Box<dyn Row>]);
    let pricing = price(&solo, 1 << 30, rows, &PriceSet::default(), Duration::from_secs(60))?;
    let text = |priced: Priced| priced.answer.map_or_else(|why| why, |answer| answer.counted);
    let name = &solo.trace().name;
    Ok(pricing.rows.into_iter().map(|priced| format!("{name}: {}\n", text(priced))).collect())
}

/// Prints the lines.
pub fn main() -> ExitCode {
    let named = std::env::args_os().nth(1);
    for path in ["fixture".into()].into_iter().chain(named) {
        if let Err(failure) = line(Path::new(&path)).and_then(|line| print::stdout(&line)) {
            return print::failure(&failure);
        }
    }
    ExitCode::SUCCESS
}
