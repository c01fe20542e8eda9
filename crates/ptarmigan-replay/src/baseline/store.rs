//! Files of baselines.
use super::figures::Figure;
use crate::model::HostName;
use ptarmigan_term::nearest;
use ptarmigan_term::output::Output;
use ptarmigan_term::{Context, Failure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The version of the file.
const SCHEMA: u32 = 1;

/// A file's content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Baseline {
    schema: u32,
    /// Version of the program that wrote it.
    version: String,
    /// The command, e.g. `replay` or `bench table`.
    command: String,
    /// Options that the figures depend on, with their values.
    settings: BTreeMap<String, String>,
    pub host: HostName,
    pub figures: Vec<Figure>,
}

impl Baseline {
    /// Creates a baseline of this host.
    pub fn new(command: String, settings: BTreeMap<String, String>, figures: Vec<Figure>) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Baseline { schema: SCHEMA, version, command, settings, host: HostName::here(), figures }
    }

    /// Checks that a run of `command` with `settings` can be compared with the baseline.
    ///
    /// # Errors
    /// A message that names the first difference.
    pub fn fits(&self, command: &str, settings: &BTreeMap<String, String>) -> Result<(), String> {
        if self.command != command {
            return Err(format!("it is of `{}`, this run is `{command}`", self.command));
        }
        let none = "no value".to_owned();
        let names = self.settings.keys().chain(settings.keys());
        for name in names {
            let (there, here) =
                (self.settings.get(name).unwrap_or(&none), settings.get(name).unwrap_or(&none));
            if there != here {
                return Err(format!("{name} was {there} and is {here}"));
            }
        }
        Ok(())
    }
}

/// Checks the name of a baseline, which becomes the name of a file.
///
/// # Errors
/// A message with the names that are allowed.
pub(super) fn parse_name(name: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || name.starts_with(['.', '-']) || !name.chars().all(good) {
        return Err(
            "a name has up to 64 letters, digits, `_`, `-` and `.`, and begins with neither `.` nor `-`"
                .into(),
        );
    }
    Ok(name.to_owned())
}

/// Returns the directory of baselines. It need not exist.
///
/// # Errors
/// If the environment names no directory.
pub(super) fn directory() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("PTARMIGAN_BASELINES") {
        return Ok(directory);
    }
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    let data = data.ok_or_else(|| {
        Failure::new("no place for baselines: set HOME, or PTARMIGAN_BASELINES to a directory")
    })?;
    Ok(data.join("ptarmigan/baselines"))
}

fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.json"))
}

/// Reads the baseline `name`.
///
/// # Errors
/// If there is no such baseline (the message has the nearest names), or it cannot be used.
pub(super) fn load(name: &str) -> Result<Baseline, Failure> {
    let directory = directory()?;
    let path = file(&directory, name);
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(Failure::new(unknown(name, &directory))),
        read => read.context(path.display())?,
    };
    let version: Version =
        serde_json::from_str(&text).context(format_args!("{}: no baseline", path.display()))?;
    if version.schema != SCHEMA {
        return Err(Failure::new(format!(
            "{}: schema {}; this program reads schema {SCHEMA}: save the baseline again",
            path.display(),
            version.schema
        )));
    }
    serde_json::from_str(&text).context(format_args!("{}: no baseline", path.display()))
}

/// The schema, which is read first and tells whether the rest can be.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// Says which baselines there are instead.
fn unknown(name: &str, directory: &Path) -> String {
    let known: Vec<String> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    let hint = nearest::hint(name, &known);
    let place = directory.display();
    match (hint.as_str(), known.len()) {
        ("", 0) => format!("no baseline {name}: there is none in {place}; make one with --save {name}"),
        ("", n) => format!("no baseline {name} among the {n} in {place}"),
        _ => format!("no baseline {name} in {place}{hint}"),
    }
}

/// Makes the directory, and checks that the baseline `name` can be in it. Returns its file.
///
/// # Errors
/// If there can be no directory, or a file of that name exists and is not a regular one.
pub(super) fn prepare(name: &str) -> Result<Output, Failure> {
    let directory = directory()?;
    fs::create_dir_all(&directory).context(directory.display())?;
    Output::new(&file(&directory, name))
}

/// Writes the baseline `name`. It takes the place of an older one when it is complete.
///
/// # Errors
/// If it cannot be written, or a file of that name exists and is not a regular one.
pub(super) fn save(name: &str, baseline: &Baseline) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(baseline).context("baseline")? + "\n";
    prepare(name)?.write(text.as_bytes())
}
