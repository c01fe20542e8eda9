//! The events of a trace, one a line.
//!
//! A line is `NUMBER TIME CPU TASK KIND FIELD=VALUE...`, separated by single spaces. The number
//! counts from 0; the time is in milliseconds since the recording began, `-` in a trace without
//! times. Addresses are page numbers in hexadecimal. Later versions may append fields.
use crate::csv;
use ptarmigan_trace::{
    AreaKind, Cause, CloneKind, Event, FailedCall, FaultFlags, KIND_NAMES, Kind, Locking, MapFlags, Note,
    Place, PlaceId, Prot, Sampled, Symbols, kind_index,
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
    Names(u64::from(how.0), &[(1, "now"), (2, "future"), (4, "on-fault"), (8, "later")])
}

fn map_flags(flags: MapFlags) -> Names<'static> {
    const NAMES: [(u64, &str); 13] = [
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
        (MapFlags::LATER as u64, "later"),
    ];
    Names(u64::from(flags.0), &NAMES)
}

fn fault_flags(flags: FaultFlags) -> Names<'static> {
    const NAMES: [(u64, &str); 6] = [
        (FaultFlags::PRESENT as u64, "present"),
        (FaultFlags::WRITE as u64, "write"),
        (FaultFlags::USER as u64, "user"),
        (FaultFlags::REFUSED as u64, "refused"),
        (FaultFlags::EXEC as u64, "exec"),
        (FaultFlags::READ as u64, "read"),
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

/// The value of a field.
enum Value<'a> {
    /// A number, an address, or words of this command.
    Own(&'a dyn Display),
    /// Text that the recorded program has chosen.
    Foreign(&'a str),
}

/// Takes the fields of an event, one by one.
type Put<'p> = dyn FnMut(&'static str, Value<'_>) -> fmt::Result + 'p;

/// Returns a time in milliseconds, exactly: programs read the lines of events.
fn milliseconds(micros: u64) -> String {
    let (whole, rest) = (micros / 1000, micros % 1000);
    format!("{whole}.{rest:03}")
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Event { task, cpu, kind } = self.event;
        write!(f, "{} ", self.number)?;
        match self.time {
            Some(micros) => f.write_str(&milliseconds(micros))?,
            None => f.write_str("-")?,
        }
        write!(f, " cpu={cpu} task={task} {}", kind_name(&kind))?;
        fields(kind, self.symbols, &mut |name, value| match value {
            Value::Own(value) => write!(f, " {name}={value}"),
            Value::Foreign(text) => write!(f, " {name}={text:?}"),
        })
    }
}

/// The fields that events have, which are columns of a CSV file.
const FIELDS: [&str; 38] = [
    "page",
    "start",
    "pages",
    "flags",
    "prot",
    "kind",
    "child",
    "how",
    "stack-end",
    "arg-pages",
    "last",
    "end",
    "from",
    "old-pages",
    "to",
    "new-pages",
    "keep",
    "advice",
    "reason",
    "tables",
    "at",
    "call",
    "errno",
    "ns",
    "away-ns",
    "user-us",
    "system-us",
    "minor",
    "major",
    "waits",
    "preempted",
    "object",
    "name",
    "pid",
    "runtime",
    "of",
    "events",
    "place",
];

/// Returns the first line of a CSV file of events.
pub fn csv_head() -> String {
    // The kind of an area is not the kind of its event.
    let fields = FIELDS.map(|name| if name == "kind" { "area" } else { name });
    let names = ["number", "ms", "cpu", "task", "kind"].into_iter().chain(fields);
    names.map(|name| name.replace('-', "_")).collect::<Vec<_>>().join(",")
}

impl Line<'_> {
    /// Returns the event as a line of a CSV file. Fields that it does not have are empty.
    pub fn csv(&self) -> String {
        let Event { task, cpu, kind } = self.event;
        let ms = self.time.map_or(String::new(), milliseconds);
        let mut cells: [String; FIELDS.len()] = std::array::from_fn(|_| String::new());
        // The closure writes to strings, which take everything.
        let _ = fields(kind, self.symbols, &mut |name, value| {
            let at = FIELDS.iter().position(|field| *field == name);
            debug_assert!(at.is_some(), "{name} has a column");
            if let Some(cell) = at.and_then(|at| cells.get_mut(at)) {
                *cell = match value {
                    Value::Own(value) => {
                        Some(value.to_string()).filter(|text| text != "-").unwrap_or_default()
                    }
                    Value::Foreign(text) => text.to_owned(),
                };
            }
            Ok(())
        });
        let cells = cells.map(|cell| csv::foreign(&cell)).join(",");
        format!("{},{ms},{cpu},{task},{},{cells}", self.number, kind_name(&kind))
    }
}

