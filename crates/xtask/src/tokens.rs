//! Splits Rust source into comments and tokens, finds a text in it by its tokens, and finds bodies
//! of functions.
//!
//! # Why
//!
//! A planted mistake quotes the line that it changes. Texts are compared by tokens so that a change
//! of white space or of a comment, for example by `cargo fmt`, does not concern the lists.
use std::ops::Range;

/// A token: a word or number, a literal in quotes, or one character of punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'t> {
    pub text: &'t str,
    /// The byte of its beginning.
    pub at: usize,
}

impl Token<'_> {
    /// Returns the byte after it.
    pub fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns the comments and the tokens of a text, in order, each with whether it is a comment.
fn pieces(text: &str) -> impl Iterator<Item = (bool, Token<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += text[at..].find(|c: char| !c.is_whitespace())?;
        let rest = &text[at..];
        let first = rest.chars().next()?;
        let comment = comment(rest);
        let len = comment.or_else(|| literal(rest)).unwrap_or_else(|| {
            let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            word.max(first.len_utf8())
        });
        let piece = Token { text: &rest[..len], at };
        at += len;
        Some((comment.is_some(), piece))
    })
}

/// Returns the tokens of a text. White space and comments are left out.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    pieces(text).filter(|(is_comment, _)| !is_comment).map(|(_, token)| token).collect()
}

/// Returns the comments of a text, with their marks.
pub fn comments(text: &str) -> impl Iterator<Item = Token<'_>> {
    pieces(text).filter(|(is_comment, _)| *is_comment).map(|(_, comment)| comment)
}

/// Returns the length of the comment at the beginning of a text, if there is one. A block may hold
/// others.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

/// Returns the length of the string, character or lifetime at the beginning of a text, if there is
/// one. A string without an end is as long as the text.
fn literal(text: &str) -> Option<usize> {
    let prefix = text.find(|c| !matches!(c, 'b' | 'c' | 'r')).filter(|n| *n <= 2)?;
    let is_raw = text[..prefix].ends_with('r');
    let body = &text[prefix..];
    let hashes = if is_raw { body.find(|c| c != '#')? } else { 0 };
    if body[hashes..].starts_with('"') {
        if is_raw {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = hashes + 1;
            return Some(prefix + body[from..].find(&end).map_or(body.len(), |n| from + n + end.len()));
        }
        return Some(prefix + quoted(body, b'"'));
    }
    if prefix > 1 || is_raw || !body.starts_with('\'') {
        return None;
    }
    let mut chars = body[1..].chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => Some(prefix + quoted(body, b'\'')),
        _ if prefix > 0 => None,
        _ => Some(1 + body[1..].find(|c| !is_word(c)).unwrap_or(body.len() - 1)),
    }
}

/// Returns the length of the quoted text at the beginning of a text.
fn quoted(text: &str, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Returns where a sequence of tokens begins in another one, in all its places.
pub fn places(all: &[Token<'_>], part: &[Token<'_>]) -> Vec<usize> {
    let is_same = |a: &[Token<'_>]| a.iter().zip(part).all(|(a, b)| a.text == b.text);
    (0..).zip(all.windows(part.len().max(1))).filter(|(_, window)| is_same(window)).map(|(n, _)| n).collect()
}

/// A function that lies in no other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The bytes from its first qualifier to the brace.
    pub signature: Range<usize>,
    /// The bytes of its body, without braces.
    pub body: Range<usize>,
}

/// Returns the functions of a source that have a body and lie in no other function.
pub fn functions(tokens: &[Token<'_>]) -> Vec<Function> {
    const QUALIFIERS: [&str; 9] = ["pub", "(", "crate", "super", ")", "const", "unsafe", "async", "extern"];
    let mut functions = Vec::new();
    let mut n = 0;
    while n < tokens.len() {
        // The type of a pointer to a function has no name.
        let is_named = tokens.get(n + 1).is_some_and(|next| next.text.starts_with(is_word));
        if tokens[n].text != "fn" || !is_named {
            n += 1;
            continue;
        }
        let is_qualifier = |t: &Token<'_>| QUALIFIERS.contains(&t.text) || t.text.starts_with('"');
        let first = tokens[..n].iter().rposition(|token| !is_qualifier(token)).map_or(0, |last| last + 1);
        let Some(open) = opening(tokens, n) else {
            n += 1;
            continue;
        };
        let Some(close) = closing(tokens, open) else { break };
        functions.push(Function {
            signature: tokens[first].at..tokens[open].at,
            body: tokens[open].end()..tokens[close].at,
        });
        n = close + 1;
    }
    functions
}

/// Returns the brace that begins the body of the function at a token, if it has a body.
pub fn opening(tokens: &[Token<'_>], function: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (n, token) in tokens.iter().enumerate().skip(function) {
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.checked_sub(1)?,
            "{" if depth == 0 => return Some(n),
            ";" | "}" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the brace that goes with an opening one.
fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (n, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(n);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        tokens(text).iter().map(|token| token.text).collect()
    }

    #[test]
    fn white_space_and_comments_are_no_tokens() {
        assert_eq!(texts("let  x=1; // one\n\ty"), ["let", "x", "=", "1", ";", "y"]);
        assert_eq!(texts("a /* b /* c */ d */ e /// f"), ["a", "e"]);
        assert_eq!(texts("a /* b"), ["a"]);
        assert_eq!(tokens("é = // ü\n ö").iter().map(|t| t.at).collect::<Vec<_>>(), [0, 3, 12]);
    }

    #[test]
    fn quoted_texts_are_one_token() {
        assert_eq!(texts(r#"f("a // \" b", 'x')"#), ["f", "(", r#""a // \" b""#, ",", "'x'", ")"]);
        assert_eq!(texts(r###"r#"a " b"# br"\" c"d""###), [r###"r#"a " b"#"###, r#"br"\""#, r#"c"d""#]);
        assert_eq!(texts(r"&'a b'\'' '{' 'é' r#fn"), ["&", "'a", r"b'\''", "'{'", "'é'", "r", "#", "fn"]);
        // A text in the middle of a source may have no end.
        assert_eq!(texts("x \"a b"), ["x", "\"a b"]);
        assert_eq!(texts("crab bar r b c"), ["crab", "bar", "r", "b", "c"]);
    }

    #[test]
    fn words_are_found_as_a_whole() {
        let all = tokens("let max = 1; x = 1; x=1;");
        let found = |part: &str| places(&all, &tokens(part));
        assert_eq!(found("x = 1;"), [5, 9]);
        assert_eq!(found("max\n=\n1"), [1]);
        assert_eq!(found("y").len() + places(&all[..1], &all).len(), 0);
    }

    #[test]
    fn functions_are_found_without_the_ones_inside() {
        let source = "trait T { fn a(); fn b(x: [u8; { 2 }]) { '{'; } }\n\
                      pub(crate) const unsafe fn c(f: fn() -> u8) -> u8 { fn d() {} \"}\"; 1 }\nfn e() {";
        let tokens = tokens(source);
        let found: Vec<(&str, &str)> = functions(&tokens)
            .iter()
            .map(|f| (&source[f.signature.clone()], &source[f.body.clone()]))
            .collect();
        assert_eq!(
            found,
            [
                ("fn b(x: [u8; { 2 }]) ", " '{'; "),
                ("pub(crate) const unsafe fn c(f: fn() -> u8) -> u8 ", " fn d() {} \"}\"; 1 "),
            ]
        );
    }
}
