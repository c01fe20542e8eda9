//! One replay under the eyes of the finders.
use super::seen::{Finder, Happens, PAGE, SpaceOperation};
use ptarmigan::addr::VirtRange;
use ptarmigan_replay::model::page_prices::PriceSet;
use ptarmigan_replay::price::{self, Answer, KernelTime, Row};
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

/// Does so, and asks `rows` for their answers. Returns these in order, each or the reason why there
/// is none, with the kernel's time that they are a part of.
///
/// # Errors
/// As [`survey`].
pub fn survey_and_ask<const N: usize>(
    counted: &SoloTrace,
    on: &CountedMachine,
    finder: &mut dyn Finder,
    rows: [&mut dyn Row; N],
    prices: &PriceSet,
) -> Result<([Result<Answer, String>; N], KernelTime), Failure> {
    let (trace, program) = (counted.trace(), counted.program());
    let mut watch = Survey { trace, program, at: 0, tasks: Tasks::new(trace), known: 0, running: 0, finder };
    let rows = rows.into_iter().map(|row| Box::new(row) as Box<dyn Row>).collect();
    let (answered, pricing) =
        price::price_under(counted, on.memory, rows, prices, Duration::MAX, Some(&mut watch))?;
    let mut answers = answered.into_iter().map(|(_, priced)| priced.answer);
    let none = || Err("it was not asked".to_owned());
    Ok((std::array::from_fn(|_| answers.next().unwrap_or_else(none)), pricing.kernel))
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
