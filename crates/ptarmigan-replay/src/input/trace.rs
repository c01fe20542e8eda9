//! A trace in memory, packed so that reading it costs little beside the replay.
use crate::account::{Account, Programs};
use crate::files::shipped::DEFAULT;
use crate::linux::{Blocks, HugeFaults};
use crate::memory::available;
use foldhash::{HashMap, HashMapExt};
use ptarmigan_term::Bytes;
use ptarmigan_term::bar;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::{
    CloneKind, Event, FailedCall, FaultFlags, Header, HugePages, Kind, MapFlags, Note, Opening, Openings,
    Reader, Settings, Symbols, Unseen,
};
use std::io::BufRead;
use std::path::Path;

/// One event. Faults, nine tenths of all events, are stored in place; other kinds by index.
#[derive(Clone, Copy)]
pub struct PackedEvent {
    /// The task.
    pub task: u32,
    /// The CPU.
    pub cpu: u16,
    /// The kind of event.
    pub what: PackedKind,
}

/// The kind of event.
#[derive(Clone, Copy)]
pub enum PackedKind {
    /// A fault on a page.
    Fault {
        /// Page number.
        page: u64,
        /// Access bits.
        flags: FaultFlags,
    },
    /// Index into [`Trace::rare`].
    Rare(u32),
    /// The CPU becomes idle.
    Idle,
}

const _: () = assert!(size_of::<PackedEvent>() <= 24);

/// A time of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeMark {
    /// The first step at that time, or later.
    pub step: u32,
    /// Microseconds since the recording began.
    pub micros: u64,
}

/// Times that are closer together than this, in microseconds, share a mark.
const APART: u64 = 16;

/// An event of Linux's tracepoint for flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxFlush {
    /// The number of steps before it.
    pub step: u32,
    /// The task.
    pub task: u32,
    /// The pages, 0 for all.
    pub pages: u64,
    /// The reason, in Linux's numbering.
    pub reason: u8,
}

/// A time of a call, or of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The number of steps before it.
    pub step: u32,
    /// The task.
    pub task: u32,
    /// The note.
    pub note: Note,
}

/// A trace in memory.
#[derive(Clone)]
pub struct Trace {
    /// The recording's header, as the file has it.
    pub header: Header,
    /// Name of the workload.
    pub name: String,
    /// CPUs of the recorded machine.
    pub cpus: usize,
    /// Number of tasks.
    pub tasks: u32,
    /// Number of tasks that are processes, not threads.
    pub processes: u64,
    /// Number of events in the file.
    pub events: u64,
    /// Number of faults.
    pub faults: u64,
    /// Number of events that the recorder lost.
    pub lost: u64,
    /// Number of programs that ran and were not recorded.
    pub unrecorded: u32,
    /// The settings of the recorded machine. Empty in traces of formats 1 to 3.
    pub settings: Settings,
    /// The events to replay, in order.
    pub steps: Vec<PackedEvent>,
    /// The events other than faults.
    pub rare: Vec<Kind>,
    /// The recording does not tell reads from writes. A fault in a private writable area then
    /// counts as a write.
    pub access_unknown: bool,
    /// Where faults try huge pages first.
    pub huge: HugeFaults,
    /// The blocks of pages that a fault on anonymous memory maps.
    pub blocks: Blocks,
    /// Whether pages are ever locked.
    pub locks: bool,
    /// Whether areas have huge pages only (`MAP_HUGETLB`).
    pub huge_only: bool,
    /// Flushes by Linux and requests for them, for comparison. They are not among the steps.
    pub flush_marks: Vec<LinuxFlush>,
    /// The times of the recording, if it has any.
    pub times: Vec<TimeMark>,
    /// The times of calls and processes, if it has any.
    pub account: Account,
    /// The same, one by one. They are not among the steps.
    pub timings: Vec<Timing>,
    /// Names of files and functions, if the recording has any.
    pub symbols: Symbols,
}

/// Returns whether a call asks for huge pages. One that fails at a hole has asked for the areas
/// around the hole.
fn asks_for_huge_pages(kind: &Kind) -> bool {
    match kind {
        Kind::Madvise { advice, .. } | Kind::Failed { call: FailedCall::Madvise { advice, .. }, .. } => {
            i32::from(*advice) == libc::MADV_HUGEPAGE
        }
        _ => false,
    }
}

/// Returns whether a call maps huge pages only.
fn maps_huge_only(kind: &Kind) -> bool {
    matches!(kind, Kind::Mmap { flags, .. } if flags.0 & MapFlags::HUGE_ONLY != 0)
}

fn locks(kind: &Kind) -> bool {
    match kind {
        Kind::Lock { .. } | Kind::LockAll { .. } | Kind::Failed { call: FailedCall::Lock { .. }, .. } => true,
        Kind::Mmap { flags, .. } => flags.0 & MapFlags::LOCKED != 0,
        _ => false,
    }
}

