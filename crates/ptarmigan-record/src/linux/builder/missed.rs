//! Notes programs that ran and are not in the recording.
use super::state::TraceBuilder;
use ptarmigan_trace::{Kind, Name, Note, UnreadReason, WriteError};
use std::io::Write;

impl<W: Write> TraceBuilder<'_, W> {
    /// Notes a program that is not in the recording. `number` is that of its task in the trace.
    pub(super) fn note_unread(
        &mut self,
        number: Option<u32>,
        name: &str,
        why: UnreadReason,
    ) -> Result<(), WriteError> {
        let name = Some(Name::new(name)).filter(|name| !name.as_str().is_empty());
        let name = name.and_then(|name| self.queue.text(name.as_str()));
        self.push(number.unwrap_or(0), 0, Kind::Note(Note::Unread { name, why }))
    }
}
