//! Defines the cases of the program, and reads the plugin's counts of them.

/// The operation of the program between two marks.
pub struct Case {
    /// The name in rows, and in the program's output.
    pub name: &'static str,
    /// Operations between two marks.
    pub operations: u64,
}

/// The cases, in the order of the program's marks.
pub const CASES: [Case; 6] = [
    Case { name: "fault-new-table", operations: 32 },
    Case { name: "fault-same-table", operations: 32 },
    Case { name: "fault-cycle", operations: 32 },
    Case { name: "fork-exit", operations: 1 },
    Case { name: "fork-exit-16m", operations: 1 },
    Case { name: "fork-exec", operations: 1 },
];

/// Returns the number of a case.
pub fn number(name: &str) -> Option<usize> {
    CASES.iter().position(|case| case.name == name)
}

/// Instructions by which pages are cleared or copied, as the plugin tells them apart.
pub const BY: [&str; 4] = ["rep stos", "rep movs", "stores", "dc zva"];

/// The plugin's counts of a case, of all operations together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub times: u64,
    pub programs: u64,
    pub kernel: u64,
    pub forgotten: u64,
    pub roots: u64,
    pub page_instructions: u64,
    pub cleared: [u64; BY.len()],
    pub copied: [u64; BY.len()],
}

impl Counts {
    /// Reads the plugin's output. `None` if a case is missing.
    pub fn parse(text: &str) -> Option<Vec<Counts>> {
        let mut all = vec![Counts::default(); CASES.len()];
        for line in text.lines().filter(|line| !line.starts_with("at ")) {
            let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
            let &[case, times, programs, kernel, forgotten, roots, page_instructions, ref pages @ ..] =
                &numbers[..]
            else {
                return None;
            };
            let &[a, b, c, d, e, f, g, h] = pages else { return None };
            let (cleared, copied) = ([a, c, e, g], [b, d, f, h]);
            *all.get_mut(usize::try_from(case).ok()?)? =
                Counts { times, programs, kernel, forgotten, roots, page_instructions, cleared, copied };
        }
        all.iter().all(|counts| counts.times > 0).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_case_have_to_be_there() {
        let line = |case: usize| format!("{case} 2 10 20 3 4 500 1 0 0 2 0 0 0 0\n");
        let text: String = (0..CASES.len()).map(line).collect();
        let all = Counts::parse(&text).expect("all cases");
        assert_eq!((all[3].cleared, all[3].copied), ([1, 0, 0, 0], [0, 2, 0, 0]));
        assert!(Counts::parse(&line(0)).is_none());
        assert!(Counts::parse("0 x").is_none());
        assert!(Counts::parse("77 2 10 20 3 4 500 1 0 0 2 0 0 0 0").is_none());
    }
}
