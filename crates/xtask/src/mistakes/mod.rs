//! Makes mistakes in the library and the sanitizer, and says which ones their tests do not notice.
//!
//! # Why
//!
//! A copy of the workspace with one mistake takes minutes to compile and link, and there are
//! hundreds. So all are compiled into one copy, as in `cargo xtask mutants`: the body of a function
//! stands there as it is and with each mistake, and a variable of the environment switches one on.
//! A run of the tests that an entry names is then all that a mistake costs. One that lies outside
//! of bodies, for example in a constant, is built alone.
mod build;
mod list;
mod lists;
mod tests_of;
mod verdict;

use crate::outcome;
use crate::usage::Usage;
use build::{Build, Kind};
use clap::Args;
use list::Mistake;
use lists::{LISTS, Made, lists};
use ptarmigan_term::Time;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;
use verdict::Verdict;

/// Options of `cargo xtask mistakes`.
#[derive(Args)]
pub struct MistakesArgs {
    /// Makes only mistakes with this text in their titles.
    title: Option<String>,
    /// Makes only mistakes of this list.
    #[arg(long, value_name = "NAME", value_parser = LISTS)]
    list: Option<String>,
    /// Makes only mistakes with these numbers, `A..B` with both; the first one is 1.
    #[arg(long, value_name = "A..B")]
    range: Option<Numbers>,
    /// Makes each N-th of these mistakes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Seconds that the tests of a mistake have.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Runs no test: fails if a line of a list is not in its file any more, or a test not in its
    /// executable.
    #[arg(long)]
    stale: bool,
}

/// The copies with their artefacts.
const PLACE: &str = "target/mistakes";

/// Numbers of mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers(RangeInclusive<usize>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ends = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let is_range = |ends: &(usize, usize)| 1 <= ends.0 && ends.0 <= ends.1;
        let (first, last) = ends.filter(is_range).ok_or("write A..B, for example 1..40")?;
        Ok(Numbers(first..=last))
    }
}

/// Runs `cargo xtask mistakes`. The exit status is 1 if a mistake is not noticed, and 2 without a
/// run.
pub fn run(args: &MistakesArgs) -> ExitCode {
    outcome::exit("mistakes", made(args))
}

/// Makes the mistakes that are wanted. Returns whether all are noticed.
fn made(args: &MistakesArgs) -> Result<bool, String> {
    let lists = lists(Path::new(""))?;
    let wanted = wanted(&lists.mistakes, args);
    if wanted.is_empty() {
        return Err("no mistake has these numbers and this title; the titles are in models/".into());
    }
    if args.stale {
        println!("{} mistakes, none of them stale", wanted.len());
        return Ok(true);
    }
    let mut result = Results::default();
    let limit = Duration::from_secs(args.limit);
    for kind in [Kind::Models, Kind::Tests] {
        let numbers: Vec<usize> =
            wanted.iter().copied().filter(|n| Kind::of(&lists.mistakes[n - 1].mistake) == kind).collect();
        if numbers.is_empty() {
            continue;
        }
        let start = Usage::of_ended().processor();
        let mut build = Build::new(kind, Path::new(PLACE), &lists)?;
        let mistakes: Vec<&Mistake> = numbers.iter().map(|n| &lists.mistakes[n - 1].mistake).collect();
        build.all(&mistakes)?;
        result.built += Usage::of_ended().processor() - start;
        // Tests that fail anyway say little of a mistake.
        let start = Usage::of_ended().processor();
        for mistake in mistakes {
            build.check(mistake, limit)?;
        }
        result.without += Usage::of_ended().processor() - start;
        let (alone, switched): (Vec<usize>, Vec<usize>) = numbers.iter().partition(|n| build.is_alone(**n));
        for number in switched.into_iter().chain(alone) {
            let mistake = &lists.mistakes[number - 1].mistake;
            let start = Usage::of_ended().processor();
            let verdict = build.verdict(number, limit)?;
            let time = Usage::of_ended().processor() - start;
            *(if build.is_alone(number) { &mut result.alone } else { &mut result.switched }) += time;
            result.add(number, mistake, verdict, time);
        }
        build.restore()?;
    }
    Ok(result.print())
}

/// Returns the numbers of the mistakes that are wanted.
fn wanted(mistakes: &[Made], args: &MistakesArgs) -> Vec<usize> {
    let is_wanted = |made: &Made| {
        let Mistake { title, place, .. } = &made.mistake;
        args.title.as_ref().is_none_or(|part| title.contains(part.as_str()))
            && args.list.as_ref().is_none_or(|list| place.starts_with(&format!("models/{list}:")))
    };
    let of_list = (1..).zip(mistakes).filter(|(_, made)| is_wanted(made));
    let of_range =
        (1..).zip(of_list).filter(|(n, _)| args.range.as_ref().is_none_or(|range| range.0.contains(n)));
    of_range.map(|(_, (number, _))| number).step_by(args.every.max(1)).collect()
}

