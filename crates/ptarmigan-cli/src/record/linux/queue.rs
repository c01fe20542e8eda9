//! A queue of events on their way to the writer.
//!
//! A system call takes effect when it holds the lock of its address space. Its result is known only
//! at its end. So a place in the queue is reserved when the call takes effect, and filled at its
//! end.
use ptarmigan_trace::{Event, Kind, WriteError, Writer};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write;

/// The most events that wait for one system call.
const LONGEST: usize = 1 << 20;

/// Times in the trace are multiples of this many nanoseconds: fine enough for pictures, and few
/// rows.
const TICK: u64 = 1_000_000;

enum QueuedEvent {
    /// An event, and its time in nanoseconds.
    Known(u64, Event),
    /// Reserved by the task with this number.
    Waiting(u32),
    /// A fork, after the events that it turned out to come after.
    Fork(Vec<(u64, Event)>),
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

    /// Reserves a place for an event of `task` and returns its number.
    pub(super) fn reserve(&mut self, task: u32) -> u64 {
        self.slots.push_back(QueuedEvent::Waiting(task));
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

    /// Fills a place that a fork reserved when it took the lock of its space. `others` says which
    /// tasks share the space.
    ///
    /// A fork copies area by area, and other threads go on to fault in those that it has not
    /// reached. Where it has been, they wait for its end. So a fault that its thread has come back
    /// from during the fork was copied, and one that was the thread's last event was not. System
    /// calls that change the space come after the fork.
    pub(super) fn fork(
        &mut self,
        place: u64,
        time: u64,
        fork: Event,
        others: impl Fn(u32) -> bool,
    ) -> Result<(), WriteError> {
        let Some(at) =
            place.checked_sub(self.first).map(|at| at as usize).filter(|&at| at < self.slots.len())
        else {
            return self.push(time, fork);
        };
        let mut after = HashSet::new();
        let mut last = HashMap::new();
        for (n, slot) in self.slots.iter().enumerate().skip(at + 1) {
            match slot {
                QueuedEvent::Waiting(task) => drop(after.insert(*task)),
                QueuedEvent::Known(_, e) if !after.contains(&e.task) => drop(last.insert(e.task, n)),
                _ => {}
            }
        }
        let mut before = Vec::new();
        after.clear();
        for n in at + 1..self.slots.len() {
            match &self.slots[n] {
                QueuedEvent::Waiting(task) => drop(after.insert(*task)),
                QueuedEvent::Known(when, e) if others(e.task) && !after.contains(&e.task) => {
                    let waits = matches!(e.kind, Kind::Fault { .. }) && last.get(&e.task) == Some(&n);
                    if !waits {
                        before.push((*when, *e));
                        self.slots[n] = QueuedEvent::Nothing;
                    }
                }
                _ => {}
            }
        }
        before.push((time, fork));
        self.slots[at] = QueuedEvent::Fork(before);
        self.drain()
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        while let Some(slot) = self.slots.pop_front() {
            match slot {
                QueuedEvent::Waiting(_) => {
                    self.slots.push_front(slot);
                    break;
                }
                QueuedEvent::Known(time, e) => self.write(time, &e)?,
                QueuedEvent::Fork(events) => {
                    for (time, e) in events {
                        self.write(time, &e)?;
                    }
                }
                QueuedEvent::Nothing => {}
            }
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
            match slot {
                QueuedEvent::Known(time, e) => self.write(time, &e)?,
                QueuedEvent::Fork(events) => {
                    for (time, e) in events {
                        self.write(time, &e)?;
                    }
                }
                QueuedEvent::Waiting(_) | QueuedEvent::Nothing => {}
            }
        }
        Ok((self.writer, self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{CloneKind, FaultFlags, Header, Method, Reader};

    #[test]
    fn a_fork_comes_after_the_faults_that_it_has_copied() {
        let header = Header::new("q", 1, Method::Synthetic);
        let mut q = Queue::new(Writer::new(Vec::new(), &header, 1).expect("a good header"));
        let at = |task, kind| Event { task, cpu: 0, kind };
        let fault = |page| Kind::Fault { page, flags: FaultFlags(FaultFlags::USER) };
        for (child, kind) in [(1, CloneKind::Share), (2, CloneKind::Share), (3, CloneKind::Fork)] {
            q.push(0, at(0, Kind::Clone { child, kind })).expect("memory");
        }
        let place = q.reserve(0);
        for (task, page) in [(1, 10), (2, 20), (3, 90), (1, 11), (2, 21)] {
            q.push(0, at(task, fault(page))).expect("memory");
        }
        let call = q.reserve(1);
        q.push(0, at(1, fault(12))).expect("memory");
        let fork = at(0, Kind::Clone { child: 4, kind: CloneKind::Fork });
        q.fork(place, 0, fork, |task| matches!(task, 1 | 2)).expect("memory");
        q.resolve(call, 0, Some(at(1, Kind::Brk { end: 1 }))).expect("memory");
        let (writer, _) = q.finish().expect("memory");
        let (bytes, _) = writer.finish(0).expect("memory");
        let order: Vec<u64> = Reader::new(&bytes[..])
            .expect("a header")
            .map(|e| match e.expect("an event").kind {
                Kind::Fault { page, .. } => page,
                Kind::Clone { .. } => 0,
                _ => 1,
            })
            .skip(3)
            .collect();
        // 21 waited. 11 came before a system call, which needs the lock that the fork had.
        assert_eq!(order, [10, 20, 0, 90, 11, 21, 1, 12]);
    }

    #[test]
    fn events_keep_their_places() {
        let header = Header::new("q", 1, Method::Synthetic);
        let mut q = Queue::new(Writer::new(Vec::new(), &header, 1).expect("a good header"));
        let brk = |end| Event { task: 0, cpu: 0, kind: Kind::Brk { end } };
        q.push(1_000_000, brk(1)).expect("memory");
        let a = q.reserve(0);
        q.push(3_000_000, brk(3)).expect("memory");
        let b = q.reserve(0);
        let c = q.reserve(0);
        q.push(6_000_000, brk(6)).expect("memory");
        q.resolve(b, 4_000_000, Some(brk(4))).expect("memory");
        q.resolve(a, 2_000_000, Some(brk(2))).expect("memory");
        q.resolve(c, 0_000_000, None).expect("memory");
        q.push(7_000_000, brk(7)).expect("memory");
        let never = q.reserve(0);
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
