//! Text in paragraphs, at most 80 columns wide, or as wide as a narrower terminal.
use ptarmigan_term::screen;
use ptarmigan_term::wrap::{self, STAYS};

/// The width of the text where the terminal has room for it.
const COLUMNS: usize = 80;

/// Text under construction.
pub(crate) struct Paragraphs {
    text: String,
    width: usize,
}

impl Paragraphs {
    /// Begins a text for the terminal, or for 80 columns if it is wider, or none.
    pub(crate) fn of_screen() -> Self {
        Self::new(screen::narrow().unwrap_or(COLUMNS))
    }

    /// Begins a text with lines of at most `width` columns, except for words that are longer.
    pub(crate) fn new(width: usize) -> Self {
        Paragraphs { text: String::new(), width }
    }

    /// Appends an empty line.
    pub(crate) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Returns the text.
    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Appends a paragraph, broken into lines that begin with `indent` blanks.
    pub(crate) fn add(&mut self, indent: usize, text: &str) {
        // A number stays with its unit.
        let text = text.replace(" %", &format!("{STAYS}%"));
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let indent = " ".repeat(indent);
        for line in wrap::lines(&words, self.width, &indent, &indent) {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paragraph(width: usize, indent: usize, text: &str) -> String {
        let mut out = Paragraphs::new(width);
        out.add(indent, text);
        out.text
    }

    #[test]
    fn lines_are_broken_between_words_and_indented() {
        let out = paragraph(COLUMNS, 3, &"seven77 ".repeat(11));
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.starts_with("   s") && line.len() <= COLUMNS), "{out}");
        assert_eq!(lines[0].len(), 3 + 9 * 8 - 1);
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let out = paragraph(COLUMNS, 0, &format!("{} 12 % of it", "x".repeat(76)));
        assert_eq!(out, format!("{}\n12 % of it\n", "x".repeat(76)));
    }

    #[test]
    fn a_narrow_terminal_wraps_lines_and_keeps_words_whole() {
        assert_eq!(
            paragraph(20, 3, "MALLOC_ARENA_MAX=1, or one arena"),
            "   MALLOC_ARENA_MAX=1,\n   or one arena\n"
        );
    }
}