#[derive(Default)]
struct Results {
    made: usize,
    failed: usize,
    open: usize,
    built: Duration,
    without: Duration,
    switched: Duration,
    alone: Duration,
}

impl Results {
    fn add(&mut self, number: usize, mistake: &Mistake, verdict: Verdict, time: Duration) {
        self.made += 1;
        let word = match (&verdict, &mistake.open) {
            (Verdict::Noticed, _) => "noticed",
            (_, Some(_)) => "open",
            (Verdict::Survived, None) => "SURVIVED",
            (Verdict::Hangs, None) => "HANGS",
            (Verdict::Broken(_), None) => "BROKEN",
            (Verdict::Others(_), None) => "OTHERS",
        };
        let Mistake { place, title, executable, tests, .. } = mistake;
        let test = tests.join(" ");
        println!("{word:<8} {number:>3} {:>7}  {title} ({executable} {test}; {place})", Time::from(time));
        match (verdict, &mistake.open) {
            (Verdict::Noticed, None) => {}
            (Verdict::Noticed, Some(why)) => println!("    it was open: {why}"),
            (_, Some(why)) => {
                self.open += 1;
                println!("    {why}");
            }
            (verdict, None) => {
                self.failed += 1;
                match verdict {
                    Verdict::Broken(why) => println!("{why}"),
                    Verdict::Others(names) => println!("    these fail: {}", names.join(" ")),
                    _ => {}
                }
            }
        }
    }

    /// Prints the sums. Returns whether all mistakes are noticed.
    fn print(&self) -> bool {
        println!(
            "{} mistakes made, {} not noticed, {} known not to be\nCPU time: {} for builds, {} for tests \
             without a mistake, {} for mistakes, {} for those built alone",
            self.made,
            self.failed,
            self.open,
            Time::from(self.built),
            Time::from(self.without),
            Time::from(self.switched),
            Time::from(self.alone),
        );
        self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::list::parse;
    use super::lists::Lists;
    use super::*;
    use clap::Parser;
    use std::sync::OnceLock;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: MistakesArgs,
    }

    fn read() -> &'static Lists {
        static LISTS: OnceLock<Lists> = OnceLock::new();
        LISTS.get_or_init(|| {
            lists(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap_or_else(|why| panic!("{why}"))
        })
    }

    fn numbers(line: &str) -> Vec<usize> {
        let args =
            Command::try_parse_from(["x"].into_iter().chain(line.split_whitespace())).expect("fine").args;
        wanted(&read().mistakes, &args)
    }

    #[test]
    fn every_mistake_of_the_lists_is_in_its_file_and_names_a_test() {
        let lists = read();
        for (list, least) in LISTS.into_iter().zip([130, 130, 60, 25]) {
            let list = format!("models/{list}:");
            let all = lists.mistakes.iter().filter(|made| made.mistake.place.starts_with(&list)).count();
            assert!(all >= least, "{list} {all}");
        }
    }

    #[test]
    fn mistakes_are_wanted_by_list_range_and_title() {
        let all = numbers("");
        assert_eq!(all, (1..=all.len()).collect::<Vec<_>>());
        assert_eq!(numbers("--range 3..5"), [3, 4, 5]);
        assert_eq!(numbers("--range 1..10 --every 4"), [1, 5, 9]);
        let owners = numbers("--list owners");
        assert_eq!(numbers("--list owners --range 2..3"), owners[1..3]);
        assert!(!numbers("lazy").is_empty() && numbers("lazy").len() < all.len());
        assert_eq!(numbers("no-such-title").len(), 0);
    }

    #[test]
    fn a_range_is_two_numbers_from_1() {
        assert_eq!("1..40".parse(), Ok(Numbers(1..=40)));
        for bad in ["1", "0..4", "5..4", "a..b", "1..", "1..=4"] {
            assert!(bad.parse::<Numbers>().is_err_and(|why| why.contains("1..40")), "{bad}");
        }
    }

    #[test]
    fn only_a_mistake_that_is_not_open_has_to_be_noticed() {
        let text = "## a\nfile: x\ntest: p/t a\n-a\n\n## b\nopen: why\nfile: x\ntest: p/t a\n-a\n";
        let list = parse("models/l", text).expect("fine");
        let counts = |n: usize, verdict: Verdict| {
            let mut results = Results::default();
            results.add(1, &list[n], verdict, Duration::ZERO);
            (results.failed, results.open, results.print())
        };
        assert_eq!(counts(0, Verdict::Noticed), (0, 0, true));
        assert_eq!(counts(1, Verdict::Noticed), (0, 0, true));
        let others = Verdict::Others(vec!["b".into()]);
        for verdict in [Verdict::Survived, Verdict::Hangs, Verdict::Broken("no".into()), others] {
            assert_eq!(counts(0, verdict.clone()), (1, 0, false), "{verdict:?}");
            assert_eq!(counts(1, verdict), (0, 1, true));
        }
    }
}
