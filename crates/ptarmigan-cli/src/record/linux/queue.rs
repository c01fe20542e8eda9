//! A queue of events on their way to the writer.
//!
//! A system call takes effect when it holds the lock of its address space. Its result is known only
//! at its end. So a place in the queue is reserved when the call takes effect, and filled at its
//! end.
use ptarmigan_trace::{Event, WriteError, Writer};
use std::collections::VecDeque;
use std::io::Write;

/// The most events that wait for one system call.
const LONGEST: usize = 1 << 20;

/// Times in the trace are multiples of this many nanoseconds: fine enough for pictures, and few
/// rows.
const TICK: u64 = 1_000_000;

enum QueuedEvent {
    /// An event, and its time in nanoseconds.
    Known(u64, Event),
    Waiting,
    Nothing,
}

pub(super) struct Queue<W: Write> {
    writer: Writer<W>,
    slots: VecDeque<QueuedEvent>,
    /// Number of the first entry.
    first: u64,
    refused: u64,
    /// The time of the first event.
    start: Option<u64>,
    /// The ticks since then, of the last event.
    ticks: u64,
}

impl<W: Write> Queue<W> {
    pub(super) fn new(writer: Writer<W>) -> Self {
        Self { writer, slots: VecDeque::new(), first: 0, refused: 0, start: None, ticks: 0 }
    }

    pub(super) fn push(&mut self, time: u64, e: Event) -> Result<(), WriteError> {
        if self.slots.is_empty() {
            self.first += 1;
            return self.write(time, &e);
        }
        self.slots.push_back(QueuedEvent::Known(time, e));
        if self.slots.len() > LONGEST {
            self.slots[0] = QueuedEvent::Nothing;
            return self.drain();
        }
        Ok(())
    }

    /// Reserves a place and returns its number.
    pub(super) fn reserve(&mut self) -> u64 {
        self.slots.push_back(QueuedEvent::Waiting);
        self.first + self.slots.len() as u64 - 1
    }

    /// Fills a reserved place.
    pub(super) fn resolve(&mut self, place: u64, time: u64, e: Option<Event>) -> Result<(), WriteError> {
        let slot = place.checked_sub(self.first).and_then(|at| self.slots.get_mut(at as usize));
        match (slot, e) {
            (Some(slot), Some(e)) => *slot = QueuedEvent::Known(time, e),
            (Some(slot), None) => *slot = QueuedEvent::Nothing,
            // The call took too long, and its place is gone.
            (None, Some(e)) => return self.push(time, e),
            (None, None) => {}
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        while let Some(slot) = self.slots.front() {
            match *slot {
                QueuedEvent::Waiting => break,
                QueuedEvent::Known(time, e) => self.write(time, &e)?,
                QueuedEvent::Nothing => {}
            }
            self.slots.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    fn write(&mut self, time: u64, e: &Event) -> Result<(), WriteError> {
        // Events that were held back come after later ones.
        let start = *self.start.get_or_insert(time);
        self.ticks = self.ticks.max(time.saturating_sub(start) / TICK);
        self.writer.time(self.ticks * (TICK / 1000))?;
        match self.writer.event(e) {
            // An impossible event, after losses for example, is counted and left out. It does not
            // fail the recording.
            Err(WriteError::Invalid { .. }) => {
                self.refused += 1;
                Ok(())
            }
            other => other,
        }
    }

    /// Writes the remaining events and drops the places that were never filled. Returns how many
    /// events the writer refused.
    pub(super) fn finish(mut self) -> Result<(Writer<W>, u64), WriteError> {
        for slot in std::mem::take(&mut self.slots) {
            if let QueuedEvent::Known(time, e) = slot {
                self.write(time, &e)?;
            }
        }
        Ok((self.writer, self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{Header, Kind, Method, Reader};

    #[test]
    fn events_keep_their_places() {
        let header = Header::new("q", 1, Method::Synthetic);
        let mut q = Queue::new(Writer::new(Vec::new(), &header, 1).expect("a good header"));
        let brk = |end| Event { task: 0, cpu: 0, kind: Kind::Brk { end } };
        q.push(1_000_000, brk(1)).expect("memory");
        let a = q.reserve();
        q.push(3_000_000, brk(3)).expect("memory");
        let b = q.reserve();
        let c = q.reserve();
        q.push(6_000_000, brk(6)).expect("memory");
        q.resolve(b, 4_000_000, Some(brk(4))).expect("memory");
        q.resolve(a, 2_000_000, Some(brk(2))).expect("memory");
        q.resolve(c, 0_000_000, None).expect("memory");
        q.push(7_000_000, brk(7)).expect("memory");
        let never = q.reserve();
        q.push(9_000_000, brk(9)).expect("memory");
        let _ = never;
        let (writer, refused) = q.finish().expect("memory");
        let (bytes, _) = writer.finish(0).expect("memory");
        let ends: Vec<u64> = Reader::new(&bytes[..])
            .expect("a header")
            .map(|e| match e.expect("an event").kind {
                Kind::Brk { end } => end,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((ends, refused), (vec![1, 2, 3, 4, 6, 7, 9], 0));
    }
}
