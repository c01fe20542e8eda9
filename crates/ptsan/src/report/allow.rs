//! Findings that are known and allowed.
use super::caller::TraceFrame;
use super::kind::Kind;
use super::rule::Rule;
use std::fmt;

/// Findings that do not count: those that match every field that is given.
/// ```
/// use ptsan::{Allow, Arch, Config, Kind, Session};
///
/// let why = "the root is never freed".to_owned();
/// let known = Allow { kind: Some(Kind::Leak), why, ..Allow::default() };
/// let mut s = Session::with(Config::new(Arch::x86_64()).allow(known), vec![0u8; 1 << 16]);
/// s.alloc(0x1000);
/// s.sanitizer.finish();
/// assert_eq!((s.sanitizer.total(), s.sanitizer.allowed()), (0, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only of this rule.
    pub rule: Option<Rule>,
    /// Only with a caller whose name contains this; `*` stands for anything.
    pub symbol: Option<String>,
    /// The reason, printed if the entry is not needed any more.
    pub why: String,
}

/// A list of allowed findings, as a file has it:
///
/// ```text
/// # one a line: kind, kind/Rule, either with :part of a caller's name; any kind is *
/// free-before-flush:x86_64::structures::paging::mapper*clean_up*  # frees before the caller flushes
/// free-before-flush/HeldInTlb:my_kernel::unmap
/// leak
/// ```
/// ```
/// use ptsan::{Arch, Config, Sanitizer, Suppressions};
///
/// let list = "leak  # the root is never freed\nstale-use:my_kernel::lazy_unmap\n";
/// let suppressions = Suppressions::parse(list)?;
/// let mut san = Sanitizer::new(Config { suppressions, ..Config::new(Arch::x86_64()) });
/// san.finish();
/// assert_eq!(san.unused_suppressions().count(), 2); // neither was needed
/// assert_eq!(Suppressions::parse("leek").unwrap_err().line, 1);
/// # Ok::<(), ptsan::SuppressionError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    list: Vec<Allow>,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressionError {
    /// The line, counted from 1.
    pub line: usize,
    /// The line of the file.
    pub text: String,
    /// The reason why it is refused.
    pub what: &'static str,
}

impl fmt::Display for SuppressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} in `{}`", self.line, self.what, self.text)
    }
}

impl std::error::Error for SuppressionError {}

impl Suppressions {
    /// Reads a list.
    ///
    /// # Errors
    /// Names the first line with an unknown kind, an unknown rule or an empty part of a name.
    pub fn parse(text: &str) -> Result<Self, SuppressionError> {
        let mut list = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            // A name may contain a `#`: `{closure#0}`.
            let (rule, why) = match line.find(" #").or(line.starts_with('#').then_some(0)) {
                Some(at) => (line[..at].trim(), line[at..].trim_start_matches([' ', '#']).trim()),
                None => (line, ""),
            };
            if !rule.is_empty() {
                let error = |what| SuppressionError { line: number + 1, text: rule.to_owned(), what };
                list.push(Allow { why: why.to_owned(), ..parse_one(rule).map_err(error)? });
            }
        }
        Ok(Self { list })
    }

    /// Adds one.
    pub fn push(&mut self, allow: Allow) {
        self.list.push(allow);
    }

    pub(super) fn list(&self) -> &[Allow] {
        &self.list
    }

    /// Returns the first entry that matches, and whether it took the trace to find it.
    pub(super) fn matching(
        &self,
        (kind, rule): (Kind, Rule),
        trace: impl FnOnce() -> Vec<TraceFrame>,
    ) -> Option<(usize, bool)> {
        let (mut frames, mut trace) = (None, Some(trace));
        self.list.iter().enumerate().find_map(|(index, allow)| {
            if allow.kind.is_some_and(|k| k != kind) || allow.rule.is_some_and(|r| r != rule) {
                return None;
            }
            let Some(part) = &allow.symbol else { return Some((index, false)) };
            let frames =
                frames.get_or_insert_with(|| trace.take().map(|look_up| look_up()).unwrap_or_default());
            frames.iter().any(|f| contains(&f.symbol, part)).then_some((index, true))
        })
    }
}

fn parse_one(text: &str) -> Result<Allow, &'static str> {
    let (what, symbol) = match text.split_once(':') {
        Some((_, "")) => return Err("no name after the colon"),
        Some((what, symbol)) => (what, Some(symbol.trim().to_owned())),
        None => (text, None),
    };
    let (kind, rule) = match what.split_once('/') {
        Some((kind, rule)) => (kind, Some(rule.trim())),
        None => (what, None),
    };
    let kind = match kind.trim() {
        "*" => None,
        name => Some(Kind::ALL.into_iter().find(|k| k.name() == name).ok_or("no such kind")?),
    };
    let rule = match rule {
        Some(name) => Some(Rule::ALL.iter().copied().find(|r| r.name() == name).ok_or("no such rule")?),
        None => None,
    };
    Ok(Allow { kind, rule, symbol, why: String::new() })
}

/// Returns whether the parts of `pattern` between its stars follow each other in `symbol`.
fn contains(symbol: &str, pattern: &str) -> bool {
    let mut rest = symbol;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.map_or("*", Kind::name))?;
        if let Some(rule) = self.rule {
            write!(f, "/{}", rule.name())?;
        }
        if let Some(symbol) = &self.symbol {
            write!(f, ":{symbol}")?;
        }
        if self.why.is_empty() { Ok(()) } else { write!(f, "  # {}", self.why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_printed_as_it_was() {
        let text = "# known\n\nfree-before-flush:x86_64::mapper*clean_up*  # upstream\n\
            stale-use/Remapped\n*:kernel::f::{closure#0}\n";
        let list = Suppressions::parse(text).unwrap();
        let printed: Vec<_> = list.list().iter().map(ToString::to_string).collect();
        assert_eq!(printed.join("\n"), text.lines().skip(2).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        for (line, what) in
            [("free-before-fluch", "kind"), ("leak/Unmaped", "rule"), ("leak:", "no name"), (":x", "kind")]
        {
            let error = Suppressions::parse(&format!("leak\n{line}")).unwrap_err();
            assert!(error.line == 2 && error.what.contains(what), "{error}");
        }
    }

    #[test]
    fn stars_stand_for_anything() {
        let symbol = "x86_64::structures::paging::mapper::MappedPageTable::clean_up_addr_range";
        for pattern in ["clean_up", "x86_64::*mapper*clean", "*", "mapper*", "*range"] {
            assert!(contains(symbol, pattern), "{pattern}");
        }
        for pattern in ["clean_up*mapper", "Clean", "x86_64:mapper"] {
            assert!(!contains(symbol, pattern), "{pattern}");
        }
    }
}
