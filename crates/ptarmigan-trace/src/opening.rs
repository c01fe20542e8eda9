//! Tells the events that give the state of processes which ran before the recording.
//!
//! A recording may attach to running processes. Each begins in the trace with an *opening*:
//!
//! 1. A `Clone` of kind `Vfork` that makes its task, unless it is the first of the trace.
//! 2. An `Exec` with 0 argument pages, which no program starts with.
//! 3. Its areas, advice, locks and pages, a count of its tables, and a `Clone` of kind `Share` for
//!    each further thread.
//! 4. A `StackLimit`, the last event.
//!
//! No other event stands in between. These events did not happen in the recording: a number of
//! forks, execs or calls leaves them out.
//!
//! A program that such a process starts may be read later than it began. Its `Exec` has at least
//! one argument page and did happen. An opening without a `Clone` follows where it was read.
use crate::{CloneKind, Event, Kind};

/// The part of an opening that an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The `Exec` that opens a process.
    Process {
        /// The task of the event before this one: a `Clone` that belongs to the opening, too.
        /// `None` if the process is the first of the trace.
        maker: Option<u32>,
    },
    /// The `Exec` that opens a program whose start is in the recording.
    Program,
    /// The `Clone` of a thread that ran already.
    Thread,
    /// A part of the state.
    State,
}

/// Follows the events of a trace, and tells those of openings.
#[derive(Clone, Debug, Default)]
pub struct Openings {
    /// Whether an event came that is no note.
    begun: bool,
    /// The last event, if it is a `Clone` of kind `Vfork`: its task and its child.
    vfork: Option<(u32, u32)>,
    /// The task of the opening.
    task: Option<u32>,
    counts: OpeningCounts,
}

/// Counts of openings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpeningCounts {
    /// Processes that ran already.
    pub processes: u64,
    /// Threads that ran already, without the first of each process.
    pub threads: u64,
    /// Programs that were read later than they began.
    pub programs: u64,
    /// Counts of tables (`Truth`).
    pub samples: u64,
    /// All events of openings.
    pub events: u64,
}

impl Openings {
    /// Follows the next event. Returns its part, if it belongs to an opening. The `Clone` that
    /// makes a process is told by the `Exec` after it.
    #[inline]
    pub fn see(&mut self, event: &Event) -> Option<Opening> {
        if let Kind::Exec { arg_pages: 0, .. } = event.kind {
            return Some(self.open(event.task));
        }
        if self.task.is_some() {
            return self.go_on(event);
        }
        self.begun |= !matches!(event.kind, Kind::Note(_));
        self.vfork = match event.kind {
            Kind::Clone { child, kind: CloneKind::Vfork } => Some((event.task, child)),
            _ => None,
        };
        None
    }

    /// Returns the counts of the events so far.
    #[must_use]
    pub fn counts(&self) -> OpeningCounts {
        self.counts
    }

    fn open(&mut self, task: u32) -> Opening {
        let maker = self.vfork.take().filter(|(_, child)| *child == task).map(|(maker, _)| maker);
        let first = !std::mem::replace(&mut self.begun, true);
        self.task = Some(task);
        self.counts.events += 1 + u64::from(maker.is_some());
        if first || maker.is_some() {
            self.counts.processes += 1;
            Opening::Process { maker }
        } else {
            self.counts.programs += 1;
            Opening::Program
        }
    }

    /// Follows an event after the `Exec` of an opening.
    fn go_on(&mut self, event: &Event) -> Option<Opening> {
        let part = part(&event.kind).filter(|_| self.task == Some(event.task));
        match (part, &event.kind) {
            // The opening has ended without its last event: events were lost.
            (None, _) => {
                self.task = None;
                return self.see(event);
            }
            (_, Kind::StackLimit { .. }) => self.task = None,
            (_, Kind::Truth { .. }) => self.counts.samples += 1,
            (Some(Opening::Thread), _) => self.counts.threads += 1,
            _ => {}
        }
        self.counts.events += 1;
        part
    }
}

