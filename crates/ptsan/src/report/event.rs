//! Records the events of a table frame.
use super::machine::MachineNames;
use std::fmt;

/// Something that happened to a table frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Announced as a table.
    Allocated,
    /// Given back.
    Freed,
    /// An entry at this physical address was found to point at it.
    Linked {
        /// Physical address of the entry.
        entry: u64,
    },
    /// The store to the entry at this physical address took it out of the tree.
    Unhooked {
        /// Physical address of the entry.
        entry: u64,
    },
    /// A CPU's walk went through it, and the CPU may hold it since.
    Walked {
        /// The CPU.
        cpu: usize,
        /// The level of the table in that walk.
        level: u8,
        /// The virtual address translated.
        va: u64,
    },
    /// A CPU loaded it as the root.
    RootLoaded {
        /// The CPU.
        cpu: usize,
    },
}

/// One remembered event. Its text names levels, CPUs and devices as the machine of the sanitizer
/// does.
/// ```
/// use ptsan::{Access, Arch, Config, Session};
///
/// let config = Config { devices: 1, ..Config::new(Arch::x86_2level()) };
/// let mut s = Session::with(config, vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// let disk = s.sanitizer.device(0);
/// s.sanitizer.switch(&s.memory, disk, 0x1000, 1);
/// s.free(0x1000);                             // the device has it loaded
/// let event = s.sanitizer.findings()[0].history[1];
/// assert_eq!(event.to_string(), "event 2: loaded as root by device 0");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryEvent {
    /// Number of the hook call, counted from 1.
    pub event: u64,
    /// The event.
    pub what: Happened,
    /// The names of levels, CPUs and devices.
    pub(super) machine: MachineNames,
}

impl Happened {
    /// Describes the event, with the names of levels, CPUs and devices.
    pub(super) fn text(self, machine: &MachineNames) -> String {
        match self {
            Self::Allocated => "allocated".to_owned(),
            Self::Freed => "freed".to_owned(),
            Self::Linked { entry } => format!("linked by the entry at {entry:#x}"),
            Self::Unhooked { entry } => format!("unhooked by a store to the entry at {entry:#x}"),
            Self::Walked { cpu, level, va } => {
                format!("walked by {} at {} for {va:#x}", machine.reader(cpu), machine.level(level))
            }
            Self::RootLoaded { cpu } => format!("loaded as root by {}", machine.reader(cpu)),
        }
    }
}

/// Events of a history that a report has in one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HistoryLine {
    /// Index of the first.
    pub(super) first: usize,
    /// Index of the last.
    pub(super) last: usize,
    pub(super) count: usize,
}

/// Returns the lines of a history. Walks and loads of the root that say the same are one line if
/// only others of them lie in between, and so are equal neighbours of any sort: the order of the
/// other events stays. `differ` says which events must not share a line for another reason.
pub(super) fn lines(history: &[HistoryEvent], differ: impl Fn(usize, usize) -> bool) -> Vec<HistoryLine> {
    let is_visit =
        |index: usize| matches!(history[index].what, Happened::Walked { .. } | Happened::RootLoaded { .. });
    let mut lines: Vec<HistoryLine> = Vec::new();
    for (index, event) in history.iter().enumerate() {
        // The first line, from the last one back, that is the same or that no event may move
        // across.
        let stop = lines.iter_mut().rev().find(|line| {
            let same = history[line.first].what == event.what && !differ(line.first, index);
            same || !(is_visit(line.first) && is_visit(index))
        });
        match stop {
            Some(line) if history[line.first].what == event.what && !differ(line.first, index) => {
                (line.last, line.count) = (index, line.count + 1);
            }
            _ => lines.push(HistoryLine { first: index, last: index, count: 1 }),
        }
    }
    lines
}

impl fmt::Display for HistoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.what.text(&self.machine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(cpu: usize) -> Happened {
        Happened::Walked { cpu, level: 0, va: 0x1000 }
    }

    fn of(events: &[Happened], differ: impl Fn(usize, usize) -> bool) -> Vec<(usize, usize, usize)> {
        let history: Vec<_> = events
            .iter()
            .zip(1..)
            .map(|(&what, event)| HistoryEvent { event, what, machine: MachineNames::default() })
            .collect();
        lines(&history, differ).into_iter().map(|line| (line.first, line.last, line.count)).collect()
    }

    #[test]
    fn equal_walks_are_one_line_and_events_keep_their_order() {
        let same = |_: usize, _: usize| false;
        let all =
            [Happened::Allocated, walk(0), walk(1), walk(0), Happened::Freed, Happened::Allocated, walk(0)];
        assert_eq!(of(&all, same), [(0, 0, 1), (1, 3, 2), (2, 2, 1), (4, 4, 1), (5, 5, 1), (6, 6, 1)]);
        let linked = |entry| Happened::Linked { entry };
        let links = [linked(8), linked(8), linked(16), linked(8)];
        assert_eq!(of(&links, same), [(0, 1, 2), (2, 2, 1), (3, 3, 1)]);
    }

    #[test]
    fn an_event_names_the_device_and_the_level_of_its_machine() {
        let machine = MachineNames { level_names: &["leaves"], cpus: 2, devices: 1 };
        let text = |cpu| HistoryEvent { event: 7, what: walk(cpu), machine }.to_string();
        assert_eq!(text(1), "event 7: walked by CPU 1 at leaves for 0x1000");
        assert_eq!(text(2), "event 7: walked by device 0 at leaves for 0x1000");
    }

    #[test]
    fn events_with_other_callers_have_lines_of_their_own() {
        assert_eq!(of(&[walk(0), walk(0), walk(0)], |a, b| (a == 1) != (b == 1)), [(0, 2, 2), (1, 1, 1)]);
    }
}
