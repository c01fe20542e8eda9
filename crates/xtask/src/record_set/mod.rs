//! Records a set of loads, and prices proposals on them.
//!
//! # Why
//!
//! A proposal that helps a compile may cost a database. So each is priced on the same recordings,
//! and docs/price.md shows the answers side by side. The recordings are large and differ from run
//! to run, so the repository has their answers alone, in `figures/price`.
//!
//! # Rules
//!
//! 1. Prices of pages come from one file, `figures/price/prices.json`, so that two recordings are
//!    weighed alike. `ptarmigan calibrate` makes it.
//! 2. A recording that is in the directory already is priced, and not made again.
//! 3. A recording without its tools is left out, and named with the packages that it lacks.
mod record;
mod table;

use crate::outcome;
use crate::program::command_of;
use crate::recorder::Recorder;
use crate::tools::Tools;
use clap::Args;
use ptarmigan_term::{Bytes, Time};
use record::{PriceRecord, Priced};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::{RecordSet, SetRow};

/// The directory of the programs.
pub const HOME: &str = "crates/ptarmigan-cli/record-set";
/// The table in it.
pub const LIST: &str = "set.toml";
/// The prices of pages.
const PRICES: &str = "figures/price/prices.json";

/// Options of `cargo xtask record-set`.
#[derive(Args)]
pub struct RecordSetArgs {
    /// Keeps the recordings in this directory. A recording that is there is not made again.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only the recordings with these names.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Lists the recordings, and says which tools are missing.
    #[arg(long, conflicts_with_all = ["dir", "write"])]
    list: bool,
    /// Writes the answers to `figures/price`; `cargo xtask figures --pages` then writes the page.
    #[arg(long)]
    write: bool,
    /// Seconds after which a program is ended.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The command `ptarmigan`; without it, one is built.
    #[arg(long, value_name = "FILE")]
    ptarmigan: Option<PathBuf>,
}

/// Records and prices the set. The exit status is 0 if all programs that can run here have been
/// recorded and priced, 2 if this host cannot record.
pub fn run(args: &RecordSetArgs) -> ExitCode {
    outcome::exit("record-set", all(args))
}

/// Goes through the set. Returns whether no recording failed.
fn all(args: &RecordSetArgs) -> Result<bool, String> {
    let root = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let set = RecordSet::read(&root.join(HOME).join(LIST))?;
    let (chosen, mut tools) = (set.chosen(&args.only)?, Tools::new(&set.need));
    let mut left_out = |recording: &SetRow| {
        tools.missing(&recording.needs).map(|tool| match &tool.debian {
            Some(packages) => format!("{} is missing: apt-get install {packages}", tool.name),
            None => format!("{} is missing", tool.name),
        })
    };
    if args.list {
        for recording in chosen {
            let why = left_out(recording).unwrap_or_default();
            println!("{}", format!("{:<16} {:<14} {why}", recording.name, recording.file).trim_end());
        }
        return Ok(true);
    }
    let recorder = Recorder::new("record-set", args.ptarmigan.as_deref())?;
    let dir = args.dir.as_deref().unwrap_or(recorder.dir()).to_owned();
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let dir = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
    let studio = Studio { recorder, root, dir, args };
    let mut failures = Vec::new();
    for recording in chosen {
        // One that is there needs no tool.
        let made = studio.trace(recording).exists();
        if let Some(why) = (!made).then(|| left_out(recording)).flatten() {
            println!("{:<16} left out: {why}", recording.name);
            continue;
        }
        match studio.price(recording) {
            Ok(line) => println!("{:<16} {line}", recording.name),
            Err(why) => failures.push(format!("{}: {why}", recording.name)),
        }
    }
    Ok(outcome::passed(&failures))
}

/// Records and prices.
struct Studio<'a> {
    recorder: Recorder,
    root: PathBuf,
    dir: PathBuf,
    args: &'a RecordSetArgs,
}

impl Studio<'_> {
    fn trace(&self, recording: &SetRow) -> PathBuf {
        self.dir.join(format!("{}.ptrace", recording.name))
    }

    /// Makes the recording unless it is there, prices it, and writes its answers if asked to.
    /// Returns a line about it.
    fn price(&self, recording: &SetRow) -> Result<String, String> {
        let (trace, start) = (self.trace(recording), Instant::now());
        let made = if trace.exists() {
            "found".to_owned()
        } else {
            self.record(recording, &trace)?;
            format!("recorded in {}", Time::from(start.elapsed()))
        };
        let start = Instant::now();
        let prices = self.root.join(PRICES);
        let options = ["price", "--json", "--model"].map(OsStr::new);
        let priced: Priced =
            self.recorder.json(&[&options[..], &[prices.as_os_str(), trace.as_os_str()]].concat())?;
        let metadata = trace.metadata().map_err(|e| format!("{}: {e}", trace.display()))?;
        let modified = metadata.modified().map_err(|e| format!("{}: {e}", trace.display()))?;
        let record = PriceRecord::new(&recording.name, priced, modified)?;
        if self.args.write {
            let file = self.root.join(format!("figures/price/{}.json", recording.name));
            std::fs::write(&file, record.text()?).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(format!(
            "{made}, {}, priced in {}; {} answers, {} refused",
            Bytes(metadata.len()),
            Time::from(start.elapsed()),
            record.answered(),
            record.refused(),
        ))
    }

    /// Records a program. The trace comes to its place at the end, so that no half of one is found.
    fn record(&self, recording: &SetRow, trace: &Path) -> Result<(), String> {
        let source = self.root.join(HOME).join(&recording.file);
        let mut command = command_of(&source, self.recorder.dir(), None)?;
        command.extend(recording.with.iter().cloned());
        let part = self.dir.join(format!("{}.part", recording.name));
        let options = ["--names", "--method", "tracefs", "--level", "6", "--name", &recording.name];
        let most = Duration::from_secs(self.args.seconds);
        let (status, said) = self.recorder.record(&part, &options, command.iter().map(OsStr::new), most)?;
        if !status.success() {
            let _ = std::fs::remove_file(&part);
            return Err(format!("{}: {status}: {}", command.join(" "), said.trim()));
        }
        std::fs::rename(&part, trace).map_err(|e| format!("{}: {e}", trace.display()))
    }
}
