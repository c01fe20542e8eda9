//! Sentences about a recording's flushes.
use super::LinuxFlushes;
use ptarmigan_term::words::several;

impl LinuxFlushes {
    /// Returns a line for each reason that is not known. No count has its events.
    pub fn remarks(&self) -> Vec<String> {
        let unknown = self.unknown.iter().map(|(reason, events)| {
            format!("flushes for reason {reason}, which is not known: {} left out", several(*events, "event"))
        });
        unknown.collect()
    }
}
