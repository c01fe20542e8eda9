//! Runs rows so that a fault of one costs its own answer only.
use super::answer::{Answer, Priced};
use super::moment::Moment;
use super::row::Row;
use super::run::Whole;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A row, and whether it still takes part.
pub struct Guarded {
    row: Box<dyn Row>,
    used: Duration,
    failed: Option<String>,
}

/// When a row sees a moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Before the event.
    Before,
    /// After it.
    After,
}

impl Guarded {
    /// Takes a row in.
    pub fn new(row: Box<dyn Row>) -> Self {
        Guarded { row, used: Duration::ZERO, failed: None }
    }

    /// Shows a moment to all rows, each with `limit` of time in all.
    pub fn show(rows: &mut [Guarded], moment: &Moment<'_>, when: Show, limit: Duration) {
        let mut began = Instant::now();
        for one in rows.iter_mut().filter(|one| one.failed.is_none()) {
            let row = &mut one.row;
            let seen = catch_unwind(AssertUnwindSafe(|| match when {
                Show::Before => row.before(moment),
                Show::After => row.event(moment),
            }));
            let now = Instant::now();
            one.used += now - began;
            began = now;
            if let Err(panic) = seen {
                one.failed = Some(format!("it panicked at step {}: {}", moment.step, said(&*panic)));
            } else if one.used > limit {
                let seconds = limit.as_secs();
                one.failed = Some(format!("it took more than {seconds} s up to step {}", moment.step));
            }
        }
    }

    /// Asks for the answer.
    pub fn answer(mut self, whole: &Whole<'_>) -> (Box<dyn Row>, Priced) {
        let about = self.row.about();
        let answer = match self.failed.take() {
            Some(why) => Err(why),
            None => catch_unwind(AssertUnwindSafe(|| self.row.answer(whole)))
                .unwrap_or_else(|panic| Err(format!("it panicked at the end: {}", said(&*panic)))),
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

/// Returns the message of a panic.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
