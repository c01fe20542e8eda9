//! Takes the words of comments and documents apart, each with its line.
use crate::tokens;

/// A line of prose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The line of the file, from 1.
    pub number: usize,
    /// The text without the marks of a comment.
    pub text: String,
    /// Whether this is part of the documentation of a module (`//!`).
    pub module: bool,
    /// Whether the line of the file begins with it, apart from white space.
    pub alone: bool,
}

/// Returns the comments of the Rust source `source`, line by line, without the source of examples.
pub fn comments(source: &str) -> Vec<Line> {
    let (mut at, mut number, mut lines) = (0, 1, Vec::new());
    for comment in tokens::comments(source) {
        number += source[at..comment.at].matches('\n').count();
        let mut alone =
            source[..comment.at].rsplit('\n').next().is_none_or(|before| before.trim().is_empty());
        for (line, text) in comment.text.split('\n').enumerate() {
            let module = text.starts_with("//!");
            let text = text.trim().trim_start_matches(['/', '!', '*']).trim_end_matches("*/");
            lines.push(Line { number: number + line, text: text.to_owned(), module, alone });
            alone = true;
        }
        number += comment.text.matches('\n').count();
        at = comment.end();
    }
    without_fences(lines)
}

/// Returns the lines of a Markdown document without its blocks of code.
pub fn document(source: &str) -> Vec<Line> {
    let lines = source.lines().enumerate();
    without_fences(
        lines
            .map(|(at, text)| Line { number: at + 1, text: text.to_owned(), module: false, alone: true })
            .collect(),
    )
}

/// Returns the comments of a script or list that begin with `#`, on lines of their own.
pub fn hash_comments(source: &str) -> Vec<Line> {
    let lines = source.lines().enumerate().filter_map(|(at, line)| {
        let text = line.trim_start().strip_prefix('#')?;
        let is_comment = text.is_empty() || text.starts_with(' ');
        is_comment.then(|| Line { number: at + 1, text: text.to_owned(), module: false, alone: true })
    });
    lines.collect()
}

/// Returns the words of `lines` in lower case, each with the index of its line. Code between
/// backquotes has no words.
pub fn words(lines: &[Line]) -> Vec<(usize, String)> {
    let (mut words, mut code, mut last) = (Vec::new(), false, 0);
    for (index, line) in lines.iter().enumerate() {
        // A backquote that is never closed ends with its paragraph.
        code &= line.number == last + 1 && !line.text.trim().is_empty();
        last = line.number;
        let mut word = String::new();
        for letter in line.text.chars().chain([' ']) {
            if !code && (letter.is_alphabetic() || matches!(letter, '\'' | '’') && !word.is_empty()) {
                word.extend(letter.to_lowercase());
            } else if !word.is_empty() {
                words.push((index, std::mem::take(&mut word)));
            }
            code ^= letter == '`';
        }
    }
    words
}

/// Leaves out blocks of code. In a group of adjacent lines with an odd number of marks, the first
/// one closes a block that an attribute has opened (`#![cfg_attr(…, doc = "```")]`).
fn without_fences(lines: Vec<Line>) -> Vec<Line> {
    let is_mark = |line: &Line| line.text.trim_start().starts_with("```");
    let mut kept = Vec::new();
    let mut rest = lines.into_iter().peekable();
    while let Some(first) = rest.next() {
        let mut group = vec![first];
        while let Some(line) = rest.next_if(|line| line.number <= group[group.len() - 1].number + 1) {
            group.push(line);
        }
        let mut fenced = group.iter().filter(|line| is_mark(line)).count() % 2 == 1;
        for line in group {
            let mark = is_mark(&line);
            fenced ^= mark;
            if !fenced && !mark {
                kept.push(line);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(usize, String)> {
        let lines = comments(source);
        words(&lines).into_iter().map(|(line, word)| (lines[line].number, word)).collect()
    }

    fn pairs(expected: &[(usize, &str)]) -> Vec<(usize, String)> {
        expected.iter().map(|&(line, word)| (line, word.to_owned())).collect()
    }

    #[test]
    fn comments_of_all_kinds_are_found_with_their_lines() {
        let source = "//! One.\n/// Two\nfn f() {} // three\n/* four\n/* five */ six */ let x = 1; //seven";
        let expected =
            [(1, "one"), (2, "two"), (3, "three"), (4, "four"), (5, "five"), (5, "six"), (5, "seven")];
        assert_eq!(found(source), pairs(&expected));
    }

    #[test]
    fn strings_and_characters_hold_no_comments() {
        let source = r###"let a = "// what"; let b = r#"// what " // what"#; let c = '"'; let d = '\''; // one
let e = b"\" // what"; fn g<'a>(x: &'a str) {} let h = br"\"; // two
let r = 1; let i = "
// what"; let j = '–'; // three"###;
        assert_eq!(found(source), pairs(&[(1, "one"), (2, "two"), (4, "three")]));
    }

    #[test]
    fn code_has_no_words() {
        let source = "/// `what` is\n/// ```\n/// what\n/// ```\n/// a `what\n/// what` word\n///\n/// open `what\n\n/// end";
        assert_eq!(found(source), pairs(&[(1, "is"), (5, "a"), (6, "word"), (8, "open"), (10, "end")]));
    }

    #[test]
    fn a_block_that_an_attribute_opens_ends_with_its_first_mark() {
        let source = "//! one\n#![cfg_attr(x, doc = \"```\")]\n//! what\n//! ```\n//! two";
        assert_eq!(found(source), pairs(&[(1, "one"), (5, "two")]));
    }

    #[test]
    fn words_are_whole() {
        let source = "// Whatever, what's nothing-like; none.";
        assert_eq!(
            found(source),
            pairs(&[(1, "whatever"), (1, "what's"), (1, "nothing"), (1, "like"), (1, "none")])
        );
    }

    #[test]
    fn documents_are_read_without_their_code() {
        let lines = document("# What\n\n```rust\nwhat\n```\nafter");
        let numbers: Vec<_> =
            words(&lines).into_iter().map(|(line, word)| (lines[line].number, word)).collect();
        assert_eq!(numbers, pairs(&[(1, "what"), (6, "after")]));
    }
}
