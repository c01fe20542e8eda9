//! A queue of events on their way to the writer.
//!
//! A system call takes effect when it holds the lock of its address space. Its result is known only
//! at its end. So a place in the queue is reserved when the call takes effect, and filled at its
//! end. A fault may wait for the lock: the newest events are kept back, so that it can move.
//!
//! A fork moves to a place that was reserved when it gave up the lock. Another task may have made a
//! child since, which was numbered first. So tasks get their numbers when their clones are written.
use ptarmigan_trace::{
    Event, FaultFlags, Kind, OpeningCounts, Openings, Place, PlaceId, Text, WriteError, Writer,
};
use std::collections::{HashMap, VecDeque};
use std::io::Write;

/// The most events that wait for one system call.
const LONGEST: usize = 1 << 20;

/// Events that are kept back, for some may turn out to come later.
const KEPT: usize = 1 << 12;

/// Times in the trace are multiples of this many nanoseconds: fine enough for pictures, and few
/// rows.
const TICK: u64 = 1_000_000;

/// Where the time of the trace begins.
#[derive(Clone, Copy)]
enum TraceStart {
    /// With the first event.
    FirstEvent,
    /// Later: events until then stand at the beginning.
    Later,
    /// At this time, in nanoseconds.
    At(u64),
}

/// Returns whether a fault wrote where no page was: it may bring the first private page of its
/// area.
fn brings_page(flags: FaultFlags) -> bool {
    flags.0 & (FaultFlags::WRITE | FaultFlags::PRESENT | FaultFlags::REFUSED) == FaultFlags::WRITE
}

enum QueuedEvent {
    /// An event, and its time in nanoseconds.
    Known(u64, Event),
    /// Reserved.
    Waiting,
    /// Reserved for several events, with those so far.
    Open(Vec<(u64, Event)>),
    /// Several events.
    Several(Vec<(u64, Event)>),
    Nothing,
}

pub(crate) struct Queue<W: Write> {
    writer: Writer<W>,
    slots: VecDeque<QueuedEvent>,
    /// Number of the first entry.
    first: u64,
    refused: u64,
    start: TraceStart,
    /// The ticks since then, of the last event.
    ticks: u64,
    openings: Openings,
    /// The numbers in the trace of tasks, by the numbers that the events have here.
    numbers: HashMap<u32, u32>,
}

/// Counts of the events that a queue has written, beside the summary.
pub(super) struct Written {
    /// Events that the writer refused.
    pub(super) refused: u64,
    pub(super) openings: OpeningCounts,
}

impl<W: Write> Queue<W> {
    pub(crate) fn new(writer: Writer<W>) -> Self {
        let (slots, openings) = (VecDeque::new(), Openings::default());
        let numbers = HashMap::from([(0, 0)]);
        Self {
            writer,
            slots,
            first: 0,
            refused: 0,
            start: TraceStart::FirstEvent,
            ticks: 0,
            openings,
            numbers,
        }
    }

    /// The time of the trace begins when [`begin`](Self::begin) says so.
    pub(super) fn begins_later(&mut self) {
        self.start = TraceStart::Later;
    }

    /// The time of the trace begins now.
    pub(super) fn begin(&mut self, time: u64) {
        self.start = TraceStart::At(time);
    }

