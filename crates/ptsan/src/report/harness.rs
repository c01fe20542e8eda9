//! Finds the frames of a trace that belong to the harness of a test: its hooks, its allocator, its
//! driver.
use super::caller::TraceFrame;
use std::path::{Component, Path};

/// The files and functions that are marked as harness.
#[derive(Clone, Debug, Default)]
pub(crate) struct Harness(Vec<Pattern>);

#[derive(Clone, Debug)]
enum Pattern {
    /// The last components of a file's path.
    File(String),
    /// Whole names in the path of a function.
    Function(String),
}

impl Harness {
    /// Adds a file or function. An empty pattern has no effect.
    pub(crate) fn mark(&mut self, pattern: &str) {
        let pattern = pattern.trim();
        if pattern.contains(['/', '\\', '.']) {
            let file = normal(pattern);
            if !file.is_empty() {
                self.0.push(Pattern::File(file));
            }
        } else if !pattern.is_empty() {
            self.0.push(Pattern::Function(pattern.to_owned()));
        }
    }

    /// Returns the frames outside the harness, or all if every frame belongs to it.
    pub(super) fn outside(&self, frames: Vec<TraceFrame>) -> Vec<TraceFrame> {
        if self.0.is_empty() {
            return frames;
        }
        let here = std::env::current_dir().unwrap_or_default();
        let code: Vec<_> = frames.iter().filter(|frame| !self.has(frame, &here)).cloned().collect();
        if code.is_empty() { frames } else { code }
    }

    fn has(&self, frame: &TraceFrame, here: &Path) -> bool {
        // A backtrace names files below the working directory relative to it.
        let file = frame.position().map(|(file, ..)| normal(&here.join(file).to_string_lossy()));
        // Methods are printed as `<path::Type>::name` too.
        let plain = frame.symbol.replace(['<', '>'], "");
        self.0.iter().any(|pattern| match pattern {
            Pattern::File(end) => file.as_ref().is_some_and(|file| ends_with(file, end)),
            Pattern::Function(name) => has_name(&frame.symbol, name) || has_name(&plain, name),
        })
    }
}

/// Returns a path with `/` between its components and without `.` and `..`. A `/` at its end stays:
/// it stands for all that is in a directory.
fn normal(path: &str) -> String {
    let path = path.replace('\\', "/");
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(&path).components() {
        match part {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::ParentDir => _ = parts.pop(),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let all = if path.ends_with('/') && !parts.is_empty() { "/*" } else { "" };
    parts.join("/") + all
}

/// Returns whether the last components of a path fit.
fn ends_with(path: &str, end: &str) -> bool {
    let starts = path.match_indices('/').map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).any(|start| fits(&path[start..], end))
}

/// Returns whether whole names in the path of a function fit.
fn has_name(symbol: &str, name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let bytes = symbol.as_bytes();
    // Between two bytes that do not belong to one name.
    let ends = |at: &usize| {
        let inside = *at > 0 && *at < bytes.len() && is_part(bytes[*at - 1]) && is_part(bytes[*at]);
        !inside && symbol.is_char_boundary(*at)
    };
    let all: Vec<usize> = (0..=bytes.len()).filter(ends).collect();
    all.iter().enumerate().any(|(n, &from)| all[n..].iter().any(|&to| fits(&symbol[from..to], name)))
}

/// Returns whether a pattern stands for the text, with `*` for anything.
fn fits(text: &str, pattern: &str) -> bool {
    let (mut parts, mut rest) = (pattern.split('*'), text);
    let Some(after) = parts.next().and_then(|first| rest.strip_prefix(first)) else { return false };
    let Some(last) = pattern.rsplit_once('*').map(|(_, last)| last) else { return after.is_empty() };
    rest = after;
    let inner = pattern.matches('*').count() - 1;
    for part in parts.take(inner) {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(symbol: &str, at: &str) -> TraceFrame {
        TraceFrame { symbol: symbol.to_owned(), at: Some(at.to_owned()) }
    }

    fn marks(pattern: &str, symbol: &str, at: &str) -> bool {
        let mut harness = Harness::default();
        harness.mark(pattern);
        harness.has(&frame(symbol, at), Path::new("/home/me/kernel/crates/mm"))
    }

    #[test]
    fn a_file_is_known_by_its_last_components() {
        for (pattern, at, marked) in [
            ("hooks.h", "/src/host/hooks.h:12", true),
            ("host/hooks.h", "/src/host/hooks.h:12:3", true),
            ("./host/../host/hooks.h", "/src/host/hooks.h:12:3", true),
            ("../host/hooks.h", "/src/host/hooks.h:12:3", true),
            ("ooks.h", "/src/host/hooks.h:12", false),
            ("hooks.h", "/src/hooks.h/real.c:12", false),
            ("tests/*.rs", "/src/tests/common/mod.rs:1:1", true),
            ("tests/", "/src/tests/common/mod.rs:1:1", true),
            ("tests/", "/src/tests.rs:1:1", false),
            // `file!()` begins at the workspace, a backtrace at the package.
            ("crates/mm/tests/maps.rs", "./tests/maps.rs:7:9", true),
            ("crates/other/tests/maps.rs", "./tests/maps.rs:7:9", false),
            (r"tests\maps.rs", r"C:\src\tests\maps.rs:7:9", true),
        ] {
            assert_eq!(marks(pattern, "f", at), marked, "{pattern} {at}");
        }
        let mut harness = Harness::default();
        harness.mark("hooks.h");
        assert!(!harness.has(&TraceFrame { symbol: "hooks.h".to_owned(), at: None }, Path::new("/")));
    }

    #[test]
    fn a_function_is_known_by_whole_names() {
        for (pattern, symbol, marked) in [
            ("hw_flush", "hw_flush", true),
            ("hw_flush", "hw_flush_all", false),
            ("hw_*", "hw_flush_all", true),
            ("hw_*", "my_hw_flush", false),
            ("*_hook", "table_freed_hook", true),
            ("Machine", "tests::Machine::give_back", true),
            ("Machine", "<tests::Machine as core::ops::drop::Drop>::drop", true),
            ("Machine::give_back", "<tests::Machine>::give_back", true),
            ("tests::Machine", "tests::Machine::give_back::{closure#0}", true),
            ("Machine", "tests::Machines::give_back", false),
            ("tests::*::give_back", "tests::common::Machine::give_back", true),
            ("tests::*::give_back", "tests::common::Machine::give", false),
        ] {
            assert_eq!(marks(pattern, symbol, "/src/a.rs:1:1"), marked, "{pattern} {symbol}");
        }
    }

    #[test]
    fn what_stands_for_nothing_marks_nothing() {
        for pattern in ["", "  ", "/", "./", ".."] {
            let mut harness = Harness::default();
            harness.mark(pattern);
            assert!(harness.0.is_empty(), "{pattern}");
        }
    }

    #[test]
    fn the_harness_goes_unless_nothing_else_is_there() {
        let mut harness = Harness::default();
        harness.mark("hooks.h");
        let (hook, code) = (frame("hw_free", "hooks.h:3"), frame("unmap", "paging.c:9"));
        assert_eq!(harness.outside(vec![hook.clone(), code.clone(), hook.clone()]), [code]);
        assert_eq!(harness.outside(vec![hook.clone()]), [hook]);
    }
}
