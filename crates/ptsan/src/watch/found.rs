//! The instruction that broke a rule.
use super::image::address;
use crate::TraceFrame;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;

/// The instruction at which a finding was made: a store, or in a run of kernel code a load of the
/// root or an invalidation.
#[derive(Debug)]
pub struct FoundAt {
    /// Index into [`crate::Sanitizer::findings`].
    pub finding: usize,
    /// Address of the instruction.
    pub rip: usize,
    /// Physical address that it stored to, or of the root that it loaded; 0 for an invalidation.
    pub phys: u64,
    /// The stack at that instruction, without the frames of the handler. It is not captured for a
    /// store made inside [`super::Watch::with`], which is checked later.
    pub backtrace: Backtrace,
    /// Its effect.
    pub act: Act,
}

/// The effect of the instruction of a [`FoundAt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It stored to the memory.
    Stored,
    /// It loaded a root.
    Loaded,
    /// It invalidated translations.
    Flushed,
}

impl FoundAt {
    /// Describes the instruction: its line, if that is known, its address in its file, and its
    /// effect.
    pub(super) fn instruction(&self, line: Option<&TraceFrame>) -> String {
        let (address, phys) = (address(self.rip), self.phys);
        let what = match line {
            Some(TraceFrame { symbol, at: Some(at) }) => format!("{symbol} at {at} ({address})"),
            Some(TraceFrame { symbol, at: None }) => format!("{symbol} ({address})"),
            None => format!("the instruction at {address}"),
        };
        match self.act {
            Act::Stored => format!("{what} stored to {phys:#x}"),
            Act::Loaded => format!("{what} loaded the root {phys:#x}"),
            Act::Flushed => format!("{what} flushed"),
        }
    }
}

/// The handler's function: the frames of the code under test come after it.
pub(super) const HANDLER: &str = "ptsan::watch::linux::signals::on_trap";
/// The callers of the code under test. Symbols name methods in either of the last two ways.
const LAST: [&str; 4] =
    ["__rust_begin_short_backtrace", "ptsan::watch::linux::escape::run", "::Watch::run", "::Watch>::run"];

impl fmt::Display for FoundAt {
    /// Prints the instruction and the functions that led to it, innermost first. Finding names
    /// reads debug information and is slow.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.instruction(None))?;
        if self.backtrace.status() != BacktraceStatus::Captured {
            return Ok(());
        }
        let text = self.backtrace.to_string();
        write!(f, "\n{}", of_the_code(&text))
    }
}

/// Returns the frames of the code under test: after those of the handler and of the kernel's call,
/// up to the call of `run` or the start of the thread. Returns the whole text if it looks
/// otherwise.
fn of_the_code(text: &str) -> &str {
    let Some(handler) = text.find(HANDLER) else { return text };
    let text_of_frames = &text[handler..];
    let mut frames = text_of_frames.match_indices('\n').filter_map(|(at, _)| {
        let (number, name) = text_of_frames[at + 1..].split_once(": ")?;
        (number.trim_start().parse::<u32>().is_ok()).then_some((at, name))
    });
    // The next frame is the kernel's.
    let Some((start, _)) = frames.nth(1) else { return text };
    let ends = |name: &str| LAST.iter().any(|last| name.lines().next().is_some_and(|n| n.contains(last)));
    let end = frames.find(|&(_, name)| ends(name)).map_or(text_of_frames.len(), |(at, _)| at);
    &text_of_frames[start + 1..end]
}