fn fields(kind: Kind, symbols: &Symbols, put: &mut Put<'_>) -> fmt::Result {
    fn range(put: &mut Put<'_>, start: u64, pages: u64) -> fmt::Result {
        put("start", Value::Own(&format_args!("{start:#x}")))?;
        put("pages", Value::Own(&pages))
    }
    match kind {
        Kind::Fault { page, flags } => {
            put("page", Value::Own(&format_args!("{page:#x}")))?;
            put("flags", Value::Own(&fault_flags(flags)))
        }
        Kind::Clone { child, kind } => {
            let how = match kind {
                CloneKind::Fork => "fork",
                CloneKind::Vfork => "vfork",
                CloneKind::Share => "share",
            };
            put("child", Value::Own(&child))?;
            put("how", Value::Own(&how))
        }
        Kind::Exec { stack_end, arg_pages } => {
            put("stack-end", Value::Own(&format_args!("{stack_end:#x}")))?;
            put("arg-pages", Value::Own(&arg_pages))
        }
        Kind::Area { start, pages, prot: p, kind } => {
            range(put, start, pages)?;
            let kind = match kind {
                AreaKind::File => "file",
                AreaKind::Anon => "anon",
                AreaKind::Stack => "stack",
                AreaKind::Special => "special",
            };
            put("prot", Value::Own(&prot(p)))?;
            put("kind", Value::Own(&kind))
        }
        Kind::Exit { last } => put("last", Value::Own(&last)),
        Kind::Mmap { start, pages, prot: p, flags } => {
            range(put, start, pages)?;
            put("prot", Value::Own(&prot(p)))?;
            put("flags", Value::Own(&map_flags(flags)))
        }
        Kind::Munmap { start, pages } => range(put, start, pages),
        Kind::Brk { end } => put("end", Value::Own(&format_args!("{end:#x}"))),
        Kind::Mremap { from, old_pages, to, new_pages, keep } => {
            put("from", Value::Own(&format_args!("{from:#x}")))?;
            put("old-pages", Value::Own(&old_pages))?;
            put("to", Value::Own(&format_args!("{to:#x}")))?;
            put("new-pages", Value::Own(&new_pages))?;
            put("keep", Value::Own(&keep))
        }
        Kind::Mprotect { start, pages, prot: p } => {
            range(put, start, pages)?;
            put("prot", Value::Own(&prot(p)))
        }
        Kind::Madvise { start, pages, advice } => {
            range(put, start, pages)?;
            put("advice", Value::Own(&advice))
        }
        Kind::TlbFlush { pages, reason } => {
            put("pages", Value::Own(&pages))?;
            put("reason", Value::Own(&reason))
        }
        Kind::Idle => Ok(()),
        Kind::Truth { tables, at } => {
            let at = match at {
                Sampled::Exit => "exit",
                Sampled::Exec => "exec",
            };
            put("tables", Value::Own(&tables))?;
            put("at", Value::Own(&at))
        }
        Kind::Lock { start, pages, how } => {
            range(put, start, pages)?;
            put("how", Value::Own(&locking(how)))
        }
        Kind::LockAll { how } => put("how", Value::Own(&locking(how))),
        Kind::StackLimit { pages } => put("pages", Value::Own(&pages)),
        Kind::Name(name) => put("name", Value::Foreign(name.as_str())),
        Kind::Pid(pid) => put("pid", Value::Own(&pid)),
        Kind::Touched { start, pages, flags } => {
            range(put, start, pages)?;
            put("flags", Value::Own(&fault_flags(flags)))
        }
        Kind::Failed { errno, call } => {
            let (start, pages) = call.range();
            match call {
                FailedCall::Mprotect { prot: p, .. } => {
                    put("call", Value::Own(&"mprotect"))?;
                    put("prot", Value::Own(&prot(p)))?;
                }
                FailedCall::Madvise { advice, .. } => {
                    put("call", Value::Own(&"madvise"))?;
                    put("advice", Value::Own(&advice))?;
                }
                FailedCall::Lock { how, .. } => {
                    put("call", Value::Own(&"lock"))?;
                    put("how", Value::Own(&locking(how)))?;
                }
                FailedCall::Mremap { to, keep, .. } => {
                    put("call", Value::Own(&"mremap"))?;
                    put("to", Value::Own(&format_args!("{to:#x}")))?;
                    put("keep", Value::Own(&keep))?;
                }
            }
            range(put, start, pages)?;
            put("errno", Value::Own(&errno))
        }
        Kind::Note(note) => note_fields(note, symbols, put),
    }
}

