//! The report in short: a comment for a pull request, and a card of one picture.
mod card;
mod markdown;

pub(super) use card::card;
pub(super) use markdown::markdown;

use super::collect::TraceFigures;

/// Returns a trace's own name, or words for none, at most `most` characters of it.
fn name(one: &TraceFigures, most: usize) -> String {
    if one.facts.name.is_empty() { "(no name)".to_owned() } else { cut(&one.facts.name, most) }
}

/// Returns text of at most `most` characters, without control characters. Text that was longer ends
/// with an ellipsis.
fn cut(text: &str, most: usize) -> String {
    let clean = |c: char| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { ' ' } else { c };
    let mut letters = text.chars().map(clean);
    let mut out: String = letters.by_ref().take(most).collect();
    if letters.next().is_some() {
        out.pop();
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_and_has_no_control_characters() {
        assert_eq!(cut("name", 4), "name");
        assert_eq!(cut("names", 4), "nam…");
        assert_eq!(cut("a\nb\u{1}c\u{ffff}", 9), "a b c ");
    }
}
