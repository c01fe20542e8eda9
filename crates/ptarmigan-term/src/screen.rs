//! Detects the abilities of the terminal: its width, and colour.
use std::io::IsTerminal;

/// The least width that text is fitted to. A narrower terminal breaks lines by itself.
const LEAST: usize = 20;
/// The width that reports are made for.
pub(crate) const USUAL: usize = 80;

/// Returns the width of standard output if it is a terminal of less than 80 columns.
pub fn narrow() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let (width, _) = terminal_size::terminal_size_of(&stdout)?;
    Some(usize::from(width.0)).filter(|width| (1..USUAL).contains(width)).map(|width| width.max(LEAST))
}

/// Returns whether to use colour on `stream`: only on a terminal that can, and not if the
/// environment has `NO_COLOR`.
pub fn colour(stream: &impl IsTerminal) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns `text` in bold.
pub fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

/// Returns `text` in bold red.
pub fn red(text: &str) -> String {
    format!("\x1b[1;31m{text}\x1b[0m")
}
