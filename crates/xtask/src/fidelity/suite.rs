//! Records the commands of lists and compares the replays with Linux's counts of tables.
use super::check::{Checker, Found};
use super::list::{Entry, List};
use crate::repository;
use crate::settings::Settings;
use clap::Args;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Options of `cargo xtask suite`.
#[derive(Args)]
pub struct SuiteArgs {
    /// Lists of commands, one a line: `NAME | COMMAND`, and `| REASON` where samples may differ.
    #[arg(required_unless_present = "zoo")]
    lists: Vec<PathBuf>,
    /// The zoo: small programs of awkward cases, which are built with `cc`.
    #[arg(long)]
    zoo: bool,
    /// Records with `transparent_hugepage=always`, which takes root, and replays with large pages,
    /// too. The setting is the machine's, and comes back after each recording.
    #[arg(long)]
    always: bool,
    /// Only the commands with these names.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// CPUs of the replays. Each number is a replay of its own.
    #[arg(long, default_value = "1,2", value_delimiter = ',')]
    cpus: Vec<u32>,
    /// Seconds after which a command is ended.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The part of the samples that must be equal or have a reason, in percent.
    #[arg(long, default_value_t = 100.0)]
    least: f64,
    /// Keeps the traces in this directory.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The command `ptarmigan`; without it, one is built.
    #[arg(long, value_name = "FILE")]
    ptarmigan: Option<PathBuf>,
}

/// The results of all commands.
#[derive(Default)]
struct Totals {
    commands: u64,
    checked: u64,
    equal: u64,
    /// Unequal samples of commands with a reason.
    explained: u64,
    findings: u64,
    unexplained: u64,
    lost: u64,
    failed: u64,
    /// Large pages of replays that have some.
    large: u64,
}

