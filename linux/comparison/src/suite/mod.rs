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
//! | [`documented`] | compares rows with the tables of a file of figures |
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

use crate::cases::CaseCounts;
use crate::guest::GuestBoot;
use crate::last_line;
use output::{Output, SuiteCase};

/// The suites. `-like` says that it is written anew from the description of the suite of this name:
/// its results are not those of the original.
pub const SUITES: [&str; 5] =
    ["ours", "lmbench-like", "will-it-scale-like", "unixbench-like", "cortenmm-like"];

/// The cases that a boot of a suite's program has measured.
pub struct Measured {
    /// All that the guest has printed.
    pub text: String,
    pub output: Output,
    /// The plugin's counts by the numbers of cases, if there is a plugin.
    counts: Option<Vec<(usize, CaseCounts)>>,
}

impl Measured {
    /// Boots a guest, and reads its results.
    ///
    /// # Errors
    ///
    /// QEMU or its plugin does not run, or the output is incomplete.
    pub fn of(guest: &GuestBoot<'_>) -> Result<Self, String> {
        let (text, ended) = guest.run()?;
        let output = output::parse(&text).map_err(|e| format!("{ended}; {e}; {}", last_line(&text)))?;
        let lines =
            |text: String| CaseCounts::lines(&text).ok_or("QEMU's plugin has written a malformed line");
        Ok(Measured { text, output, counts: guest.counted()?.map(lines).transpose()? })
    }

    /// Returns the plugin's counts of a case.
    ///
    /// # Errors
    ///
    /// There is a plugin, and it has not counted the case.
    pub fn counts_of(&self, case: &SuiteCase) -> Result<Option<&CaseCounts>, String> {
        let Some(counts) = &self.counts else { return Ok(None) };
        let found = counts.iter().find(|(number, _)| *number == case.index).map(|(_, counts)| counts);
        found.ok_or_else(|| format!("QEMU's plugin has not counted {}", case.name)).map(Some)
    }
}