fn note_fields(note: Note, symbols: &Symbols, put: &mut Put<'_>) -> fmt::Result {
    match note {
        Note::Took { call, nanos, away } => {
            put("call", Value::Own(&call.name()))?;
            put("ns", Value::Own(&nanos))?;
            put("away-ns", Value::Own(&away))
        }
        Note::Used { user, system, minor, major, waits, preempted } => {
            put("user-us", Value::Own(&user))?;
            put("system-us", Value::Own(&system))?;
            put("minor", Value::Own(&minor))?;
            put("major", Value::Own(&major))?;
            put("waits", Value::Own(&waits))?;
            put("preempted", Value::Own(&preempted))
        }
        Note::Mapped { start, pages, object, name } => {
            put("start", Value::Own(&format_args!("{start:#x}")))?;
            put("pages", Value::Own(&pages))?;
            put("object", Value::Own(&object.name().replace(' ', "-")))?;
            name.map_or(Ok(()), |name| put("name", Value::Foreign(symbols.text(name))))
        }
        Note::Runtime(runtime) => put("runtime", Value::Own(&runtime.name())),
        Note::Caller { cause, page, events, place } => {
            let of = match cause {
                Cause::Fault => "fault",
                Cause::Call(call) => call.name(),
            };
            put("of", Value::Own(&of))?;
            put("page", Value::Own(&format_args!("{page:#x}")))?;
            put("events", Value::Own(&events))?;
            let Some(place) = place else { return put("place", Value::Own(&"-")) };
            put("place", Value::Own(&Stack { place, symbols }))
        }
        Note::StopCost { nanos } => put("ns", Value::Own(&nanos)),
    }
}

/// A place and the calls that led there, in one word.
struct Stack<'a> {
    place: PlaceId,
    symbols: &'a Symbols,
}

impl Display for Stack<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, place) in self.symbols.callers(self.place).enumerate() {
            f.write_str(if at == 0 { "" } else { "<-" })?;
            place_of(f, &place, self.symbols)?;
        }
        Ok(())
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
        let csv = |kind| {
            let line =
                Line { number: 5, time: None, event: Event { task: 7, cpu: 1, kind }, symbols: &symbols };
            line.csv()
        };
        let columns = csv_head().split(',').count();
        let name = Kind::Name(ptarmigan_trace::Name::new("=1+1,\"x\""));
        assert!(csv(name).contains(",\"'=1+1,\"\"x\"\"\","), "{}", csv(name));
        let flags = MapFlags(MapFlags::ANON | MapFlags::FIXED);
        let mapped = csv(Kind::Mmap { start: 16, pages: 2, prot: Prot(0), flags });
        assert!(mapped.starts_with("5,,1,7,mmap,,0x10,2,\"anon,fixed\",,"), "{mapped}");
        assert_eq!(mapped.split(',').count(), columns + 1, "one cell has a comma: {mapped}");
        let area = Kind::Area { start: 1, pages: 2, prot: Prot(1), kind: AreaKind::File };
        assert_eq!(line(None, area), "5 - cpu=1 task=7 area start=0x1 pages=2 prot=read kind=file");
        let call = FailedCall::Madvise { start: 1, pages: 2, advice: 4 };
        assert_eq!(
            line(None, Kind::Failed { errno: 12, call }),
            "5 - cpu=1 task=7 failed call=madvise advice=4 start=0x1 pages=2 errno=12"
        );
    }
}
