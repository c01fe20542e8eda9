//! Runs rows so that a fault of one costs its own answer only.
use super::answer::{Answer, Priced};
use super::moment::Moment;
use super::row::Row;
use super::whole::Whole;
use crate::workers::panics::caught;
use ptarmigan_term::Time;
use ptarmigan_trace::Kind;
use std::time::{Duration, Instant};

/// A row, and whether it still takes part.
pub struct Guarded<'r> {
    row: Box<dyn Row + 'r>,
    used: Duration,
    failed: Option<String>,
}

/// Faults of which one is timed.
const SAMPLED: u32 = 16;

/// When a row sees a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Before the event.
    Before,
    /// After it.
    After,
}

impl<'r> Guarded<'r> {
    /// Takes a row in.
    pub fn new(row: Box<dyn Row + 'r>) -> Self {
        Guarded { row, used: Duration::ZERO, failed: None }
    }

    /// Shows a moment to all rows, each with `limit` of time in all. Of faults, which are nine
    /// tenths of all events, one in [`SAMPLED`] is timed, for all of them.
    pub fn show(rows: &mut [Self], moment: &Moment<'_>, when: Show, limit: Duration) {
        let is_fault = matches!(moment.event.kind, Kind::Fault { .. });
        let weight = match is_fault {
            true if !moment.step.is_multiple_of(SAMPLED) => 0,
            true => SAMPLED,
            false => 1,
        };
        let mut began = (weight > 0).then(Instant::now);
        for one in rows.iter_mut().filter(|one| one.failed.is_none()) {
            let row = &mut one.row;
            let seen = caught(|| match when {
                Show::Before => row.before(moment),
                Show::After => row.event(moment),
            });
            if let Some(began) = &mut began {
                let now = Instant::now();
                one.used += (now - *began) * weight;
                *began = now;
            }
            if let Err(why) = seen {
                one.failed = Some(format!("it panicked at step {}: {why}", moment.step));
            } else if one.used > limit {
                let limit = Time::from_secs(limit.as_secs_f64());
                one.failed = Some(format!("it took more than {limit} up to step {}", moment.step));
            }
        }
    }

    /// Asks for the answer.
    pub fn answer(mut self, whole: &Whole<'_>) -> (Box<dyn Row + 'r>, Priced) {
        let about = self.row.about();
        let answer = match self.failed.take() {
            Some(why) => Err(why),
            None => caught(|| self.row.answer(whole))
                .unwrap_or_else(|why| Err(format!("it panicked at the end: {why}"))),
        };
        (self.row, Priced { about, answer: answer.and_then(finite) })
    }
}

/// Refuses figures that are no numbers, which no document can hold.
fn finite(answer: Answer) -> Result<Answer, String> {
    match answer.figures.iter().find(|figure| !figure.value.is_finite()) {
        None => Ok(answer),
        Some(figure) => Err(format!("its figure \"{}\" is {}", figure.name, figure.value)),
    }
}