impl Trace {
    /// Reads a trace from a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not a complete trace, or has more events than fit in memory.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_with(path, Some)
    }

    /// Reads a trace from a file, `None` for the shipped recording that is the default.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_or_default(path: Option<&Path>) -> Result<Self, Failure> {
        Self::open_or_default_with(path, Some)
    }

    /// Reads a trace as [`open_or_default`](Self::open_or_default), without its names of files and
    /// functions: as the copy that `ptarmigan inspect --share` writes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn without_symbols(path: Option<&Path>) -> Result<Self, Failure> {
        let trace = Self::open_or_default_with(path, Event::without_symbols)?;
        Ok(Trace { symbols: Symbols::default(), ..trace })
    }

    fn open_or_default_with(path: Option<&Path>, keep: fn(Event) -> Option<Event>) -> Result<Self, Failure> {
        let (name, bytes) = DEFAULT;
        path.map_or_else(|| Self::from_bytes_with(bytes, name, keep), |path| Self::open_with(path, keep))
    }

    fn open_with(path: &Path, keep: fn(Event) -> Option<Event>) -> Result<Self, Failure> {
        let name = crate::files::name(path);
        let file = crate::files::open(path).context(&name)?;
        let expected = file.summary().events;
        // The programs that are made of the events are as large again.
        let bytes = expected.saturating_mul(2 * size_of::<PackedEvent>() as u64);
        if let Some(left) = available().filter(|left| *left < bytes) {
            return Err(Failure::new(format!(
                "{name}: {expected} events take {} MiB of memory, and this host has {} MiB left",
                Bytes(bytes).mib(),
                Bytes(left).mib()
            )));
        }
        let mut reader = file.events().context(&name)?;
        Self::read(&mut reader, expected, keep).context(&name)
    }

    /// Reads a trace from memory.
    ///
    /// # Errors
    /// If it is not a complete trace.
    pub fn from_bytes(bytes: &[u8], name: &str) -> Result<Self, Failure> {
        Self::from_bytes_with(bytes, name, Some)
    }

    fn from_bytes_with(bytes: &[u8], name: &str, keep: fn(Event) -> Option<Event>) -> Result<Self, Failure> {
        let mut reader = Reader::new(bytes).context(name)?;
        Self::read(&mut reader, 0, keep).context(name)
    }

    /// Reads the events that `keep` returns.
    fn read<R: BufRead>(
        reader: &mut Reader<R>,
        expected: u64,
        keep: fn(Event) -> Option<Event>,
    ) -> Result<Self, ptarmigan_trace::ReadError> {
        let mut trace = Trace {
            header: reader.header().clone(),
            name: reader.header().name().to_owned(),
            cpus: usize::from(reader.header().cpus),
            tasks: 1,
            processes: 1,
            events: 0,
            faults: 0,
            lost: 0,
            unrecorded: 0,
            settings: Settings::default(),
            steps: Vec::new(),
            rare: Vec::new(),
            access_unknown: reader.header().unseen.has(Unseen::FAULT_ACCESS),
            huge: match reader.header().huge {
                HugePages::Always => HugeFaults::Always,
                HugePages::Unknown | HugePages::Never | HugePages::Advised => HugeFaults::Never,
            },
            blocks: Blocks::default(),
            locks: false,
            huge_only: false,
            flush_marks: Vec::new(),
            times: Vec::new(),
            account: Account::new(),
            timings: Vec::new(),
            symbols: Symbols::default(),
        };
        trace
            .steps
            .try_reserve(usize::try_from(expected).unwrap_or(usize::MAX))
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
        // An area that asks for huge pages gets them, unless nobody does.
        let advised = reader.header().huge != HugePages::Never;
        let bar = bar::bar(expected, "reading");
        while let Some(event) = reader.next() {
            let Some(event) = keep(event?) else { continue };
            trace.mark(reader.time());
            trace.account.add(&event, reader.time());
            trace.push(event);
            if trace.events & 0xffff == 0 {
                bar.set_position(trace.events);
            }
        }
        bar.finish_and_clear();
        if trace.huge == HugeFaults::Never && advised && trace.rare.iter().any(asks_for_huge_pages) {
            trace.huge = HugeFaults::Advised;
        }
        trace.locks = trace.rare.iter().any(locks);
        trace.huge_only = trace.rare.iter().any(maps_huge_only);
        trace.symbols = reader.symbols().clone();
        trace.settings = reader.settings().clone();
        let sizes = trace.settings.block_sizes();
        trace.blocks = Blocks::new(&sizes.always, &sizes.advised);
        (trace.lost, trace.unrecorded) = reader.summary().map_or((0, 0), |s| (s.lost, s.unrecorded));
        Ok(trace)
    }

    /// Returns how many of the programs that ran are in the recording.
    pub fn coverage(&self) -> Programs {
        self.account.coverage(self.header.unseen, self.unrecorded)
    }

    /// Returns the number of a step among all events of the file, from 0.
    pub fn event_number(&self, step: u32) -> u64 {
        let flushes = self.flush_marks.partition_point(|flush| flush.step <= step);
        let timings = self.timings.partition_point(|timing| timing.step <= step);
        u64::from(step) + (flushes + timings) as u64
    }

    /// Returns the steps that give the state of processes which ran before the recording, by their
    /// number: no program did them.
    pub fn opening_steps(&self) -> HashMap<u32, Opening> {
        let (mut openings, mut found) = (Openings::default(), HashMap::new());
        for number in 0..self.steps.len() as u32 {
            let Some(part) = openings.see(&self.event(number)) else { continue };
            if let Opening::Process { maker: Some(_) } = part {
                found.insert(number - 1, part);
            }
            found.insert(number, part);
        }
        found
    }

    /// Returns the event of a step.
    ///
    /// # Panics
    /// If there is no such step.
    #[inline]
    pub fn event(&self, step: u32) -> Event {
        let PackedEvent { task, cpu, what } = self.steps[step as usize];
        let kind = match what {
            PackedKind::Fault { page, flags } => Kind::Fault { page, flags },
            PackedKind::Rare(rare) => self.rare[rare as usize],
            PackedKind::Idle => Kind::Idle,
        };
        Event { task, cpu, kind }
    }

    /// Notes that the next event happened at `micros`.
    #[inline]
    fn mark(&mut self, micros: u64) {
        if micros >= self.times.last().map_or(1, |last| last.micros + APART) {
            self.times.push(TimeMark { step: self.steps.len() as u32, micros });
        }
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
            // Times are not replayed.
            Kind::Note(note @ (Note::Took { .. } | Note::Used { .. } | Note::StopCost { .. })) => {
                self.timings.push(Timing { step: self.steps.len() as u32, task, note });
                return;
            }
            // Facts about the whole recording.
            Kind::Note(Note::Setting { .. } | Note::Unread { .. }) => return,
            // Linux's flushes are compared, not replayed.
            Kind::TlbFlush { pages, reason } => {
                self.flush_marks.push(LinuxFlush { step: self.steps.len() as u32, task, pages, reason });
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

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_trace::{Locking, Method, UnreadReason, Writer};

    #[test]
    fn settings_and_unread_programs_are_no_steps() {
        let header = Header::new("settings", 1, Method::Synthetic);
        let mut writer = Writer::new(Vec::new(), &header, 1).expect("a good header");
        writer.setting("enabled", "always").expect("a good setting");
        writer.setting("hugepages-64kB/enabled", "inherit").expect("a good setting");
        let unread = Note::Unread { name: None, why: UnreadReason::Ended };
        for kind in [Kind::Exec { stack_end: 9, arg_pages: 1 }, Kind::Note(unread), Kind::Exit { last: true }]
        {
            writer.event(&Event { task: 0, cpu: 0, kind }).expect("a good event");
        }
        let (bytes, _) = writer.finish(0).expect("memory takes everything");
        let trace = Trace::from_bytes(&bytes, "made").expect("a trace");
        assert_eq!((trace.steps.len(), trace.events), (2, 5));
        assert_eq!(trace.settings.block_sizes().always, [64]);
    }

    #[test]
    fn the_default_has_times_and_names_that_a_copy_leaves_out() {
        let trace = Trace::open_or_default(None).expect("a shipped recording");
        assert_eq!(trace.name, DEFAULT.0);
        assert!(!trace.times.is_empty() && !trace.symbols.is_empty());
        let copy = Trace::without_symbols(None).expect("the same recording");
        assert!(copy.symbols.is_empty());
        assert_eq!((copy.faults, copy.processes), (trace.faults, trace.processes));
    }

    #[test]
    fn calls_failing_half_way_advise_and_lock_before_they_fail() {
        let failed = |call| Kind::Failed { errno: libc::ENOMEM as u8, call };
        let (start, pages) = (0, 4);
        let advice = |advice: i32| failed(FailedCall::Madvise { start, pages, advice: advice as u16 });
        assert!(asks_for_huge_pages(&advice(libc::MADV_HUGEPAGE)));
        assert!(!asks_for_huge_pages(&advice(libc::MADV_NOHUGEPAGE)));
        assert!(locks(&failed(FailedCall::Lock { start, pages, how: Locking(Locking::NOW) })));
        assert!(!locks(&advice(libc::MADV_HUGEPAGE)));
    }
}
