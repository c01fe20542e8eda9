//! The formats of a report.

/// How a report prints. The environment variable `PTSAN_FORMAT` chooses one by its name for
/// [`Sanitizer`](crate::Sanitizer)'s `Display`, and so for the message of
/// [`assert_clean`](crate::Sanitizer::assert_clean).
/// ```
/// use ptsan::{Arch, Format, Session};
///
/// let mut s = Session::new(Arch::x86_64(), vec![0u8; 1 << 16]);
/// s.free(0x1000);
/// assert!(s.sanitizer.report_as(Format::Short).to_string().contains("foreign-free"));
/// assert!(Format::ALL.iter().any(|format| format.name() == "github"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `text`: sentences within 80 columns.
    #[default]
    Text,
    /// `short`: a line of at most 80 columns for each finding.
    Short,
    /// `github`: commands of GitHub Actions, which mark the innermost caller in the code under
    /// test.
    GitHub,
    /// `json`: an object on a line for the run, and one for each finding.
    /// docs/ptsan-reference.md describes the fields.
    Json,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Text, Self::Short, Self::GitHub, Self::Json];

    /// Returns the name by which `PTSAN_FORMAT` chooses the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Short => "short",
            Self::GitHub => "github",
            Self::Json => "json",
        }
    }
}

/// The format chosen from outside.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    pub(super) format: Format,
    /// The name that stands for no format.
    pub(super) unknown: Option<String>,
}

impl Choice {
    /// Reads the value of `PTSAN_FORMAT`. An unknown one chooses text.
    pub(super) fn from_variable(value: Option<String>) -> Self {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Self::default() };
        match Format::ALL.into_iter().find(|format| format.name() == value) {
            Some(format) => Self { format, unknown: None },
            None => Self { format: Format::Text, unknown: Some(value) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_chooses_by_name_and_unknown_names_are_kept() {
        for format in Format::ALL {
            let choice = Choice::from_variable(Some(format.name().to_owned()));
            assert!(choice.format == format && choice.unknown.is_none());
        }
        for (value, unknown) in [(None, None), (Some(""), None), (Some("xml"), Some("xml"))] {
            let choice = Choice::from_variable(value.map(str::to_owned));
            assert_eq!((choice.format, choice.unknown.as_deref()), (Format::Text, unknown));
        }
    }
}
