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
