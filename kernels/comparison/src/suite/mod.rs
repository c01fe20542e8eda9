//! Suites: programs with a case for each call about memory and each kind of page fault, on Linux
//! and on the library's kernel (docs/suites.md).
//!
//! | module | task |
//! |---|---|
//! | [`output`] | reads the output of a suite's program |
//! | [`row`] | rows, from boots or from JSON |
//! | [`ratio`] | rows of both kernels, side by side |
//! | [`bars`] | the ratios that have to be reached |
//! | [`show`] | tables |
//! | [`documented`] | compares rows with the tables of a document |
//! | [`picture`] | draws the parts of each case |
//! | [`run`] | all of it |

pub mod bars;
pub mod documented;
pub mod output;
pub mod picture;
pub mod ratio;
pub mod row;
pub mod run;
pub mod show;

use std::fs;
use std::path::Path;

use crate::cases::Counts;
use crate::contender::Contender;
use crate::guest::{Files, Guest};
use crate::last_line;
use crate::split::GROUPS;
use row::SuiteRow;

/// The suites. `-like` says that it is written anew from the description of the suite of this name:
/// its results are not those of the original.
pub const SUITES: [&str; 5] =
    ["ours", "lmbench-like", "will-it-scale-like", "unixbench-like", "cortenmm-like"];

/// A boot of a suite.
pub struct SuiteBoot<'a> {
    pub suite: &'a str,
    pub contender: &'a Contender,
    pub files: &'a Files,
    /// Words of the command line for the program.
    pub words: &'a str,
    /// QEMU's plugin, and where it writes. Without it only instructions are counted.
    pub counter: Option<(&'a Path, &'a Path)>,
    /// The file of groups, for the library's kernel.
    pub groups: Option<&'a Path>,
}

impl SuiteBoot<'_> {
    /// Boots, and returns the rows, and lines about cases that could not run.
    ///
    /// # Errors
    ///
    /// QEMU or its plugin does not run, or the output is incomplete.
    pub fn run(&self) -> Result<(Vec<SuiteRow>, Vec<String>), String> {
        let SuiteBoot { suite, contender, files, words, counter, groups } = *self;
        let guest =
            Guest { contender, program: None, files, words, cpus: 1, counter, profiled: None, groups };
        let (text, ended) = guest.run()?;
        let output = output::parse(&text).map_err(|e| format!("{ended}; {e}; {}", last_line(&text)))?;
        let counts = match counter {
            Some((_, out)) => {
                let text = fs::read_to_string(out)
                    .map_err(|e| format!("QEMU's plugin has written no {}: {e}", out.display()))?;
                Counts::lines(&text).ok_or("QEMU's plugin has written a malformed line")?
            }
            None => Vec::new(),
        };
        let rows = output.cases.iter().map(|case| {
            let counts = counts.iter().find(|(number, _)| *number == case.index).map(|(_, counts)| counts);
            if counter.is_some() && counts.is_none() {
                return Err(format!("QEMU's plugin has not counted {}", case.name));
            }
            Ok(SuiteRow::of(suite, contender.name, case, counts, &GROUPS))
        });
        Ok((rows.collect::<Result<_, _>>()?, output.left))
    }
}