    /// Returns whether the time of the trace has begun.
    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.start, TraceStart::Later)
    }

    /// Adds a place in a program to the trace. `None` if it has no room for it.
    pub(super) fn place(&mut self, place: Place) -> Option<PlaceId> {
        self.writer.place(place).ok()
    }

    /// Adds a name to the trace. `None` if it has no place for it.
    pub(super) fn text(&mut self, name: &str) -> Option<Text> {
        self.writer.text(name).ok()
    }

    pub(crate) fn push(&mut self, time: u64, e: Event) -> Result<(), WriteError> {
        self.slots.push_back(QueuedEvent::Known(time, e));
        if self.slots.len() > LONGEST {
            self.slots[0] = QueuedEvent::Nothing;
        }
        self.drain()
    }

    /// Returns the place of the next event.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Reserves a place for an event and returns its number.
    pub(crate) fn reserve(&mut self) -> u64 {
        let place = self.end();
        self.slots.push_back(QueuedEvent::Waiting);
        place
    }

    /// Returns the event at a place, if it is still kept.
    fn slot(&mut self, place: u64) -> Option<&mut QueuedEvent> {
        place.checked_sub(self.first).and_then(|at| self.slots.get_mut(at as usize))
    }

    /// Fills a reserved place.
    pub(super) fn resolve(&mut self, place: u64, time: u64, e: Option<Event>) -> Result<(), WriteError> {
        match (self.slot(place), e) {
            (Some(slot), Some(e)) => *slot = QueuedEvent::Known(time, e),
            (Some(slot), None) => *slot = QueuedEvent::Nothing,
            // The call took too long, and its place is gone.
            (None, Some(e)) => return self.push(time, e),
            (None, None) => {}
        }
        self.drain()
    }

    /// Reserves a place for any number of events and returns its number.
    pub(super) fn open(&mut self) -> u64 {
        let place = self.end();
        self.slots.push_back(QueuedEvent::Open(Vec::new()));
        place
    }

    /// Adds an event to an open place. Without room for it there, it comes at the end.
    pub(super) fn add(&mut self, place: u64, time: u64, e: Event) -> Result<(), WriteError> {
        match self.slot(place) {
            Some(QueuedEvent::Open(events)) => {
                events.push((time, e));
                Ok(())
            }
            _ => self.push(time, e),
        }
    }

    /// Closes an open place.
    pub(super) fn close(&mut self, place: u64) -> Result<(), WriteError> {
        if let Some(slot) = self.slot(place)
            && let QueuedEvent::Open(events) = slot
        {
            *slot = QueuedEvent::Several(std::mem::take(events));
        }
        self.drain()
    }

    /// Moves a fault to the end: it took the lock only now. If it `made_tables` before, and another
    /// event came meanwhile, one that says so stays at its place. A fault that is written already
    /// stays.
    pub(super) fn delay(&mut self, place: u64, time: u64, made_tables: bool) -> Result<(), WriteError> {
        let is_last = self.end() == place + 1;
        let Some(slot) = self.slot(place) else { return Ok(()) };
        let QueuedEvent::Known(since, e) = *slot else { return Ok(()) };
        *slot = match e.kind {
            Kind::Fault { page, flags } if made_tables && !is_last && brings_page(flags) => {
                let kind = Kind::Touched { start: page, pages: 1, flags: FaultFlags::WAITING };
                QueuedEvent::Known(since, Event { kind, ..e })
            }
            _ => QueuedEvent::Nothing,
        };
        self.push(time, e)
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        while self.slots.len() > KEPT {
            if let None | Some(QueuedEvent::Waiting | QueuedEvent::Open(_)) = self.slots.front() {
                break;
            }
            if let Some(slot) = self.slots.pop_front() {
                self.first += 1;
                self.write_slot(slot)?;
            }
        }
        Ok(())
    }

    fn write_slot(&mut self, slot: QueuedEvent) -> Result<(), WriteError> {
        match slot {
            QueuedEvent::Known(time, e) => self.write(time, &e),
            QueuedEvent::Open(events) | QueuedEvent::Several(events) => {
                events.into_iter().try_for_each(|(time, e)| self.write(time, &e))
            }
            QueuedEvent::Waiting | QueuedEvent::Nothing => Ok(()),
        }
    }

    fn write(&mut self, time: u64, e: &Event) -> Result<(), WriteError> {
        // Events that were held back come after later ones.
        let start = match self.start {
            TraceStart::FirstEvent => {
                self.start = TraceStart::At(time);
                time
            }
            TraceStart::Later => time,
            TraceStart::At(start) => start,
        };
        self.ticks = self.ticks.max(time.saturating_sub(start) / TICK);
        self.writer.time(self.ticks * (TICK / 1000))?;
        let Some(numbered) = self.numbered(e) else {
            self.refused += 1;
            return Ok(());
        };
        match self.writer.event(&numbered) {
            // An impossible event, after losses for example, is counted and left out. It does not
            // fail the recording.
            Err(WriteError::Invalid { .. }) => {
                self.refused += 1;
                Ok(())
            }
            other => {
                self.openings.see(&numbered);
                if let (Kind::Clone { child, .. }, Kind::Clone { child: number, .. }) =
                    (e.kind, numbered.kind)
                {
                    self.numbers.insert(child, number);
                }
                other
            }
        }
    }

    /// Returns an event with the numbers that tasks have in the trace. `None` if the clone of its
    /// task was refused.
    fn numbered(&self, e: &Event) -> Option<Event> {
        let next = self.numbers.len() as u32;
        let kind = match e.kind {
            Kind::Clone { kind, .. } => Kind::Clone { child: next, kind },
            kind => kind,
        };
        Some(Event { task: *self.numbers.get(&e.task)?, kind, ..*e })
    }

    /// Writes the remaining events and drops the places that were never filled.
    pub(super) fn finish(mut self) -> Result<(Writer<W>, Written), WriteError> {
        for slot in std::mem::take(&mut self.slots) {
            self.write_slot(slot)?;
        }
        Ok((self.writer, Written { refused: self.refused, openings: self.openings.counts() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{CloneKind, Header, Method, Reader};

    fn queue() -> Queue<Vec<u8>> {
        let header = Header::new("q", 1, Method::Synthetic);
        Queue::new(Writer::new(Vec::new(), &header, 1).expect("a good header"))
    }

    fn brk(end: u64) -> Event {
        Event { task: 0, cpu: 0, kind: Kind::Brk { end } }
    }

    /// The ends of the heap in a trace.
    fn ends(q: Queue<Vec<u8>>) -> Vec<u64> {
        let (writer, written) = q.finish().expect("memory");
        assert_eq!(written.refused, 0);
        let (bytes, _) = writer.finish(0).expect("memory");
        let end = |kind| match kind {
            Kind::Brk { end } => end,
            other => panic!("{other:?}"),
        };
        Reader::new(&bytes[..]).expect("a header").map(|e| end(e.expect("an event").kind)).collect()
    }

    #[test]
    fn an_event_moves_to_the_end_while_it_is_kept() {
        let mut q = queue();
        q.push(1, brk(1)).expect("memory");
        let place = q.reserve();
        q.push(2, brk(2)).expect("memory");
        q.delay(0, 3, true).expect("memory");
        q.resolve(place, 4, Some(brk(4))).expect("memory");
        // A place that is only reserved, and one that was moved away, stay.
        let empty = q.reserve();
        q.delay(empty, 5, true).expect("memory");
        q.delay(0, 5, true).expect("memory");
        for n in 0..KEPT as u64 {
            q.push(6, brk(10 + n)).expect("memory");
        }
        // Written already, except for the events behind the empty place.
        q.delay(1, 7, true).expect("memory");
        q.resolve(empty, 7, None).expect("memory");
        assert_eq!(ends(q)[..4], [4, 2, 1, 10]);
    }

    #[test]
    fn events_from_before_the_start_stand_at_the_start() {
        let mut q = queue();
        q.begins_later();
        for n in 0..2 * KEPT as u64 {
            q.push(n * TICK, brk(n)).expect("memory");
        }
        q.begin(2 * KEPT as u64 * TICK);
        q.push((2 * KEPT as u64 + 7) * TICK, brk(1)).expect("memory");
        let (bytes, _) = q.finish().expect("memory").0.finish(0).expect("memory");
        let mut reader = Reader::new(&bytes[..]).expect("a header");
        let mut times = Vec::new();
        while reader.next().is_some() {
            times.push(reader.time());
        }
        assert_eq!(times.iter().filter(|time| **time == 0).count(), 2 * KEPT);
        assert_eq!(times.last(), Some(&7_000));
    }

    #[test]
    fn tasks_are_numbered_in_the_order_of_their_clones() {
        let clone = |task, child| Event { task, cpu: 0, kind: Kind::Clone { child, kind: CloneKind::Share } };
        let of = |task, end| Event { task, ..brk(end) };
        let mut q = queue();
        // Task 2 was numbered later, and its clone stands before the one of task 1.
        let fork = q.reserve();
        q.push(1, clone(0, 1)).expect("memory");
        q.push(2, of(1, 1)).expect("memory");
        q.resolve(fork, 3, Some(clone(0, 2))).expect("memory");
        q.push(4, of(2, 2)).expect("memory");
        // The clone of task 3 is refused: a task that has ended makes no child.
        q.push(5, Event { task: 2, cpu: 0, kind: Kind::Exit { last: false } }).expect("memory");
        q.push(6, clone(2, 3)).expect("memory");
        q.push(7, of(3, 3)).expect("memory");
        q.push(8, clone(1, 4)).expect("memory");
        q.push(9, of(4, 4)).expect("memory");
        let (writer, written) = q.finish().expect("memory");
        assert_eq!(written.refused, 2);
        let (bytes, _) = writer.finish(0).expect("memory");
        let events = Reader::new(&bytes[..]).expect("a header").map(|e| e.expect("an event"));
        let told: Vec<(u32, u64)> = events
            .map(|e| match e.kind {
                Kind::Brk { end } => (e.task, end),
                Kind::Clone { child, .. } => (e.task, 100 + u64::from(child)),
                _ => (e.task, 0),
            })
            .collect();
        assert_eq!(told, [(0, 101), (0, 102), (2, 1), (1, 2), (1, 0), (2, 103), (3, 4)]);
    }

    #[test]
    fn events_keep_their_places() {
        let mut q = queue();
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
        assert_eq!(ends(q), [1, 2, 3, 4, 6, 7, 9]);
    }
}
