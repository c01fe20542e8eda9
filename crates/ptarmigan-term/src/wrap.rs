//! Breaks lines between words.
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// Stands for a blank at which no line is broken. [`lines`] puts a blank in its place.
pub const STAYS: char = '\u{1}';

/// Breaks a text into lines of at most `width` columns, except for words that are longer. The first
/// line begins with `first`, the others with `rest`.
pub fn lines(text: &str, width: usize, first: &str, rest: &str) -> Vec<String> {
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(rest)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let lines = textwrap::wrap(text, options);
    lines.into_iter().map(|line| line.trim_end().replace(STAYS, " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_indented() {
        let text = format!("12{STAYS}% of well-known pages, averylongwordindeed");
        assert_eq!(
            lines(&text, 16, "- ", "  "),
            ["- 12 % of", "  well-known", "  pages,", "  averylongwordindeed"]
        );
        assert_eq!(lines("", 16, "", "  "), [""]);
    }
}
