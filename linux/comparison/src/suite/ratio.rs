//! Rows of both kernels, side by side.

use super::row::{SuiteRow, find};

/// Contenders of both kernels that are compared: with the same large pages, on the same target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// Without large pages, on x86-64.
    Never,
    /// Large pages wherever they fit, on x86-64.
    Always,
    /// Without large pages, PAE, leaf tables in high memory.
    I386,
    /// Without large pages.
    Aarch64,
}

impl Pair {
    pub const ALL: [Pair; 4] = [Pair::Never, Pair::Always, Pair::I386, Pair::Aarch64];

    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Pair::Never => "never",
            Pair::Always => "always",
            Pair::I386 => "i386",
            Pair::Aarch64 => "aarch64",
        }
    }

    /// Returns the contenders of Linux. The cheaper one counts.
    const fn linux(self) -> [&'static str; 2] {
        match self {
            Pair::Never => ["linux-x86_64", "linux-x86_64-noinit"],
            Pair::Always => ["linux-x86_64-always", "linux-x86_64-always-noinit"],
            Pair::I386 => ["linux-i386-high", "linux-i386-high-noinit"],
            Pair::Aarch64 => ["linux-aarch64", "linux-aarch64-noinit"],
        }
    }

    /// Returns the library's contender.
    pub const fn here(self) -> &'static str {
        match self {
            Pair::Never => "ptarmigan-x86_64",
            Pair::Always => "ptarmigan-x86_64-always",
            Pair::I386 => "ptarmigan-i386-high",
            Pair::Aarch64 => "ptarmigan-aarch64",
        }
    }

    /// Returns those that a table of the rows shows: both of x86-64, unless all are of other
    /// targets.
    pub fn of(rows: &[SuiteRow]) -> Vec<Pair> {
        let has = |pair: Pair| {
            rows.iter().any(|row| row.contender == pair.here() || pair.linux().contains(&&*row.contender))
        };
        let others: Vec<Pair> = [Pair::I386, Pair::Aarch64].into_iter().filter(|pair| has(*pair)).collect();
        let x86_64 = others.is_empty() || has(Pair::Never) || has(Pair::Always);
        [Pair::Never, Pair::Always].into_iter().filter(|_| x86_64).chain(others).collect()
    }
}

/// Returns the cheaper one of Linux's rows.
pub fn linux<'a>(rows: &'a [SuiteRow], case: &str, pair: Pair) -> Option<&'a SuiteRow> {
    let rows = pair.linux().into_iter().filter_map(|contender| find(rows, case, contender));
    rows.min_by(|a, b| a.value.total_cmp(&b.value))
}

/// Returns how many times fewer instructions the library takes.
pub fn ratio(rows: &[SuiteRow], case: &str, pair: Pair) -> Option<f64> {
    Some(linux(rows, case, pair)?.value / find(rows, case, pair.here())?.value)
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
        assert_eq!(ratio(&rows, "fork", Pair::Never), Some(3.0));
        assert_eq!(ratio(&rows, "fork", Pair::Always), None);
        assert_eq!(linux(&rows, "exit", Pair::Never).map(|row| row.value), None);
    }
}
