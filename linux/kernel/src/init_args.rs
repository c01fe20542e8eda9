//! Words of the command line for process 1: its arguments, and variables of its environment.
//!
//! As Linux has it: all words after `--` are arguments. Of the others, those that the kernel does
//! not know are variables if they have a `=`, and arguments if not; a name with a dot is that of a
//! module's parameter, and is left out. Double quotes hold blanks together, around a word or around
//! the value behind its `=`, and go; elsewhere they stay.

use crate::params::{END, LIBRARY};

/// Keys that process 1 does not get, beside those of the library: the kernel's own, and those of
/// Linux's that stand on lines which are passed to both.
const KNOWN: [&str; 20] = [
    // The kernel's own.
    "clock",
    "empty_tables",
    "fault_around_bytes",
    "init",
    "initrd",
    "kmap",
    "low",
    "shootdown",
    "transparent_hugepage",
    "without",
    // Linux's.
    "console",
    "debug",
    "init_on_alloc",
    "nokaslr",
    "panic",
    "quiet",
    "rdinit",
    "ro",
    "root",
    "rw",
];

/// A word for process 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitWord<'a> {
    /// The part before its `=`, or all of it.
    pub key: &'a str,
    /// The part behind its `=`.
    pub value: Option<&'a str>,
    /// It comes after `--`.
    after_end: bool,
}

impl<'a> InitWord<'a> {
    /// Makes a variable of the environment.
    pub const fn variable(key: &'a str, value: &'a str) -> Self {
        InitWord { key, value: Some(value), after_end: false }
    }

    /// Whether it is a variable of the environment.
    pub fn is_variable(&self) -> bool {
        !self.after_end && self.value.is_some()
    }

    /// Whether process 1 gets it.
    fn is_passed(&self) -> bool {
        let is_known = KNOWN.contains(&self.key) || LIBRARY.contains(&self.key);
        self.after_end || !is_known && !self.key.contains('.')
    }

    /// Writes its text to the start of `room`; returns the length, or `None` if it does not fit.
    pub fn write(&self, room: &mut [u8]) -> Option<usize> {
        let (equals, value) = self.value.map_or(("", ""), |value| ("=", value));
        let mut len = 0;
        for part in [self.key, equals, value] {
            room.get_mut(len..len + part.len())?.copy_from_slice(part.as_bytes());
            len += part.len();
        }
        Some(len)
    }

    /// Reads the word that a text begins with; returns it and the rest.
    fn read(text: &'a str, after_end: bool) -> (Self, &'a str) {
        let is_quoted = text.starts_with('"');
        let text = text.strip_prefix('"').unwrap_or(text);
        let (mut in_quotes, mut equals) = (is_quoted, None);
        let mut end = text.len();
        for (i, byte) in text.bytes().enumerate() {
            match byte {
                _ if byte.is_ascii_whitespace() && !in_quotes => {
                    end = i;
                    break;
                }
                b'=' if i > 0 && equals.is_none() => equals = Some(i),
                b'"' => in_quotes = !in_quotes,
                _ => {}
            }
        }
        let (word, rest) = text.split_at(end);
        let (key, value) = match equals.map(|at| word.split_at(at)) {
            Some((key, value)) => (key, value.strip_prefix('=')),
            None => (word, None),
        };
        let last = |part: &'a str| part.strip_suffix('"').unwrap_or(part);
        let word = match value {
            Some(value) => {
                let inner = value.strip_prefix('"').map(last);
                let value = inner.unwrap_or(if is_quoted { last(value) } else { value });
                InitWord { key, value: Some(value), after_end }
            }
            None => InitWord { key: if is_quoted { last(key) } else { key }, value: None, after_end },
        };
        (word, rest)
    }
}

/// Returns the words of a command line that process 1 gets, in order.
pub fn words(text: &str) -> impl Iterator<Item = InitWord<'_>> {
    let (mut rest, mut after_end) = (text, false);
    let all = core::iter::from_fn(move || {
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                return None;
            }
            let word;
            (word, rest) = InitWord::read(rest, after_end);
            if after_end || (word.key, word.value) != (END, None) {
                return Some(word);
            }
            after_end = true;
        }
    });
    all.filter(InitWord::is_passed)
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;

    fn text(word: &InitWord<'_>) -> String {
        let mut room = [0; 100];
        let n = word.write(&mut room).expect("room for it");
        String::from_utf8(room[..n].to_vec()).expect("a text")
    }

    /// The arguments and the variables of a command line.
    fn split(line: &str) -> (Vec<String>, Vec<String>) {
        let (variables, arguments): (Vec<_>, Vec<_>) = words(line).partition(InitWord::is_variable);
        (arguments.iter().map(text).collect(), variables.iter().map(text).collect())
    }

    #[test]
    fn words_after_the_end_are_arguments_whatever_they_are() {
        let (arguments, variables) = split("init=/bin/sh -- -c \"echo hi\" init=/x a.b=1 -- ro");
        assert_eq!(arguments, ["-c", "echo hi", "init=/x", "a.b=1", "--", "ro"]);
        assert!(variables.is_empty());
        assert_eq!(split("--"), split(""));
    }

    #[test]
    fn unknown_words_are_variables_and_arguments() {
        let (arguments, variables) =
            split("single ro low=48M init=/x tables=4000 quicklist=off tlb.model=x HOME=/root e.f=1 e.f 5");
        assert_eq!(arguments, ["single", "5"]);
        assert_eq!(variables, ["tables=4000", "HOME=/root"]);
    }

    #[test]
    fn quotes_hold_blanks_together_and_go() {
        for (line, wanted) in [
            ("-- \"a b\" c", &["a b", "c"][..]),
            ("-- x=\"a  b\" c", &["x=a  b", "c"]),
            ("-- \"x=a b\" c", &["x=a b", "c"]),
            ("-- \"a=1; echo $a\"", &["a=1; echo $a"]),
            ("-- \"\" c", &["", "c"]),
            ("-- x= c", &["x=", "c"]),
            ("-- =x c", &["=x", "c"]),
            // In the middle of a word they hold it together, and stay.
            ("-- a\"b c\"d e", &["a\"b c\"d", "e"]),
            // One without an end holds all the rest.
            ("-- \"a b", &["a b"]),
            ("-- \"", &[""]),
        ] {
            assert_eq!(split(line).0, wanted, "{line}");
        }
    }

    #[test]
    fn a_word_that_does_not_fit_is_not_cut() {
        let word = words("-- abc=def").next().expect("a word");
        assert_eq!((word.write(&mut [0; 7]), word.write(&mut [0; 6])), (Some(7), None));
    }

    #[test]
    fn no_line_makes_it_panic() {
        let mut state = 0x5eed_u64;
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..24 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                line.push(['"', '=', ' ', '-', 'a', '.', '\u{e4}', '\t'][(state >> 8) as usize % 8]);
            }
            assert!(words(&line).count() <= line.len());
        }
    }
}
