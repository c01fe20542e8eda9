//! Flushes over the recording, the library's and Linux's.
use super::Parts;
use ptarmigan_replay::{Flushes, Observation, Trace};
use ptarmigan_trace::Unseen;
use serde::Serialize;

/// Flushes by size.
#[derive(Serialize)]
pub(in crate::report) struct FlushFigures {
    /// By the library, in the replay.
    pub ours: Flushes,
    /// Of these, flushes that come from pages found at stops.
    pub found: u64,
    /// By Linux, if they were recorded.
    pub linux: Option<Flushes>,
    /// One for each part of the axis.
    pub points: Vec<FlushPoint>,
}

/// Flushes in one part of the axis: of one page, of a range, full.
#[derive(Clone, Copy, Default, Serialize)]
pub(in crate::report) struct FlushPoint {
    /// Where the part begins.
    pub at: u64,
    pub ours: [u64; 3],
    pub linux: [u64; 3],
}

impl FlushFigures {
    pub(super) fn new(trace: &Trace, seen: &Observation, parts: &Parts<'_>) -> Self {
        let start = |part| FlushPoint { at: parts.start(part), ..FlushPoint::default() };
        let mut points: Vec<FlushPoint> = (0..parts.len()).map(start).collect();
        let Flushes { page, range, full } = seen.flushes;
        let mut before = [0; 3];
        for (part, point) in points.iter_mut().enumerate() {
            // Flushes at the end of the last spaces belong to the last part.
            let until = if part + 1 == parts.len() {
                [page, range, full]
            } else {
                let samples = seen.samples.partition_point(|sample| sample.ops <= parts.bounds[part]);
                samples.checked_sub(1).map_or([0; 3], |last| seen.samples[last].flushes)
            };
            point.ours = std::array::from_fn(|size| until[size] - before[size]);
            before = until;
        }
        for (at, size) in parts.axis.linux_flushes() {
            points[parts.of_place(at)].linux[usize::from(size)] += 1;
        }
        let [page, range, full] = trace.linux_flushes;
        let recorded = !trace.header.unseen.has(Unseen::TLB_FLUSHES);
        let found = seen.found_flushes;
        FlushFigures {
            ours: seen.flushes,
            found,
            linux: recorded.then_some(Flushes { page, range, full }),
            points,
        }
    }
}
