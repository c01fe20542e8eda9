//! The events of a trace, one a line.
//!
//! A line is `NUMBER TIME CPU TASK KIND FIELD=VALUE...`, separated by single spaces. The number
//! counts from 0; the time is in milliseconds since the recording began, `-` in a trace without
//! times. Addresses are page numbers in hexadecimal. Later versions may append fields.
use ptarmigan_trace::{
    AreaKind, Cause, CloneKind, Event, FailedCall, FaultFlags, KIND_NAMES, Kind, Locking, MapFlags, Note,
    Place, Prot, Sampled, Symbols, kind_index,
};
use std::fmt::{self, Display, Formatter};

/// One event as a line, without its end.
pub struct Line<'a> {
    /// The number of the event.
    pub number: u64,
    /// The time, in microseconds, if the trace has times.
    pub time: Option<u64>,
    /// The event.
    pub event: Event,
    /// The names that it may refer to.
    pub symbols: &'a Symbols,
}

/// A set of flags by their names, separated by commas.
struct Names<'a>(u64, &'a [(u64, &'a str)]);

impl Display for Names<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (bit, name) in self.1.iter().filter(|(bit, _)| self.0 & bit != 0) {
            let _ = bit;
            write!(f, "{between}{name}")?;
            between = ",";
        }
        if between.is_empty() { f.write_str("-") } else { Ok(()) }
    }
}

fn prot(prot: Prot) -> Names<'static> {
    Names(u64::from(prot.0), &[(1, "read"), (2, "write"), (4, "exec")])
}

fn locking(how: Locking) -> Names<'static> {
    Names(u64::from(how.0), &[(1, "now"), (2, "future"), (4, "on-fault")])
}

fn map_flags(flags: MapFlags) -> Names<'static> {
    const NAMES: [(u64, &str); 12] = [
        (MapFlags::SHARED as u64, "shared"),
        (MapFlags::ANON as u64, "anon"),
        (MapFlags::POPULATE as u64, "populate"),
        (MapFlags::GROWSDOWN as u64, "growsdown"),
        (MapFlags::FIXED as u64, "fixed"),
        (MapFlags::LOCKED as u64, "locked"),
        (MapFlags::NORESERVE as u64, "noreserve"),
        (MapFlags::HUGE_ONLY as u64, "hugetlb"),
        (MapFlags::NO_HUGE as u64, "nohuge"),
        (MapFlags::DROPPABLE as u64, "droppable"),
        (MapFlags::ALONE as u64, "alone"),
        (MapFlags::SEGMENT as u64, "segment"),
    ];
    Names(u64::from(flags.0), &NAMES)
}

fn fault_flags(flags: FaultFlags) -> Names<'static> {
    const NAMES: [(u64, &str); 5] = [
        (FaultFlags::PRESENT as u64, "present"),
        (FaultFlags::WRITE as u64, "write"),
        (FaultFlags::USER as u64, "user"),
        (FaultFlags::REFUSED as u64, "refused"),
        (FaultFlags::EXEC as u64, "exec"),
    ];
    Names(u64::from(flags.0), &NAMES)
}

/// The names of all kinds.
pub const NAMES: [&str; 27] = [
    "fault",
    "clone",
    "exec",
    "area",
    "exit",
    "mmap",
    "munmap",
    "brk",
    "mremap",
    "mprotect",
    "madvise",
    "tlb-flush",
    "idle",
    "truth",
    "lock",
    "lock-all",
    "stack-limit",
    "name",
    "pid",
    "touched",
    "failed",
    "took",
    "used",
    "mapped",
    "runtime",
    "caller",
    "stop-cost",
];

/// The name of a kind, as `--kind` takes it.
pub fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Lock { .. } => "lock",
        Kind::LockAll { .. } => "lock-all",
        Kind::StackLimit { .. } => "stack-limit",
        Kind::Name(_) => "name",
        Kind::Pid(_) => "pid",
        Kind::Touched { .. } => "touched",
        Kind::Failed { .. } => "failed",
        Kind::Note(Note::Took { .. }) => "took",
        Kind::Note(Note::Used { .. }) => "used",
        Kind::Note(Note::Mapped { .. }) => "mapped",
        Kind::Note(Note::Runtime(_)) => "runtime",
        Kind::Note(Note::Caller { .. }) => "caller",
        Kind::Note(Note::StopCost { .. }) => "stop-cost",
        kind => KIND_NAMES[kind_index(kind)],
    }
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Event { task, cpu, kind } = self.event;
        write!(f, "{} ", self.number)?;
        match self.time {
            Some(micros) => write!(f, "{}.{:03}", micros / 1000, micros % 1000)?,
            None => f.write_str("-")?,
        }
        write!(f, " cpu={cpu} task={task} {}", kind_name(&kind))?;
        fields(f, kind, self.symbols)
    }
}

