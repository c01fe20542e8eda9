//! What came of a replay.
use super::step::CallError;
use ptarmigan::frames::NoFrame;
use ptarmigan_trace::Sampled;

/// How a sample of Linux's count compared.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The event.
    pub event: u32,
    /// The task it was taken of.
    pub task: u32,
    /// Our count of tables, the top not included.
    pub own: u32,
    /// Linux's.
    pub linux: u32,
    /// When.
    pub at: Sampled,
}

/// What came of a replay, or of one worker's part of it.
#[derive(Default)]
pub struct Outcome {
    /// Samples compared.
    pub checked: u64,
    /// Those that were equal.
    pub equal: u64,
    /// Those that were not.
    pub differing: Vec<Sample>,
    /// Faults where there was no area, or one that did not allow it: in the recording, signals mostly.
    pub outside: u64,
    /// Calls that asked for something impossible here.
    pub odd: u64,
    /// The first of them: event, task, reason.
    pub first_odd: Option<(u32, u32, String)>,
    /// Events of tasks that have no space because there was no memory for it.
    pub skipped: u64,
    /// Processor time that idle CPUs spent on clearing frames ahead.
    pub ahead: std::time::Duration,
    /// Times that memory ran out.
    pub out_of_memory: u64,
    /// The first of them: event, task, reason.
    pub first_out_of_memory: Option<(u32, u32, NoFrame)>,
}

impl Outcome {
    /// Counts a call that failed.
    #[cold]
    pub fn note(&mut self, event: u32, task: u32, error: &CallError) {
        match error {
            CallError::Refused(why) => {
                self.odd += 1;
                self.first_odd.get_or_insert_with(|| (event, task, why.clone()));
            }
            CallError::NoFrame(e) => {
                self.out_of_memory += 1;
                self.first_out_of_memory.get_or_insert((event, task, *e));
            }
        }
    }

    /// Puts several workers' outcomes together; what is first is what stands first in the recording.
    pub fn sum(parts: impl IntoIterator<Item = Outcome>) -> Outcome {
        let mut all = Outcome::default();
        for mut part in parts {
            all.checked += part.checked;
            all.equal += part.equal;
            all.differing.append(&mut part.differing);
            all.outside += part.outside;
            all.odd += part.odd;
            all.first_odd = all.first_odd.into_iter().chain(part.first_odd).min_by_key(|first| first.0);
            all.skipped += part.skipped;
            all.ahead += part.ahead;
            all.out_of_memory += part.out_of_memory;
            let first = all.first_out_of_memory.into_iter().chain(part.first_out_of_memory);
            all.first_out_of_memory = first.min_by_key(|first| first.0);
        }
        all.differing.sort_by_key(|sample| sample.event);
        all
    }
}
