//! Baselines: the figures of a run, saved under a name, and later runs compared with them.
//!
//! A baseline is one JSON file, `NAME.json`, in the directory that `store` finds. It holds the
//! figures, the options that they depend on, and the host. A run with other options is refused; one
//! on another host is compared, with a warning.
mod comparison;
mod figures;
mod store;

pub use comparison::{Comparison, WithComparison};
pub use figures::{Figure, of_bench, of_replay};

use crate::model::HostName;
use ptarmigan_term::Failure;
use ptarmigan_term::print;
use std::collections::BTreeMap;
use store::Baseline;

/// Saving figures, and comparing with saved ones.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Baselines")]
pub struct BaselineArgs {
    /// Save the figures under a name. The file is in $PTARMIGAN_BASELINES, or else in
    /// $XDG_DATA_HOME/ptarmigan/baselines, or else in ~/.local/share/ptarmigan/baselines.
    #[arg(long, value_name = "NAME", value_parser = store::parse_name, global = true)]
    save: Option<String>,
    /// Also print how the figures compare with those saved under a name.
    #[arg(long, value_name = "NAME", value_parser = store::parse_name, global = true)]
    compare: Option<String>,
    /// The options of the run that figures depend on, as given.
    #[arg(skip)]
    pub settings: BTreeMap<String, String>,
    /// All options of the run, as given.
    #[arg(skip)]
    pub options: BTreeMap<String, String>,
}

/// Options that change no figure, or only which figures there are.
const FREE: [&str; 16] = [
    "save",
    "compare",
    "json",
    "counters",
    "traces",
    "policy",
    "historic_lists",
    "sanitize",
    "seed",
    "seeds",
    "keep_going",
    "rounds",
    "runs",
    "part",
    "svg",
    "help",
];

/// Arguments that are no option of a run: its input, and the form and the place of its output.
const OUTSIDE: [&str; 5] = ["save", "compare", "json", "traces", "help"];

/// Returns the options of `command` that its figures depend on, defaults included.
pub fn settings(command: &clap::Command, matches: &clap::ArgMatches) -> BTreeMap<String, String> {
    given(command, matches, &FREE)
}

/// Returns all options of `command`, defaults included.
pub fn options(command: &clap::Command, matches: &clap::ArgMatches) -> BTreeMap<String, String> {
    given(command, matches, &OUTSIDE)
}

/// Returns the options of `command` but for some.
fn given(command: &clap::Command, matches: &clap::ArgMatches, but: &[&str]) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    for argument in command.get_arguments() {
        let (id, name) = (argument.get_id().as_str(), argument.get_long().unwrap_or_default());
        if !but.contains(&id)
            && let Ok(Some(values)) = matches.try_get_raw(id)
        {
            let values: Vec<_> = values.map(|value| value.to_string_lossy().into_owned()).collect();
            settings.insert(format!("--{name}"), values.join(","));
        }
    }
    settings
}

/// A run whose figures may be saved and compared.
pub struct BaselineRun {
    args: BaselineArgs,
    command: String,
    before: Option<(String, Baseline)>,
}

impl BaselineRun {
    /// Loads the baseline to compare with, and makes the directory to save to, before anything is
    /// measured. Warns if the baseline is of another host.
    ///
    /// # Errors
    /// If there is no such baseline, it is of another command or of other options, or the figures
    /// cannot be saved.
    pub fn begin(args: &BaselineArgs, command: &str) -> Result<Self, Failure> {
        let mut before = None;
        if let Some(name) = &args.compare {
            let baseline = store::load(name)?;
            baseline.fits(command, &args.settings).map_err(|why| {
                Failure::new(format!("baseline {name} cannot be compared with this run: {why}"))
            })?;
            let here = HostName::here();
            if baseline.host != here {
                let there = &baseline.host;
                print::error(&format!(
                    "warning: baseline {name} is of another host, {there}; this is {here}"
                ));
            }
            before = Some((name.clone(), baseline));
        }
        if let Some(name) = &args.save {
            store::prepare(name)?;
        }
        Ok(BaselineRun { args: args.clone(), command: command.to_owned(), before })
    }

    /// Compares figures with the baseline, if one is loaded.
    ///
    /// # Errors
    /// If no figure is in the baseline.
    pub fn compare(&self, figures: &[Figure]) -> Result<Option<Comparison>, Failure> {
        let Some((name, baseline)) = &self.before else { return Ok(None) };
        Comparison::of(name, &baseline.figures, figures).map(Some)
    }

    /// Saves the figures, if the run is to be saved.
    ///
    /// # Errors
    /// If the file cannot be written. A baseline of that name stays as it was then.
    pub fn finish(self, figures: Vec<Figure>) -> Result<(), Failure> {
        let Some(name) = &self.args.save else { return Ok(()) };
        store::save(name, &Baseline::new(self.command, self.args.settings.clone(), figures))
    }
}
