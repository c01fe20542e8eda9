//! A finding in full: sentences within 80 columns.
use super::event::{HistoryEvent, lines};
use super::finding::Finding;
use super::trace::Trace;
use super::wrap;
use std::fmt;

/// Returns the innermost caller in a line: the one that did it.
fn innermost(trace: &Trace) -> Option<String> {
    let caller = trace.frames().into_iter().next()?;
    let at = caller.at.map_or(String::new(), |at| format!(" at {at}"));
    Some(caller.symbol + &at)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wrap::words(f, 0, 0, &format!("{}: {}", self.kind, self.rule))?;
        if !self.advice.is_empty() {
            wrap::line(f, 2, &format!("fix: {}", self.advice))?;
        }
        wrap::line(f, 2, &self.whereabouts(self.event, &self.place))?;
        self.spread.write(f, self.count, &self.machine)?;
        if !self.note.is_empty() {
            wrap::line(f, 2, &self.note)?;
        }
        for (number, trace) in self.noted() {
            if let Some(caller) = innermost(trace) {
                wrap::line(f, 4, &format!("{} in {caller}", self.event_text(number)))?;
            }
        }
        let differ = |a, b| self.callers_of(a).map(innermost) != self.callers_of(b).map(innermost);
        for line in lines(&self.history, differ) {
            let HistoryEvent { event, what, .. } = self.history[line.first];
            let mut text = format!("{}: {}", self.event_text(event), what.text(&self.machine));
            if line.count > 1 {
                let last = self.event_text(self.history[line.last].event);
                text.push_str(&format!(" ({} times, last at {last})", line.count));
            }
            wrap::line(f, 4, &text)?;
            if let Some(caller) = self.callers_of(line.first).and_then(innermost) {
                wrap::line(f, 6, &format!("in {caller}"))?;
            }
        }
        let mut callers = [("found in", &self.trace), ("the store was made in", &self.store)];
        if self.is_found_late() {
            callers.reverse();
        }
        let origins = [
            ("the table was freed in", &self.origins.freed),
            ("the table was allocated in", &self.origins.allocated),
        ];
        for (title, trace) in callers.into_iter().chain(origins) {
            let frames = trace.as_ref().map(Trace::frames).unwrap_or_default();
            if !frames.is_empty() {
                wrap::line(f, 2, title)?;
            }
            for frame in frames {
                wrap::line(f, 4, &frame.symbol)?;
                if let Some(at) = frame.at {
                    wrap::line(f, 6, &format!("at {at}"))?;
                }
            }
        }
        if !self.consequences.is_empty() {
            wrap::line(f, 2, "from the same cause")?;
        }
        for c in &self.consequences {
            let times = if c.count == 1 { String::new() } else { format!(" {} times, first", c.count) };
            let whereabouts = self.whereabouts(c.event, &c.place);
            wrap::line(f, 4, &format!("{}/{}{times} {whereabouts}", c.kind, c.rule.name()))?;
        }
        Ok(())
    }
}
