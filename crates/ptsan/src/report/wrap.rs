//! Text within 80 columns.
use std::fmt;

const COLUMNS: usize = 80;

/// Writes `text` on a new line, indented by `indent` columns. The rest goes on further lines, two
/// columns deeper.
pub(super) fn line(f: &mut fmt::Formatter<'_>, indent: usize, text: &str) -> fmt::Result {
    write!(f, "\n{:indent$}", "")?;
    words(f, indent, indent, text)
}

/// Writes `text` from `column` on.
pub(super) fn words(f: &mut fmt::Formatter<'_>, mut column: usize, indent: usize, text: &str) -> fmt::Result {
    for (i, word) in text.split(' ').enumerate() {
        let width = word.chars().count();
        if i > 0 && column + 1 + width > COLUMNS {
            let deeper = indent + 2;
            write!(f, "\n{:deeper$}{word}", "")?;
            column = deeper + width;
        } else {
            let space = usize::from(i > 0);
            write!(f, "{:space$}{word}", "")?;
            column += space + width;
        }
    }
    Ok(())
}
