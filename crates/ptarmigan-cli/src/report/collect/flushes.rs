//! Flushes by cause and over the recording, the library's and Linux's.
use super::Parts;
use ptarmigan_replay::flushes::{FlushSurvey, Flushes, LibraryFlushes, LinuxFlushes};
use ptarmigan_replay::{Observation, Trace};
use serde::Serialize;

/// Flushes by cause and by size.
#[derive(Serialize)]
pub(in crate::report) struct FlushFigures {
    /// By the library, in the replay.
    pub ours: Flushes,
    /// The same by cause.
    pub ours_by_cause: LibraryFlushes,
    /// By Linux, if they were recorded.
    pub linux: Option<LinuxFlushes>,
    /// One for each part of the axis.
    pub points: Vec<FlushPoint>,
}

/// Flushes in one part of the axis: of one page, of a range, full. Linux's are those by the CPU
/// that asked for them.
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
        let mut before = Flushes::default();
        for (part, point) in points.iter_mut().enumerate() {
            // Flushes at the end of the last spaces belong to the last part.
            let until = if part + 1 == parts.len() {
                seen.flushes
            } else {
                let samples = seen.samples.partition_point(|sample| sample.ops <= parts.bounds[part]);
                samples.checked_sub(1).map_or(Flushes::default(), |last| seen.samples[last].flushes)
            };
            point.ours = (until - before).by_size();
            before = until;
        }
        let mut linux = vec![Flushes::default(); points.len()];
        for (at, pages) in parts.axis.linux_flushes() {
            linux[parts.of_place(at)] += Flushes::one(pages);
        }
        for (point, flushes) in points.iter_mut().zip(linux) {
            point.linux = flushes.by_size();
        }
        FlushFigures {
            ours: seen.flushes,
            ours_by_cause: seen.flushes_by_cause.clone(),
            linux: FlushSurvey::of(trace),
            points,
        }
    }
}
