//! Text for C programs.
use crate::error::Refusal;
use ptsan::{Kind, Rule};
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

/// Copies text for C. A NUL inside becomes nothing.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.bytes().filter(|&b| b != 0).collect::<Vec<_>>()).unwrap_or_default()
}

/// Reads an argument. `what` names it in the refusal.
///
/// # Safety
/// `text` is NULL or points at a string that ends with a NUL and stays as it is for `'a`.
pub(crate) unsafe fn argument<'a>(text: *const c_char, what: &str) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(Refusal::argument(format!("{what} is NULL; give a string")));
    }
    // SAFETY: it is not NULL, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Refusal::argument(format!("{what} is not UTF-8")))
}

/// Returns a string that lives forever, from a table that is built once.
fn forever(table: &'static OnceLock<Vec<CString>>, index: usize, all: fn() -> Vec<CString>) -> *const c_char {
    table.get_or_init(all).get(index).map_or(c"".as_ptr(), |text| text.as_ptr())
}

/// Returns the name of a kind.
pub(crate) fn kind_name(kind: Kind) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let at = Kind::ALL.iter().position(|k| *k == kind).unwrap_or(usize::MAX);
    forever(&NAMES, at, || Kind::ALL.iter().map(|k| c_string(k.name())).collect())
}

/// Returns the name of a rule.
pub(crate) fn rule_name(rule: Rule) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let at = Rule::ALL.iter().position(|r| *r == rule).unwrap_or(usize::MAX);
    forever(&NAMES, at, || Rule::ALL.iter().map(|r| c_string(r.name())).collect())
}

/// Returns the sentence of a rule.
pub(crate) fn rule_text(rule: Rule) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let at = Rule::ALL.iter().position(|r| *r == rule).unwrap_or(usize::MAX);
    forever(&TEXTS, at, || Rule::ALL.iter().map(|r| c_string(r.text())).collect())
}

/// The lines before the traces of a printed report.
const TITLES: [&str; 3] = ["found in", "the table was freed in", "the table was allocated in"];

/// Removes this library's own functions from the traces of a printed report, so that they show the
/// program alone.
pub(crate) fn without_own_frames(report: &str) -> String {
    let mut kept = String::with_capacity(report.len());
    let mut dropping = false;
    // The title of the trace that the lines are in, until a function is kept.
    let mut title = None;
    let mut in_trace = false;
    for line in report.split_inclusive('\n') {
        match line.len() - line.trim_start_matches(' ').len() {
            4 if in_trace => {
                dropping = is_own(line.trim());
                if !dropping {
                    kept.push_str(title.take().unwrap_or_default());
                }
            }
            0..4 => {
                in_trace = TITLES.contains(&line.trim());
                dropping = in_trace;
                title = in_trace.then_some(line);
            }
            // What belongs to the line above.
            _ => {}
        }
        if !dropping {
            kept.push_str(line);
        }
    }
    kept.truncate(kept.trim_end_matches('\n').len());
    kept
}

/// Breaks text into lines of at most 80 columns where words allow it, each on a new line, the first
/// indented by 2 and the others by 4.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = String::from("\n ");
    let mut column = 1;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column + 1 + width > 80 {
            lines.push_str("\n   ");
            column = 3;
        }
        lines.push(' ');
        lines.push_str(word);
        column += 1 + width;
    }
    lines
}

fn is_own(symbol: &str) -> bool {
    // The frame of a signal has no name.
    if symbol == "<unknown>" {
        return true;
    }
    let path = symbol.trim_start_matches(['<', '&', '*', '(', '_']);
    ["ptsan_", "ptsan::", "core::", "std::", "alloc::", "rust_try"].iter().any(|own| path.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_begins_at_the_caller_of_the_library() {
        let report = "leak: the table was never freed
  at event 6, table frame 0x4000
    event 4: allocated
  found in
    <ptsan_c::machine::Machine>::check::<()>
      at machine.rs:30:9
    std::panicking::catch_unwind
    __rust_try
    ptsan_table_freed
      at tables.rs:41:5
    unmap
      at paging.c:212:9
    ptsan_c::face::watch::ptsan_watch_run::{{closure}}
    core::result::Result<T,E>::and_then
      at
        library/core/src/result.rs:1493:22
    ptsan_watch_run
    test
  the table was freed in
    ptsan_table_freed
    destroy
  the table was allocated in
    ptsan_table_allocated";
        let want = "leak: the table was never freed
  at event 6, table frame 0x4000
    event 4: allocated
  found in
    unmap
      at paging.c:212:9
    test
  the table was freed in
    destroy";
        assert_eq!(without_own_frames(report), want);
    }

    #[test]
    fn long_text_fits_80_columns() {
        let text =
            "ptsan_flush_all: CPU -55; count from 0, or give PTSAN_THIS_CPU, or for a flush PTSAN_EVERY_CPU";
        let lines = wrapped(text);
        assert!(
            lines.starts_with("\n  ptsan_flush_all: CPU") && lines.ends_with("\n    PTSAN_EVERY_CPU"),
            "{lines}"
        );
        assert!(lines.lines().all(|line| line.len() <= 80), "{lines}");
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>().join(" "), text);
    }

    #[test]
    fn every_kind_and_rule_has_its_text() {
        // SAFETY: the tables live forever.
        let read = |text| unsafe { argument(text, "text") }.unwrap();
        for kind in Kind::ALL {
            assert_eq!(read(kind_name(kind)), kind.name());
        }
        for &rule in Rule::ALL {
            assert_eq!((read(rule_name(rule)), read(rule_text(rule))), (rule.name(), rule.text()));
        }
    }
}
