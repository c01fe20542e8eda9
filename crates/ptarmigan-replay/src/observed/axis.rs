//! Maps the steps of a trace to the axis of a picture: by time, or by number of events for a trace
//! without times.
use crate::input::trace::Trace;
use ptarmigan_trace::FlushEvent;

/// The axis of a trace.
#[derive(Clone, Copy)]
pub struct Axis<'a>(&'a Trace);

impl<'a> Axis<'a> {
    /// Returns the axis of a trace.
    pub fn of(trace: &'a Trace) -> Self {
        Axis(trace)
    }

    /// Returns whether it is in microseconds. Otherwise it is in events.
    pub fn is_time(self) -> bool {
        !self.0.times.is_empty()
    }

    /// Returns the end, at least 1.
    pub fn end(self) -> u64 {
        let last = self.0.times.last().map(|mark| mark.micros + 1);
        last.unwrap_or(self.0.events).max(1)
    }

    /// Returns the place of a step: microseconds since the start of the recording, or the events
    /// before it. Never decreases from one step to the next.
    pub fn at(self, step: u32) -> u64 {
        let Trace { times, flush_marks, .. } = self.0;
        if self.is_time() {
            let before = times.partition_point(|mark| mark.step <= step);
            return before.checked_sub(1).map_or(0, |last| times[last].micros);
        }
        u64::from(step) + flush_marks.partition_point(|flush| flush.step <= step) as u64
    }

    /// Returns the places of the flushes that Linux carried out for its own CPU, each with its
    /// pages: 0 for all.
    pub fn linux_flushes(self) -> impl Iterator<Item = (u64, u64)> {
        self.0.flush_marks.iter().enumerate().filter_map(move |(n, flush)| {
            let at = if self.is_time() { self.at(flush.step) } else { u64::from(flush.step) + n as u64 };
            (FlushEvent::of(flush.reason) == Some(FlushEvent::CarriedOut)).then_some((at, flush.pages))
        })
    }

    /// Cuts the axis into at most `n` equal parts. Returns for each the index of the first
    /// operation after it, where `origins` are the steps of the operations.
    pub fn cut(self, origins: &[u32], n: usize) -> Vec<u32> {
        let n = n.min(usize::try_from(self.end()).unwrap_or(n)).max(1);
        let mut bounds: Vec<u32> = (1..n)
            .map(|part| {
                let end = (u128::from(self.end()) * part as u128 / n as u128) as u64;
                origins.partition_point(|&step| self.at(step) < end) as u32
            })
            .collect();
        bounds.push(origins.len() as u32);
        bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{Event, FaultFlags, Header, Kind, Method, Writer};

    /// Returns a trace of four faults with flushes around the second, and a time each if `timed`.
    fn trace(timed: bool) -> Trace {
        let fault = Kind::Fault { page: 1, flags: FaultFlags(FaultFlags::USER) };
        let flush = |reason| Kind::TlbFlush { pages: 1, reason };
        let kinds = [(0, fault), (40, flush(0)), (50, fault), (60, flush(3)), (90, fault), (100, fault)];
        let header = Header::new("axis", 1, Method::Synthetic);
        let mut writer = Writer::new(Vec::new(), &header, 3).expect("a good header");
        for (micros, kind) in kinds {
            if timed {
                writer.time(micros).expect("a time");
            }
            writer.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
        }
        Trace::from_bytes(&writer.finish(0).expect("memory takes everything").0, "axis").expect("a trace")
    }

    #[test]
    fn a_trace_without_times_is_laid_out_by_all_its_events() {
        let trace = trace(false);
        let axis = Axis::of(&trace);
        assert_eq!((axis.is_time(), axis.end()), (false, 6));
        assert_eq!([0, 1, 2, 3].map(|step| axis.at(step)), [0, 2, 4, 5]);
        assert_eq!(axis.linux_flushes().collect::<Vec<_>>(), [(3, 1)], "reason 0 is a switch");
        assert_eq!(axis.cut(&[0, 1, 2, 3], 2), [2, 4]);
        assert_eq!(axis.cut(&[0, 1, 2, 3], 100), [1, 1, 2, 2, 3, 4], "an event is in one part");
    }

    #[test]
    fn a_trace_with_times_is_laid_out_by_them() {
        let trace = trace(true);
        let axis = Axis::of(&trace);
        assert!(axis.is_time());
        let places = [0, 1, 2, 3].map(|step| axis.at(step));
        assert_eq!(places[0], 0);
        assert!(
            places.is_sorted() && places[1].abs_diff(50) <= 16 && places[3].abs_diff(100) <= 16,
            "{places:?}"
        );
        let flushes: Vec<(u64, u64)> = axis.linux_flushes().collect();
        assert!(matches!(flushes[..], [(at, 1)] if at.abs_diff(60) <= 40), "{flushes:?}");
        let cut = axis.cut(&[0, 1, 2, 3], 2);
        assert_eq!((cut[0], cut[1]), (1 + u32::from(places[1] < axis.end() / 2), 4));
    }
}
