//! The results of the workers.
use crate::linux::{BLOCK_SIZES, CallError};
use ptarmigan::frames::NoFrame;
use ptarmigan_hosted::KmapCounts;
use ptarmigan_trace::Sampled;

/// A sample of Linux's count of tables, compared with the library's.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The event.
    pub event: u32,
    /// The sampled task.
    pub task: u32,
    /// The library's count, without the root.
    pub own: u32,
    /// Linux's count.
    pub linux: u32,
    /// When Linux was asked.
    pub at: Sampled,
}

/// The result of a replay, or of one worker.
#[derive(Default)]
pub struct Outcome {
    /// Number of samples compared.
    pub checked: u64,
    /// Number of samples that were equal.
    pub equal: u64,
    /// The samples that differed.
    pub differing: Vec<Sample>,
    /// Faults that mapped a large page.
    pub large_pages: u64,
    /// Blocks of several pages that faults mapped, by size: of 2 pages first.
    pub blocks: [u64; BLOCK_SIZES],
    /// Large pages that were split, by all workers together.
    pub large_splits: u64,
    /// Faults that found their page mapped, with the permissions that they asked for.
    pub found_mapped: u64,
    /// Faults outside all areas, or not allowed by their area. In a recording these mostly end in
    /// signals.
    pub outside: u64,
    /// Faults that Linux refused though their area allows them: beyond the end of a file, mostly.
    pub refused: u64,
    /// Tables that were made, or taken away, because pages were found at a stop.
    pub found: u64,
    /// Calls that made pages of locked files present, up to an end that no event tells.
    pub ends_unknown: u64,
    /// Calls that the address space refused.
    pub odd: u64,
    /// The first refused call: event, task, reason.
    pub first_odd: Option<(u32, u32, String)>,
    /// Events skipped because memory had run out for the space of their task.
    pub skipped: u64,
    /// Processor time that idle CPUs spent clearing frames ahead of need.
    pub ahead: std::time::Duration,
    /// How often memory ran out.
    pub out_of_memory: u64,
    /// The first time that memory ran out: event, task, reason.
    pub first_out_of_memory: Option<(u32, u32, NoFrame)>,
    /// Counts of mapped frames, by all workers together, if the machine has high memory.
    pub kmap: Option<KmapCounts>,
}

impl Outcome {
    /// Counts a failed call.
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

    /// Adds up the outcomes of several workers. The first of each kind is the first in the
    /// recording.
    pub fn sum(parts: impl IntoIterator<Item = Outcome>) -> Outcome {
        let mut all = Outcome::default();
        for mut part in parts {
            all.checked += part.checked;
            all.equal += part.equal;
            all.differing.append(&mut part.differing);
            all.large_pages += part.large_pages;
            all.blocks.iter_mut().zip(part.blocks).for_each(|(all, part)| *all += part);
            all.found_mapped += part.found_mapped;
            all.outside += part.outside;
            all.refused += part.refused;
            all.found += part.found;
            all.ends_unknown += part.ends_unknown;
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
