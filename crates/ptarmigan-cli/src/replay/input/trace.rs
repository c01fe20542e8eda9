//! A trace in memory, packed so that a pass over it costs little besides the replay itself.
use crate::bar;
use crate::error::{Context, Failure};
use ptarmigan_trace::{CloneKind, Event, FaultFlags, Kind, Reader, TraceFile, Unseen};
use std::io::BufRead;
use std::path::Path;

/// One event. Faults, nine tenths of all, are held in place; the others by number.
#[derive(Clone, Copy)]
pub struct PackedEvent {
    /// The task.
    pub task: u32,
    /// The CPU.
    pub cpu: u16,
    /// What happened.
    pub what: PackedKind,
}

/// What happened.
#[derive(Clone, Copy)]
pub enum PackedKind {
    /// A fault on a page.
    Fault {
        /// Page number.
        page: u64,
        /// How.
        flags: FaultFlags,
    },
    /// Entry of [`Trace::rare`].
    Rare(u32),
    /// The CPU has nothing to run.
    Idle,
}

const _: () = assert!(size_of::<PackedEvent>() <= 24);

/// A trace in memory.
pub struct Trace {
    /// Its name.
    pub name: String,
    /// CPUs of the recorded machine.
    pub cpus: usize,
    /// Tasks that ever were.
    pub tasks: u32,
    /// Tasks with an address space of their own, at first or later.
    pub processes: u64,
    /// Events in the file.
    pub events: u64,
    /// Faults among them.
    pub faults: u64,
    /// Events lost by the recorder.
    pub lost: u64,
    /// Events to replay, in order.
    pub steps: Vec<PackedEvent>,
    /// Those that are no faults.
    pub rare: Vec<Kind>,
    /// The recording does not say how pages were touched: a fault is taken for a write where that is what it would
    /// have come to.
    pub access_unknown: bool,
    /// Flushes that Linux issued: one page, several, everything. Data to compare with.
    pub linux_flushes: [u64; 3],
}

/// `enum tlb_flush_reason`: shootdowns of a space by the CPU that asked, and requests sent to others.
const SHOOTDOWN_LOCAL: u8 = 3;

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or is not a whole trace.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = TraceFile::open(path).context(path.display())?;
        let expected = file.summary().events;
        let mut reader = file.events().context(path.display())?;
        Self::read(&mut reader, expected).context(path.display())
    }

    /// Reads a trace that is in memory already.
    ///
    /// # Errors
    /// If it is not a whole trace.
    pub fn from_bytes(bytes: &[u8], name: &str) -> Result<Self, Failure> {
        let mut reader = Reader::new(bytes).context(name)?;
        Self::read(&mut reader, 0).context(name)
    }

    fn read<R: BufRead>(reader: &mut Reader<R>, expected: u64) -> Result<Self, ptarmigan_trace::ReadError> {
        let mut trace = Trace {
            name: reader.header().name().to_owned(),
            cpus: usize::from(reader.header().cpus),
            tasks: 1,
            processes: 1,
            events: 0,
            faults: 0,
            lost: 0,
            steps: Vec::with_capacity(expected.min(1 << 26) as usize),
            rare: Vec::new(),
            access_unknown: reader.header().unseen.has(Unseen::FAULT_ACCESS),
            linux_flushes: [0; 3],
        };
        let bar = bar::bar(expected, "reading");
        for event in reader.by_ref() {
            trace.push(event?);
            if trace.events & 0xffff == 0 {
                bar.set_position(trace.events);
            }
        }
        bar.finish_and_clear();
        trace.lost = reader.summary().map_or(0, |s| s.lost);
        Ok(trace)
    }

    fn push(&mut self, event: Event) {
        let Event { task, cpu, kind } = event;
        self.events += 1;
        let what = match kind {
            Kind::Fault { page, flags } => {
                self.faults += 1;
                PackedKind::Fault { page, flags }
            }
            Kind::Idle => PackedKind::Idle,
            Kind::TlbFlush { pages, reason } => {
                // What Linux did is compared, not replayed.
                if reason >= SHOOTDOWN_LOCAL {
                    self.linux_flushes[match pages {
                        1 => 0,
                        0 => 2,
                        _ => 1,
                    }] += 1;
                }
                return;
            }
            kind => {
                if let Kind::Clone { child, kind } = kind {
                    self.tasks = self.tasks.max(child + 1);
                    self.processes += u64::from(kind != CloneKind::Share);
                }
                self.rare.push(kind);
                PackedKind::Rare((self.rare.len() - 1) as u32)
            }
        };
        self.steps.push(PackedEvent { task, cpu, what });
    }
}