/// Returns the part of an opening that an event of this kind may be.
fn part(kind: &Kind) -> Option<Opening> {
    match kind {
        Kind::Clone { kind: CloneKind::Share, .. } => Some(Opening::Thread),
        Kind::Area { .. }
        | Kind::Mmap { .. }
        | Kind::Munmap { .. }
        | Kind::Brk { .. }
        | Kind::Mprotect { .. }
        | Kind::Madvise { .. }
        | Kind::Lock { .. }
        | Kind::StackLimit { .. }
        | Kind::Name(_)
        | Kind::Pid(_)
        | Kind::Touched { .. }
        | Kind::Truth { .. }
        | Kind::Note(_) => Some(Opening::State),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultFlags, Sampled};

    const EXEC: Kind = Kind::Exec { stack_end: 9, arg_pages: 1 };
    const OPEN: Kind = Kind::Exec { stack_end: 9, arg_pages: 0 };
    const BRK: Kind = Kind::Brk { end: 4 };
    const END: Kind = Kind::StackLimit { pages: 2048 };
    const TRUTH: Kind = Kind::Truth { tables: 7, at: Sampled::Exec };

    fn clone(child: u32, kind: CloneKind) -> Kind {
        Kind::Clone { child, kind }
    }

    /// Returns the parts of these events, and the counts.
    fn seen(events: &[(u32, Kind)]) -> (Vec<Option<Opening>>, OpeningCounts) {
        let mut openings = Openings::default();
        let see = |&(task, kind): &(u32, Kind)| openings.see(&Event { task, cpu: 0, kind });
        (events.iter().map(see).collect(), openings.counts())
    }

    #[test]
    fn processes_and_threads_that_ran_already() {
        let (parts, counts) = seen(&[
            (0, OPEN),
            (0, BRK),
            (0, TRUTH),
            (0, clone(1, CloneKind::Share)),
            (0, END),
            (0, clone(2, CloneKind::Vfork)),
            (2, OPEN),
            (2, END),
            (0, clone(3, CloneKind::Share)),
            (0, BRK),
        ]);
        let state = Some(Opening::State);
        let expected = [
            Some(Opening::Process { maker: None }),
            state,
            state,
            Some(Opening::Thread),
            state,
            None,
            Some(Opening::Process { maker: Some(0) }),
            state,
            None,
            None,
        ];
        assert_eq!(parts, expected);
        let expected = OpeningCounts { processes: 2, threads: 1, programs: 0, samples: 1, events: 8 };
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_program_that_is_read_after_its_start_has_started_once() {
        let (parts, counts) = seen(&[
            (0, OPEN),
            (0, END),
            (0, clone(1, CloneKind::Vfork)),
            (1, EXEC),
            (0, TRUTH),
            (1, OPEN),
            (1, END),
        ]);
        assert_eq!(parts[2..5], [None; 3], "the vfork, the exec and the count happened");
        assert_eq!(parts[5], Some(Opening::Program));
        assert_eq!((counts.processes, counts.programs, counts.events), (1, 1, 4));
    }

    #[test]
    fn an_opening_ends_at_an_event_that_cannot_belong_to_it() {
        let fault = Kind::Fault { page: 1, flags: FaultFlags(4) };
        for other in [(0, fault), (1, BRK), (0, clone(2, CloneKind::Fork)), (0, EXEC)] {
            let (parts, _) = seen(&[(0, clone(1, CloneKind::Fork)), (0, OPEN), (0, BRK), other, (0, BRK)]);
            assert_eq!(parts[2..], [Some(Opening::State), None, None], "{other:?}");
        }
        // A vfork that ends one may begin the next.
        let (parts, _) = seen(&[(0, OPEN), (0, clone(1, CloneKind::Vfork)), (1, OPEN)]);
        assert_eq!(parts[2], Some(Opening::Process { maker: Some(0) }));
    }
}
