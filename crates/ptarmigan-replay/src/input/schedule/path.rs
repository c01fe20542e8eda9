//! The critical path of a schedule.
use super::op::Op;
use super::program::Schedule;

/// The cost of a schedule in which waiting itself is free.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CriticalPath {
    /// The sum of all work.
    pub total: f64,
    /// The work of the busiest worker.
    pub busiest: f64,
    /// The longest chain of work in which each piece waits for the one before, on its own worker or
    /// another. At least `busiest`.
    pub longest: f64,
}

/// Computes the critical path. `cost` returns the cost of one operation, by worker and index.
/// Returns `None` if workers wait for each other in a circle.
pub fn critical_path(schedule: &Schedule, mut cost: impl FnMut(usize, usize) -> f64) -> Option<CriticalPath> {
    let workers = schedule.programs.len();
    let mut at = vec![0; workers];
    let mut now = vec![0.0_f64; workers];
    let mut busy = vec![0.0_f64; workers];
    let mut posts: Vec<Vec<f64>> = vec![Vec::new(); workers];
    loop {
        let mut moved = false;
        for worker in 0..workers {
            let ops = &schedule.programs[worker].ops;
            while let Some(op) = ops.get(at[worker]) {
                match *op {
                    Op::Wait { worker: other, milestone: number } => {
                        let Some(done) = posts[usize::from(other)].get(number as usize - 1) else { break };
                        now[worker] = now[worker].max(*done);
                    }
                    Op::Milestone => posts[worker].push(now[worker]),
                    _ => {
                        let cost = cost(worker, at[worker]);
                        now[worker] += cost;
                        busy[worker] += cost;
                    }
                }
                at[worker] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    let done = schedule.programs.iter().zip(&at).all(|(program, at)| *at == program.ops.len());
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    done.then(|| CriticalPath { total: busy.iter().sum(), busiest: most(&busy), longest: most(&now) })
}
