//! One caller of a hook, as a backtrace names it.
use super::cpp;

/// A caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFrame {
    /// The path of the function.
    pub symbol: String,
    /// File, line and column, if there is debug information.
    pub at: Option<String>,
}

impl TraceFrame {
    /// Returns file, line and column.
    pub(super) fn position(&self) -> Option<(&str, u32, Option<u32>)> {
        let at = self.at.as_deref()?;
        let (rest, last) = at.rsplit_once(':')?;
        let last = last.parse().ok()?;
        match rest.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
            Some((file, line)) => Some((file, line, Some(last))),
            None => Some((rest, last, None)),
        }
    }
}

/// Reads the output of [`std::backtrace::Backtrace`]: lines `12: symbol`, each with or without a
/// line `at file:line:column` behind it.
pub(super) fn parse(printed: &str) -> Vec<TraceFrame> {
    let mut frames: Vec<TraceFrame> = Vec::new();
    for line in printed.lines().map(str::trim) {
        if let Some(at) = line.strip_prefix("at ") {
            if let Some(last) = frames.last_mut() {
                last.at = Some(at.to_owned());
            }
        } else if let Some((number, symbol)) = line.split_once(": ")
            && number.bytes().all(|b| b.is_ascii_digit())
        {
            frames.push(TraceFrame { symbol: cpp::plain(symbol), at: None });
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_with_and_without_a_column_and_a_drive() {
        let position = |at: &str| {
            let frame = TraceFrame { symbol: String::new(), at: Some(at.to_owned()) };
            frame.position().map(|(file, line, column)| (file.to_owned(), line, column))
        };
        assert_eq!(position("./src/a.rs:7:9"), Some(("./src/a.rs".to_owned(), 7, Some(9))));
        assert_eq!(position("a.rs:7"), Some(("a.rs".to_owned(), 7, None)));
        assert_eq!(position("C:\\a.rs:7:9"), Some(("C:\\a.rs".to_owned(), 7, Some(9))));
        assert_eq!(position("C:\\a.rs:7"), Some(("C:\\a.rs".to_owned(), 7, None)));
        assert_eq!(position("a.rs"), None);
    }
}
