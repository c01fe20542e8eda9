//! Events that were recorded elsewhere: findings count them as the recording does.
use super::trace::Trace;

/// An event, as the recording that is replayed has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number there.
    pub number: u64,
    /// The callers of the hook, if the recording says which.
    pub callers: Option<Trace>,
}

/// How a finding names its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// The recording's name of an event.
    pub(super) unit: &'static str,
    /// The callers of each event of the history.
    pub(super) callers: Vec<Option<Trace>>,
    /// The events of the note whose callers are known.
    pub(super) noted: Vec<Recorded>,
}

impl Names {
    /// Returns the event with this number, for a report.
    pub(super) fn text(&self, number: u64) -> String {
        if number == 0 { "before".to_owned() } else { format!("{} {number}", self.unit) }
    }
}

/// Returns the numbers of the events that a note mentions.
pub(super) fn events_in(note: &str) -> impl Iterator<Item = u64> + '_ {
    note.split("event ").skip(1).filter_map(|rest| rest[..digits(rest)].parse().ok())
}

/// Returns the note with events called and counted otherwise.
pub(super) fn in_units(note: &str, unit: &str, number: impl Fn(u64) -> u64) -> String {
    let mut parts = note.split("event ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (event, rest) = part.split_at(digits(part));
        match event.parse().map(&number) {
            Ok(0) => text.push_str(&format!("an earlier {unit}{rest}")),
            Ok(number) => text.push_str(&format!("{unit} {number}{rest}")),
            Err(_) => text.push_str(&format!("event {part}")),
        }
    }
    text
}

fn digits(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_note_are_named_as_the_recording_names_them() {
        let note = "since event 12; its last flush (of all, event 1) came before event 120, event";
        assert_eq!(events_in(note).collect::<Vec<_>>(), [12, 1, 120]);
        let number = |event| if event == 120 { 0 } else { event + 50 };
        assert_eq!(
            in_units(note, "record", number),
            "since record 62; its last flush (of all, record 51) came before an earlier record, event"
        );
        assert_eq!(in_units("", "record", number), "");
    }
}
