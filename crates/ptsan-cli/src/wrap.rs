//! Text within 80 columns.

const COLUMNS: usize = 80;

/// Adds `text` as a line, indented by `indent` columns. Words that do not fit go on further lines,
/// two columns deeper.
pub(crate) fn line(to: &mut String, indent: usize, text: &str) {
    let mut column = indent;
    to.extend(std::iter::repeat_n(' ', indent));
    for (n, word) in text.split(' ').enumerate() {
        let width = word.chars().count();
        if n > 0 && column + 1 + width > COLUMNS {
            to.push('\n');
            to.extend(std::iter::repeat_n(' ', indent + 2));
            column = indent + 2;
        } else if n > 0 {
            to.push(' ');
            column += 1;
        }
        to.push_str(word);
        column += width;
    }
    to.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_before_column_81_unless_a_word_is_longer() {
        let mut text = String::new();
        line(&mut text, 4, &"seven77 ".repeat(30));
        line(&mut text, 0, &"x".repeat(90));
        let widths: Vec<_> = text.lines().map(|l| l.trim_end().chars().count()).collect();
        assert!(widths[..widths.len() - 1].iter().all(|w| *w <= 80), "{text}");
        assert!(text.starts_with("    seven77 ") && text.contains("\n      seven77"));
    }
}