/// Runs the comparison. The exit status is 0 if enough samples are equal or have a reason and the
/// sanitizer has no finding, 2 if this host cannot record or, with `--always`, cannot set that.
pub fn run(args: &SuiteArgs) -> ExitCode {
    let checker = match Checker::new(args.ptarmigan.as_deref()).and_then(|c| c.probe().map(|()| c)) {
        Ok(checker) => checker,
        Err(why) => {
            eprintln!("suite: nothing can be compared here: {why}");
            return ExitCode::from(2);
        }
    };
    if let Some(Err(why)) = args.always.then(always_huge) {
        eprintln!("suite: skipped, as huge pages cannot be set to `always` here: {why}");
        return ExitCode::from(2);
    }
    let entries = match entries(args, checker.dir()) {
        Ok(entries) => entries,
        Err(why) => {
            eprintln!("suite: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut totals = Totals::default();
    for entry in entries {
        match compare(&checker, &entry, args) {
            Ok((found, note)) => totals.add(&entry, &found, &note),
            Err(why) => {
                totals.failed += 1;
                println!("{:<24} not compared: {why}", entry.name);
            }
        }
    }
    totals.print();
    if args.always {
        println!("{} large pages mapped by faults", totals.large);
        if totals.large == 0 {
            return ExitCode::FAILURE;
        }
    }
    if totals.is_right(args.least) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads the lists and builds the zoo.
fn entries(args: &SuiteArgs, dir: &Path) -> Result<Vec<Entry>, String> {
    let mut texts = Vec::new();
    for list in &args.lists {
        let text = repository::read(list)?;
        texts.push((list.display().to_string(), text));
    }
    if args.zoo {
        texts.push(("the zoo".to_owned(), zoo(dir)?));
    }
    let mut all = Vec::new();
    for (name, text) in texts {
        let List(list) = text.parse().map_err(|why| format!("{name}: {why}"))?;
        all.extend(list.into_iter().filter(|e| args.only.is_empty() || args.only.contains(&e.name)));
    }
    Ok(all)
}

/// Builds the zoo in `dir`. Returns its list.
fn zoo(dir: &Path) -> Result<String, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("zoo");
    let files = std::fs::read_dir(&sources).map_err(|e| format!("{}: {e}", sources.display()))?;
    let files = files.flatten().map(|entry| entry.path());
    let built = Command::new("cc")
        .args(["-O1", "-pthread", "-o"])
        .arg(dir.join("zoo"))
        .args(files.filter(|file| file.extension().is_some_and(|e| e == "c")))
        .status()
        .map_err(|e| format!("cc: {e}"))?;
    if !built.success() {
        return Err("the zoo cannot be built".to_owned());
    }
    let list = Command::new(dir.join("zoo")).output().map_err(|e| format!("the zoo: {e}"))?;
    Ok(String::from_utf8_lossy(&list.stdout).into_owned())
}

/// Sets huge pages in all anonymous memory of this machine.
fn always_huge() -> Result<Settings, String> {
    Settings::change(&[("/sys/kernel/mm/transparent_hugepage/enabled", "always")])
}

/// Records a command and replays it. Returns the worst replay, and further remarks.
fn compare(checker: &Checker, entry: &Entry, args: &SuiteArgs) -> Result<(Found, String), String> {
    let command = entry.words().into_iter().map(OsStr::new);
    let always = args.always.then(always_huge).transpose()?;
    let (status, _) = checker.record(command, Duration::from_secs(args.seconds))?;
    drop(always);
    if let Some(keep) = &args.keep {
        checker.keep(keep, &entry.name)?;
    }
    let mut worst: Option<Found> = None;
    let mut note = if status.success() { String::new() } else { format!("; {status}") };
    let sizes = || [false, true].into_iter().take(1 + usize::from(args.always));
    for (cpus, large) in args.cpus.iter().flat_map(|&cpus| sizes().map(move |large| (cpus, large))) {
        let found = checker.replay(cpus, large)?;
        let Some(before) = &mut worst else {
            worst = Some(found);
            continue;
        };
        if (before.equal, before.unexplained) != (found.equal, found.unexplained) {
            let pages = if large { " and large pages" } else { "" };
            note += &format!("; {} equal with {cpus} CPUs{pages}", found.equal);
        }
        before.findings += found.findings;
        before.large = before.large.max(found.large);
        before.unexplained = before.unexplained.max(found.unexplained);
        if found.equal < before.equal {
            let Found { findings, large, unexplained, .. } = *before;
            *before = Found { findings, large, unexplained, ..found };
        }
    }
    worst.map(|found| (found, note)).ok_or_else(|| "no number of CPUs".to_owned())
}

impl Totals {
    /// Adds a command, and prints its line.
    fn add(&mut self, entry: &Entry, found: &Found, note: &str) {
        let unequal = found.checked - found.equal;
        self.commands += 1;
        self.checked += found.checked;
        self.equal += found.equal;
        self.findings += found.findings;
        self.lost += found.lost;
        self.large += found.large;
        if entry.reason.is_some() {
            self.explained += unequal;
        } else {
            self.unexplained += found.unexplained;
        }
        let mut line = format!("{:<24} {:>6} of {:>6}", entry.name, found.equal, found.checked);
        for (n, what) in [
            (found.unexplained, "tables found at stops"),
            (found.odd, "calls refused"),
            (found.findings, "findings"),
            (found.lost, "lost"),
            (found.large, "large pages"),
        ] {
            if n > 0 {
                line += &format!("; {n} {what}");
            }
        }
        line += note;
        if unequal > 0 {
            line += &format!("; {}", found.first);
        }
        if let Some(reason) = entry.reason.as_ref().filter(|_| unequal > 0 || found.unexplained > 0) {
            line += &format!("; {reason}");
        }
        println!("{line}");
    }

    fn is_right(&self, least: f64) -> bool {
        let right = (self.equal + self.explained) as f64 * 100.0;
        right >= least * self.checked as f64
            && self.findings == 0
            && self.unexplained == 0
            && self.failed == 0
    }

    fn print(&self) {
        let Totals { commands, checked, equal, explained, findings, unexplained, lost, failed, .. } = self;
        println!("{commands} commands: {equal} of {checked} samples equal; {explained} unequal for a reason");
        println!("{unexplained} tables known from pages found at stops only, without a reason");
        println!("{findings} findings; {lost} events lost; {failed} commands not compared");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_samples_must_be_equal_or_have_a_reason() {
        let totals = Totals { checked: 1000, equal: 990, explained: 5, ..Totals::default() };
        assert!(totals.is_right(99.5) && !totals.is_right(99.6));
        assert!(!Totals { findings: 1, ..totals }.is_right(0.0));
        let all = Totals { checked: 3, equal: 3, ..Totals::default() };
        assert!(all.is_right(100.0) && !Totals { equal: 2, ..all }.is_right(100.0));
    }
}
