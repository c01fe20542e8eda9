//! Rows of both kernels, side by side.

use super::row::{SuiteRow, find};

/// The large pages that both kernels give to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Never,
    Always,
}

impl Pages {
    pub const BOTH: [Pages; 2] = [Pages::Never, Pages::Always];

    /// Returns the name, as the command line of both has it.
    pub const fn name(self) -> &'static str {
        match self {
            Pages::Never => "never",
            Pages::Always => "always",
        }
    }

    /// Returns the contenders of Linux. The cheaper one counts.
    const fn linux(self) -> [&'static str; 2] {
        match self {
            Pages::Never => ["linux-x86_64", "linux-x86_64-noinit"],
            Pages::Always => ["linux-x86_64-always", "linux-x86_64-always-noinit"],
        }
    }

    /// Returns the library's contender.
    pub const fn here(self) -> &'static str {
        match self {
            Pages::Never => "ptarmigan-x86_64",
            Pages::Always => "ptarmigan-x86_64-always",
        }
    }
}

/// Returns the cheaper one of Linux's rows.
pub fn linux<'a>(rows: &'a [SuiteRow], case: &str, pages: Pages) -> Option<&'a SuiteRow> {
    let rows = pages.linux().into_iter().filter_map(|contender| find(rows, case, contender));
    rows.min_by(|a, b| a.value.total_cmp(&b.value))
}

/// Returns how many times fewer instructions the library takes.
pub fn ratio(rows: &[SuiteRow], case: &str, pages: Pages) -> Option<f64> {
    Some(linux(rows, case, pages)?.value / find(rows, case, pages.here())?.value)
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn the_cheaper_row_of_linux_counts() {
        let rows = [
            row("fork", "linux-x86_64", 12.0),
            row("fork", "linux-x86_64-noinit", 9.0),
            row("fork", "linux-x86_64-always", 1.0),
            row("fork", "ptarmigan-x86_64", 3.0),
        ];
        assert_eq!(ratio(&rows, "fork", Pages::Never), Some(3.0));
        assert_eq!(ratio(&rows, "fork", Pages::Always), None);
        assert_eq!(linux(&rows, "exit", Pages::Never).map(|row| row.value), None);
    }
}
