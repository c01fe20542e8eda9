//! Assigns the instructions of a case to functions of our kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::run;

/// Functions that are printed.
const MOST: usize = 15;

/// Reads how often each instruction was executed, by its address.
pub fn parse(text: &str) -> Vec<(u64, u64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("at ")?.split_once(' '));
    lines.filter_map(|(at, count)| Some((u64::from_str_radix(at, 16).ok()?, count.parse().ok()?))).collect()
}

/// Returns the functions of an image, by their first address.
pub fn functions(image: &Path) -> Result<BTreeMap<u64, String>, String> {
    let said = run(Command::new("nm").arg("-C").arg(image))?;
    let lines = said.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let (at, kind, name) = (words.next()?, words.next()?, words.next()?);
        matches!(kind, "t" | "T").then_some((u64::from_str_radix(at, 16).ok()?, name.to_owned()))
    });
    Ok(lines.collect())
}

/// Sums instructions by function, the most first.
fn sums<'a>(functions: &'a BTreeMap<u64, String>, executed: &[(u64, u64)]) -> Vec<(&'a str, u64)> {
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (at, count) in executed {
        let name = functions.range(..=at).next_back().map_or("?", |(_, name)| name.as_str());
        *by_name.entry(name).or_default() += count;
    }
    let mut all: Vec<(&str, u64)> = by_name.into_iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// Prints the functions in which a contender spends the instructions of a case.
///
/// # Errors
///
/// The image's functions cannot be listed.
pub fn print(name: &str, case: &str, image: &Path, executed: &[(u64, u64)]) -> Result<(), String> {
    let functions = functions(image)?;
    let all: u64 = executed.iter().map(|(_, count)| count).sum();
    println!();
    println!("{name}, {case}: where the kernel's instructions go");
    for (function, count) in sums(&functions, executed).into_iter().take(MOST) {
        let short: String = function.chars().take(70).collect();
        println!("{:6.1} % {short}", 100.0 * count as f64 / all as f64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_belong_to_the_function_that_begins_before_them() {
        let executed = parse("0 1 2 3\nat 10 5\nat 1f 2\nat 20 4\nat zz 3\n");
        assert_eq!(executed, [(0x10, 5), (0x1f, 2), (0x20, 4)]);
        let functions = BTreeMap::from([(0x10, "one".to_owned()), (0x20, "two".to_owned())]);
        assert_eq!(sums(&functions, &executed), [("one", 7), ("two", 4)]);
        assert_eq!(sums(&functions, &[(0x5, 1)]), [("?", 1)]);
    }
}
