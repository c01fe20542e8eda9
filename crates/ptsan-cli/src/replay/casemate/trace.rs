//! A trace in memory: its steps, up to the first that cannot be read.
use super::step::{Step, parse};
use super::text::{Expressions, TextError};
use std::collections::HashMap;
use std::io::BufRead;

/// The most steps. Each takes some 64 bytes.
const MOST_STEPS: usize = 1 << 23;
/// The most places in the source.
const MOST_SOURCES: usize = 1 << 16;

/// A step of a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) line: u64,
    pub(super) thread: u16,
    /// The index of the code that did it, in [`Trace::sources`].
    pub(super) source: Option<u32>,
    pub(super) step: Step,
}

const _: () = assert!(size_of::<Entry>() <= 64);

/// The steps of a log.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) steps: Vec<Entry>,
    pub(super) sources: Vec<String>,
    pub(super) bytes: u64,
    /// The verdicts of Casemate itself, behind `!`.
    pub(super) verdicts: Vec<String>,
    /// Why the log could not be read to its end.
    pub(super) damage: Option<TextError>,
}

impl Trace {
    /// Reads a log.
    pub(super) fn read(from: impl BufRead) -> Self {
        Self::read_at_most(from, MOST_STEPS)
    }

    fn read_at_most(from: impl BufRead, most: usize) -> Self {
        let mut trace = Self::default();
        let mut known = HashMap::new();
        let mut expressions = Expressions::new(from);
        loop {
            let parsed = match expressions.next() {
                Ok(Some(expression)) if trace.steps.len() == most => {
                    let what = format!("more than {most} steps; split the log");
                    Err(TextError::new(expression.line, what))
                }
                Ok(Some(expression)) => parse(expression),
                Ok(None) => break,
                Err(e) => Err(e),
            };
            match parsed {
                Ok(parsed) => {
                    let source = parsed.source.and_then(|text| trace.source(&mut known, text));
                    let (line, thread, step) = (parsed.line, parsed.thread, parsed.step);
                    trace.steps.push(Entry { line, thread, source, step });
                }
                Err(e) => {
                    trace.damage = Some(e);
                    break;
                }
            }
        }
        trace.bytes = expressions.bytes();
        trace.verdicts = expressions.verdicts;
        trace
    }

    fn source(&mut self, known: &mut HashMap<String, u32>, text: String) -> Option<u32> {
        if let Some(index) = known.get(&text) {
            return Some(*index);
        }
        if self.sources.len() == MOST_SOURCES {
            return None;
        }
        let index = self.sources.len() as u32;
        self.sources.push(text.clone());
        known.insert(text, index);
        Some(index)
    }

    /// Returns the number of CPUs.
    pub(super) fn cpus(&self) -> usize {
        self.steps.iter().map(|entry| usize::from(entry.thread) + 1).max().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_before_the_damage_are_kept_and_sources_are_one_each() {
        let text = b"(lock 0 0 \"a\" 1)\n(lock 0 3 \"b\" 1)\n(lock 0 0 \"a\" 1)\n(lock";
        let trace = Trace::read(&text[..]);
        assert_eq!((trace.steps.len(), trace.sources.len(), trace.cpus()), (3, 2, 4));
        assert_eq!(trace.steps[2].source, Some(0));
        assert_eq!(trace.damage.map(|e| e.line), Some(4));
        let cut = Trace::read_at_most(&text[..], 1);
        assert_eq!(cut.damage.unwrap().to_string(), "line 2: more than 1 steps; split the log");
    }
}
