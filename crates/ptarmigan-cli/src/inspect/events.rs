//! The events of a trace, one a line.
//!
//! A line is `NUMBER TIME CPU TASK KIND FIELD=VALUE...`, separated by single spaces. The number
//! counts from 0; the time is in milliseconds since the recording began, `-` in a trace without
//! times. Addresses are page numbers in hexadecimal. Later versions may append fields.
use crate::csv;
use ptarmigan_trace::{Event, Place, PlaceId, Symbols, Value};
use std::convert::Infallible;
use std::fmt::{self, Display, Formatter};

/// One event as a line, without its end.
pub struct EventLine<'a> {
    /// The number of the event.
    pub number: u64,
    /// The time, in microseconds, if the trace has times.
    pub time: Option<u64>,
    /// The event.
    pub event: Event,
    /// The names that it may refer to.
    pub symbols: &'a Symbols,
}

/// The value of a field, in one word.
struct FieldWord<'a>(Value, &'a Symbols);

impl Display for FieldWord<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Page(page) => write!(f, "{page:#x}"),
            Value::Number(number) => number.fmt(f),
            Value::Flag(flag) => flag.fmt(f),
            Value::Word(word) => word.replace(' ', "-").fmt(f),
            Value::Set(set, names) => {
                let mut between = "";
                for (_, name) in names.iter().filter(|(bit, _)| set & bit != 0) {
                    write!(f, "{between}{name}")?;
                    between = ",";
                }
                if between.is_empty() { f.write_str("-") } else { Ok(()) }
            }
            Value::Place(Some(place)) => stack(f, place, self.1),
            Value::Place(None) => f.write_str("-"),
            Value::Name(_) | Value::Text(_) => Ok(()),
        }
    }
}

impl<'a> FieldWord<'a> {
    /// Returns the text of a value that the recorded program has chosen. `None` if it has none.
    fn foreign(&'a self) -> Option<&'a str> {
        match &self.0 {
            Value::Name(name) => Some(name.as_str()),
            Value::Text(text) => Some(text.map_or("", |text| self.1.text(text))),
            _ => None,
        }
    }
}

/// Returns a time in milliseconds, exactly: programs read the lines of events.
fn milliseconds(micros: u64) -> String {
    let (whole, rest) = (micros / 1000, micros % 1000);
    format!("{whole}.{rest:03}")
}

impl Display for EventLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Event { task, cpu, kind } = self.event;
        write!(f, "{} ", self.number)?;
        match self.time {
            Some(micros) => f.write_str(&milliseconds(micros))?,
            None => f.write_str("-")?,
        }
        write!(f, " cpu={cpu} task={task} {}", kind.name())?;
        kind.fields(&mut |name, value| {
            let word = FieldWord(value, self.symbols);
            match word.foreign() {
                _ if value == Value::Text(None) => Ok(()),
                Some(text) => write!(f, " {name}={text:?}"),
                None => write!(f, " {name}={word}"),
            }
        })
    }
}

/// The fields that events have, which are columns of a CSV file.
const FIELDS: [&str; 40] = [
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
    "value",
    "why",
];

/// Returns the first line of a CSV file of events.
pub fn csv_head() -> String {
    // The kind of an area is not the kind of its event.
    let fields = FIELDS.map(|name| if name == "kind" { "area" } else { name });
    let names = ["number", "ms", "cpu", "task", "kind"].into_iter().chain(fields);
    names.map(|name| name.replace('-', "_")).collect::<Vec<_>>().join(",")
}

impl EventLine<'_> {
    /// Returns the event as a line of a CSV file. Fields that it does not have are empty.
    pub fn csv(&self) -> String {
        let Event { task, cpu, kind } = self.event;
        let ms = self.time.map_or(String::new(), milliseconds);
        let mut cells: [String; FIELDS.len()] = std::array::from_fn(|_| String::new());
        let _ = kind.fields::<Infallible>(&mut |name, value| {
            let at = FIELDS.iter().position(|field| *field == name);
            debug_assert!(at.is_some(), "{name} has a column");
            if let Some(cell) = at.and_then(|at| cells.get_mut(at)) {
                let word = FieldWord(value, self.symbols);
                *cell = match word.foreign() {
                    Some(text) => text.to_owned(),
                    None => Some(word.to_string()).filter(|text| text != "-").unwrap_or_default(),
                };
            }
            Ok(())
        });
        let cells = cells.map(|cell| csv::foreign(&cell)).join(",");
        format!("{},{ms},{cpu},{task},{},{cells}", self.number, kind.name())
    }
}

/// Writes a place and the calls that led there.
fn stack(f: &mut Formatter<'_>, place: PlaceId, symbols: &Symbols) -> fmt::Result {
    for (at, place) in symbols.callers(place).enumerate() {
        f.write_str(if at == 0 { "" } else { "<-" })?;
        place_of(f, &place, symbols)?;
    }
    Ok(())
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
    use ptarmigan_trace::{AreaKind, FailedCall, FaultFlags, Kind, MapFlags, Prot};

    #[test]
    fn lines_are_stable() {
        let symbols = Symbols::default();
        let line = |time, kind| {
            EventLine { number: 5, time, event: Event { task: 7, cpu: 1, kind }, symbols: &symbols }
                .to_string()
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
            let line = EventLine {
                number: 5,
                time: None,
                event: Event { task: 7, cpu: 1, kind },
                symbols: &symbols,
            };
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
