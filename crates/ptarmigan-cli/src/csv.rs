//! Formats cells of CSV files (RFC 4180).

/// Formats text for a cell, in quotes if it needs them.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Formats text that a recorded program has chosen. A spreadsheet takes a cell for a formula by its
/// first character, so an apostrophe stands before such text.
pub(crate) fn foreign(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        quoted(&format!("'{text}"))
    } else {
        quoted(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_in_its_cell() {
        assert_eq!(["a,b", "say \"x\"", "plain"].map(quoted), ["\"a,b\"", "\"say \"\"x\"\"\"", "plain"]);
    }

    #[test]
    fn no_name_is_a_formula() {
        let formula = "=HYPERLINK(\"127.0.0.1\",\"x\")";
        assert_eq!(foreign(formula), "\"'=HYPERLINK(\"\"127.0.0.1\"\",\"\"x\"\")\"");
        for first in ["=1", "+1", "-1", "@A1", "\t=1", "\r=1"] {
            assert!(foreign(first).trim_start_matches('"').starts_with('\''), "{first:?}");
        }
        assert_eq!(foreign("make -j2"), "make -j2");
    }
}
