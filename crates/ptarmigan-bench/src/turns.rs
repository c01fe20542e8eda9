//! Contenders that take turns, each a closure that does all of its work.
use super::report::{Row, Samples};
use crate::affinity::AffinityGuard;
use crate::clock::thread_time;
use crate::rounds::RoundLine;

/// A contender in a case.
pub struct Turn<'a> {
    /// The case.
    pub case: &'static str,
    /// The contender.
    pub contender: &'static str,
    /// Operations that `work` does: times are those of one.
    pub operations: usize,
    /// Does the work once.
    pub work: Box<dyn FnMut() + 'a>,
}

/// Times each contender once a round, on one CPU, after a round that does not count. Returns rows
/// in nanoseconds of processor time per operation, called `unit`.
///
/// # Errors
///
/// If the thread cannot be kept on a CPU.
pub fn take_turns(rounds: u32, unit: &'static str, mut turns: Vec<Turn<'_>>) -> Result<Vec<Row>, String> {
    let _here = AffinityGuard::here().map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let mut samples = Samples::default();
    let progress = RoundLine::new(rounds);
    for round in 0..=rounds {
        for turn in &mut turns {
            progress.say(round, &format!("{} {}", turn.case, turn.contender));
            let start = thread_time();
            (turn.work)();
            let ns = (thread_time() - start).as_nanos() as f64 / turn.operations as f64;
            if round > 0 {
                samples.add(turn.case, turn.contender, "", ns);
            }
        }
    }
    Ok(samples.rows(unit))
}
