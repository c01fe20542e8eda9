//! Text for C programs.
use crate::error::Refusal;
use ptsan::{Kind, Rule};
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

/// Copies text for C. Leaves out each NUL inside.
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

#[cfg(test)]
mod tests {
    use super::*;

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