fn fields(f: &mut Formatter<'_>, kind: Kind, symbols: &Symbols) -> fmt::Result {
    let range = |f: &mut Formatter<'_>, start: u64, pages: u64| write!(f, " start={start:#x} pages={pages}");
    match kind {
        Kind::Fault { page, flags } => write!(f, " page={page:#x} flags={}", fault_flags(flags)),
        Kind::Clone { child, kind } => {
            let how = match kind {
                CloneKind::Fork => "fork",
                CloneKind::Vfork => "vfork",
                CloneKind::Share => "share",
            };
            write!(f, " child={child} how={how}")
        }
        Kind::Exec { stack_end, arg_pages } => write!(f, " stack-end={stack_end:#x} arg-pages={arg_pages}"),
        Kind::Area { start, pages, prot: p, kind } => {
            range(f, start, pages)?;
            let kind = match kind {
                AreaKind::File => "file",
                AreaKind::Anon => "anon",
                AreaKind::Stack => "stack",
                AreaKind::Special => "special",
            };
            write!(f, " prot={} kind={kind}", prot(p))
        }
        Kind::Exit { last } => write!(f, " last={last}"),
        Kind::Mmap { start, pages, prot: p, flags } => {
            range(f, start, pages)?;
            write!(f, " prot={} flags={}", prot(p), map_flags(flags))
        }
        Kind::Munmap { start, pages } => range(f, start, pages),
        Kind::Brk { end } => write!(f, " end={end:#x}"),
        Kind::Mremap { from, old_pages, to, new_pages, keep } => {
            write!(f, " from={from:#x} old-pages={old_pages} to={to:#x} new-pages={new_pages} keep={keep}")
        }
        Kind::Mprotect { start, pages, prot: p } => {
            range(f, start, pages)?;
            write!(f, " prot={}", prot(p))
        }
        Kind::Madvise { start, pages, advice } => {
            range(f, start, pages)?;
            write!(f, " advice={advice}")
        }
        Kind::TlbFlush { pages, reason } => write!(f, " pages={pages} reason={reason}"),
        Kind::Idle => Ok(()),
        Kind::Truth { tables, at } => {
            let at = match at {
                Sampled::Exit => "exit",
                Sampled::Exec => "exec",
            };
            write!(f, " tables={tables} at={at}")
        }
        Kind::Lock { start, pages, how } => {
            range(f, start, pages)?;
            write!(f, " how={}", locking(how))
        }
        Kind::LockAll { how } => write!(f, " how={}", locking(how)),
        Kind::StackLimit { pages } => write!(f, " pages={pages}"),
        Kind::Name(name) => write!(f, " name={:?}", name.as_str()),
        Kind::Pid(pid) => write!(f, " pid={pid}"),
        Kind::Touched { start, pages, flags } => {
            range(f, start, pages)?;
            write!(f, " flags={}", fault_flags(flags))
        }
        Kind::Failed { errno, call } => {
            let (start, pages) = call.range();
            match call {
                FailedCall::Mprotect { prot: p, .. } => write!(f, " call=mprotect prot={}", prot(p))?,
                FailedCall::Madvise { advice, .. } => write!(f, " call=madvise advice={advice}")?,
                FailedCall::Lock { how, .. } => write!(f, " call=lock how={}", locking(how))?,
                FailedCall::Mremap { to, keep, .. } => write!(f, " call=mremap to={to:#x} keep={keep}")?,
            }
            range(f, start, pages)?;
            write!(f, " errno={errno}")
        }
        Kind::Note(note) => note_fields(f, note, symbols),
    }
}

fn note_fields(f: &mut Formatter<'_>, note: Note, symbols: &Symbols) -> fmt::Result {
    match note {
        Note::Took { call, nanos, away } => write!(f, " call={} ns={nanos} away-ns={away}", call.name()),
        Note::Used { user, system, minor, major, waits, preempted } => write!(
            f,
            " user-us={user} system-us={system} minor={minor} major={major} waits={waits} preempted={preempted}"
        ),
        Note::Mapped { start, pages, object, name } => {
            write!(f, " start={start:#x} pages={pages} object={}", object.name().replace(' ', "-"))?;
            name.map_or(Ok(()), |name| write!(f, " name={:?}", symbols.text(name)))
        }
        Note::Runtime(runtime) => write!(f, " runtime={}", runtime.name()),
        Note::Caller { cause, page, events, place } => {
            let of = match cause {
                Cause::Fault => "fault",
                Cause::Call(call) => call.name(),
            };
            write!(f, " of={of} page={page:#x} events={events} place=")?;
            let Some(place) = place else { return f.write_str("-") };
            for (at, place) in symbols.callers(place).enumerate() {
                f.write_str(if at == 0 { "" } else { "<-" })?;
                place_of(f, &place, symbols)?;
            }
            Ok(())
        }
        Note::StopCost { nanos } => write!(f, " ns={nanos}"),
    }
}

/// Writes a place without spaces, which end a field: `function!module@file:line`.
fn place_of(f: &mut Formatter<'_>, place: &Place, symbols: &Symbols) -> fmt::Result {
    let text = |text| symbols.text(text).replace(char::is_whitespace, "_");
    f.write_str(&place.function.map_or_else(|| "?".to_owned(), text))?;
    if let Some(module) = place.module {
        write!(f, "!{}", text(module))?;
    }
    match place.file {
        Some(file) => write!(f, "@{}:{}", text(file), place.line),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_stable() {
        let symbols = Symbols::default();
        let line = |time, kind| {
            Line { number: 5, time, event: Event { task: 7, cpu: 1, kind }, symbols: &symbols }.to_string()
        };
        let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER);
        assert_eq!(
            line(Some(1_234_567), Kind::Fault { page: 0x400, flags }),
            "5 1234.567 cpu=1 task=7 fault page=0x400 flags=write,user"
        );
        let flags = MapFlags(MapFlags::ANON | MapFlags::FIXED);
        assert_eq!(
            line(None, Kind::Mmap { start: 16, pages: 2, prot: Prot(0), flags }),
            "5 - cpu=1 task=7 mmap start=0x10 pages=2 prot=- flags=anon,fixed"
        );
        let call = FailedCall::Madvise { start: 1, pages: 2, advice: 4 };
        assert_eq!(
            line(None, Kind::Failed { errno: 12, call }),
            "5 - cpu=1 task=7 failed call=madvise advice=4 start=0x1 pages=2 errno=12"
        );
    }
}
