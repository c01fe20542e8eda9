//! The store that broke a rule.
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;

/// The store at which a finding was made.
#[derive(Debug)]
pub struct FoundAt {
    /// Index into [`crate::Sanitizer::findings`].
    pub finding: usize,
    /// Address of the instruction that stored.
    pub rip: usize,
    /// Physical address that it stored to.
    pub phys: u64,
    /// The stack at that instruction, without the frames of the handler. It is not captured for a
    /// store made inside [`super::Watch::with`], which is checked later.
    pub backtrace: Backtrace,
}

impl FoundAt {
    pub(super) fn instruction(&self) -> String {
        format!("the instruction at {:#x} stored to {:#x}", self.rip, self.phys)
    }
}

/// The handler's function: the frames of the code under test come after it.
pub(super) const HANDLER: &str = "ptsan::watch::linux::signals::on_trap";
/// The callers of the code under test.
const LAST: [&str; 2] = ["ptsan::watch::linux::watch::Watch::run", "__rust_begin_short_backtrace"];

impl fmt::Display for FoundAt {
    /// Prints the instruction and the functions that led to it, innermost first. Finding names
    /// reads debug information and is slow.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.instruction())?;
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
