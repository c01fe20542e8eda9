//! One replay under the eyes of the finders.
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::model::page_prices::PriceSet;
use ptarmigan_replay::price::{self, Answer, Row};
use ptarmigan_replay::{CountedMachine, Look, Op, Program, SoloTrace, Tasks, Trace, Watch, When};
use ptarmigan_term::Failure;
use std::time::Duration;

/// Shows a replay to a finder.
struct Survey<'a> {
    trace: &'a Trace,
    program: &'a Program,
    /// The operation that runs, by its index in the program.
    at: usize,
    tasks: Tasks,
    /// The number of events of which `tasks` knows.
    known: usize,
    /// The program that the task of the operation runs.
    running: u32,
    finder: &'a mut dyn Finder,
}

/// Replays a recording once, and shows it to `finder`.
///
/// # Errors
/// If the machine cannot be set up, or memory runs out.
pub fn survey(counted: &SoloTrace, on: &CountedMachine, finder: &mut dyn Finder) -> Result<(), Failure> {
    let (trace, program) = (counted.trace(), counted.program());
    let mut watch = Survey { trace, program, at: 0, tasks: Tasks::new(trace), known: 0, running: 0, finder };
    counted.watch(on, &mut watch)
}

/// Does so, and asks `row` for its answer. `None` if it has none.
///
/// # Errors
/// As [`survey`].
pub fn survey_and_ask(
    counted: &SoloTrace,
    on: &CountedMachine,
    finder: &mut dyn Finder,
    row: &mut dyn Row,
    prices: &PriceSet,
) -> Result<Option<Answer>, Failure> {
    let (trace, program) = (counted.trace(), counted.program());
    let mut watch = Survey { trace, program, at: 0, tasks: Tasks::new(trace), known: 0, running: 0, finder };
    let rows: Vec<Box<dyn Row>> = vec![Box::new(row)];
    let (mut answered, _) =
        price::price_under(counted, on.memory, rows, prices, Duration::MAX, Some(&mut watch))?;
    Ok(answered.pop().and_then(|(_, priced)| priced.answer.ok()))
}

impl Survey<'_> {
    /// Lets `tasks` know of all events up to one.
    fn advance(&mut self, event: u32) {
        while self.known <= event as usize {
            let step = &self.trace.steps[self.known];
            self.running = self.tasks.step(self.trace, step).unwrap_or(self.running);
            self.known += 1;
        }
    }
}

impl Watch for Survey<'_> {
    fn looks(&self, _: &Op, when: When) -> bool {
        when != When::Made
    }

    fn look(&mut self, op: &Op, when: When, look: &dyn Look) {
        let event = self.program.origins[self.at];
        self.advance(event);
        let (what, space) = match *op {
            Op::Fault { page, flags, space, .. } => (Happens::Fault { page, flags }, space),
            Op::Call { rare, space, .. } => (Happens::Call(self.trace.rare[rare as usize]), space),
            Op::Fork { space, child, .. } => (Happens::Fork { child }, space),
            Op::Exec { space, last: true, .. } | Op::Exit { space, last: true, .. } => (Happens::End, space),
            _ => return,
        };
        self.finder.see(&SpaceOperation { event, space, program: self.running, what, when, look });
    }

    fn block(&mut self, block: VirtRange) {
        let event = self.program.origins[self.at];
        self.finder.block(event, block.start >> PAGE, block.len() >> PAGE);
    }

    fn done(&mut self, at: usize) {
        self.at = at + 1;
    }
}
