//! Defines the programs and their cases, and reads the plugin's counts of them.

/// The operation of the program between two marks.
pub struct Case {
    /// The name in rows, and in the program's output.
    pub name: &'static str,
    /// Operations between two marks.
    pub operations: u64,
}

/// A program whose cases are measured.
pub struct MeasuredProgram {
    /// The name of its file.
    pub name: &'static str,
    /// Its cases, in the order of its marks.
    pub cases: [Case; 6],
}

impl MeasuredProgram {
    /// Finds a program by its name.
    pub fn find(name: &str) -> Option<&'static MeasuredProgram> {
        [&FAULTS, &LARGE].into_iter().find(|program| program.name == name)
    }

    /// Returns the number of a case.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.cases.iter().position(|case| case.name == name)
    }
}

const fn case(name: &'static str, operations: u64) -> Case {
    Case { name, operations }
}

/// Faults, fork and exec.
pub static FAULTS: MeasuredProgram = MeasuredProgram {
    name: "faults",
    cases: [
        case("fault-new-table", 32),
        case("fault-same-table", 32),
        case("fault-cycle", 32),
        case("fork-exit", 1),
        case("fork-exit-16m", 1),
        case("fork-exec", 1),
    ],
};

/// Memory that may have large pages.
pub static LARGE: MeasuredProgram = MeasuredProgram {
    name: "large",
    cases: [
        case("touch-128m", 128 << 8),
        case("touch-128m-advised", 128 << 8),
        case("touch-128m-sparse", 64),
        case("fork-exit-64m", 1),
        case("fork-exit-64m-advised", 1),
        case("fork-write-64m", 1),
    ],
};

/// Instructions by which pages are cleared or copied, as the plugin tells them apart.
pub const BY: [&str; 4] = ["rep stos", "rep movs", "stores", "dc zva"];

/// The plugin's counts of a case, of all operations together.
#[derive(Clone, Debug, Default)]
pub struct CaseCounts {
    pub times: u64,
    pub programs: u64,
    pub kernel: u64,
    pub forgotten: u64,
    pub roots: u64,
    pub page_instructions: u64,
    pub cleared: [u64; BY.len()],
    pub copied: [u64; BY.len()],
    /// Misses of modelled caches: of data and of instructions in the first level, of both in the
    /// second.
    pub misses: [u64; 3],
    /// Instructions of the kernel by group, if groups were asked for.
    pub groups: Vec<u64>,
}

impl CaseCounts {
    /// Reads the plugin's output. `None` if a case is missing.
    pub fn parse(text: &str, cases: &[Case]) -> Option<Vec<CaseCounts>> {
        let mut all = vec![CaseCounts::default(); cases.len()];
        for (case, counts) in CaseCounts::lines(text)? {
            *all.get_mut(case)? = counts;
        }
        all.iter().all(|counts| counts.times > 0).then_some(all)
    }

    /// Reads the plugin's output: numbers of cases, and their counts. `None` if a line is
    /// malformed.
    pub fn lines(text: &str) -> Option<Vec<(usize, CaseCounts)>> {
        let lines = text.lines().filter(|line| !line.starts_with("at "));
        let read = |line: &str| {
            let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
            let &[case, times, programs, kernel, forgotten, roots, page_instructions, ref rest @ ..] =
                &numbers[..]
            else {
                return None;
            };
            let &[a, b, c, d, e, f, g, h, data, code, second, ref groups @ ..] = rest else { return None };
            let (cleared, copied, groups) = ([a, c, e, g], [b, d, f, h], groups.to_vec());
            let misses = [data, code, second];
            let counts = CaseCounts {
                times,
                programs,
                kernel,
                forgotten,
                roots,
                page_instructions,
                cleared,
                copied,
                misses,
                groups,
            };
            Some((usize::try_from(case).ok()?, counts))
        };
        lines.map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_case_have_to_be_there() {
        let cases = &FAULTS.cases[..];
        let line = |case: usize| format!("{case} 2 10 20 3 4 500 1 0 0 2 0 0 0 0 7 8 9\n");
        let text: String = (0..cases.len()).map(line).collect();
        let all = CaseCounts::parse(&text, cases).expect("all cases");
        assert_eq!((all[3].cleared, all[3].copied), ([1, 0, 0, 0], [0, 2, 0, 0]));
        assert_eq!(all[3].misses, [7, 8, 9]);
        assert!(all[3].groups.is_empty());
        let grouped = CaseCounts::lines("3 2 10 20 3 4 500 1 0 0 2 0 0 0 0 0 0 0 9 11").expect("a line");
        assert_eq!((grouped[0].0, &grouped[0].1.groups[..]), (3, &[9, 11][..]));
        assert!(CaseCounts::lines("3 2 10 20 3 4 500 1 0 0 2 0 0 0 0 0 0").is_none());
        assert!(CaseCounts::parse(&line(0), cases).is_none());
        assert!(CaseCounts::parse("0 x", cases).is_none());
        assert!(CaseCounts::parse("77 2 10 20 3 4 500 1 0 0 2 0 0 0 0 0 0 0", cases).is_none());
    }
}
