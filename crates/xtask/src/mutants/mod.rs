//! Changes the library in many small ways, and says which changes no test notices.
//!
//! `cargo mutants` lists the changes. A seed draws some of them, and all are compiled into one copy
//! of the library, where a variable of the environment switches one on. So there is one build,
//! however many mutants there are. Each test runs once without a mutant, and notes the mutants that
//! it comes to, so that no mutant is tried by tests that cannot notice it.
pub mod build;
pub mod judge;
mod list;
pub mod source;
mod state;

use build::Copy;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use judge::{Executable, Limits, Outcome, Processes, Test, Verdict, chosen, judge};
use list::{Entry, List};
use source::Mutant;
use state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Options of `cargo xtask mutants`.
#[derive(Args)]
pub struct MutantsArgs {
    /// Draws by this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of mutants that are tried.
    #[arg(long, default_value_t = 200)]
    count: usize,
    /// Draws from these modules of the library.
    #[arg(long, value_delimiter = ',', default_value = "table,gather,tlb,quicklist,space,frames")]
    modules: Vec<String>,
    /// Draws only mutants with one of these texts in their line of the report.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Seconds that each test has, beside eight times its time without a mutant.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    limit: u64,
    /// Seconds that all tests of a mutant have.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    most: u64,
    /// Begins again; without it, a run goes on where the last one ended.
    #[arg(long)]
    new: bool,
    /// Tries mutants that were not killed once more, with tests that were written since.
    #[arg(long)]
    again: bool,
}

/// The list of mutants that no test can notice.
const LIST: &str = "crates/xtask/lists/mutants.list";
/// The copy, its artefacts, and the file of states.
const PLACE: &str = "target/mutants";

/// Runs `cargo xtask mutants`. The exit status is 1 if a mutant survives that is not in the list,
/// or is undecided, and 2 without a run.
pub fn run(args: &MutantsArgs) -> ExitCode {
    match tried(args) {
        Ok(report) => report.print(args.seed),
        Err(why) => {
            eprintln!("cargo xtask mutants: {why}");
            ExitCode::from(2)
        }
    }
}

/// Tries all drawn mutants that are not decided yet.
fn tried(args: &MutantsArgs) -> Result<Report, String> {
    let text =
        fs::read_to_string(LIST).map_err(|e| format!("{LIST}: {e}; run it in the root of the repository"))?;
    let list: List = text.parse().map_err(|why| format!("{LIST}: {why}"))?;
    let sources = sources(&args.modules)?;
    let all = mutants(&sources)?;
    if let Some(entry) = list.stale(&all, &sources) {
        return Err(format!("{LIST}: there is no such mutant: {entry:?}"));
    }
    let order = order(&all, args);
    let place = Path::new(PLACE);
    let place =
        fs::create_dir_all(place).and_then(|()| place.canonicalize()).map_err(|e| format!("{PLACE}: {e}"))?;
    let file = place.join("state.json");
    if args.new {
        let _ = fs::remove_file(&file);
    }
    let mut state = State::open(&file, &about(args, &sources))?;
    if args.again {
        state.forget_survivors();
    }
    let is_changed = |name: &str| name == build::ROOT || sources.contains_key(name);
    let copy = Copy::new(&place, is_changed, "", &[])?;
    let executables = built(&copy, &sources, &order, args.count, &mut state)?;
    let drawn = drawn(&order, &state);
    let mut processes = Processes { executables: &executables, seen: &place.join("seen") };
    let limits = Limits { test: Duration::from_secs(args.limit), mutant: Duration::from_secs(args.most) };
    for is_slow in [false, true] {
        let todo: Vec<(usize, &Mutant)> =
            (1..).zip(drawn.iter().copied()).filter(|(_, m)| !list.has(m)).collect();
        round(is_slow, &todo, limits, &mut processes, &mut state)?;
    }
    let of =
        |mutant: &Mutant| if list.has(mutant) { None } else { state.verdicts.get(&mutant.id()).cloned() };
    Ok(Report {
        found: drawn.iter().map(|mutant| ((*mutant).clone(), of(mutant))).collect(),
        of: order.len(),
        broken: state.broken,
        failing: state.failing,
    })
}

/// Reads the files of modules below the library's `src`.
fn sources(modules: &[String]) -> Result<BTreeMap<String, String>, String> {
    fn read(path: &Path, into: &mut BTreeMap<String, String>) -> std::io::Result<()> {
        if path.is_dir() {
            return fs::read_dir(path)?.try_for_each(|entry| read(&entry?.path(), into));
        }
        if path.extension().is_some_and(|extension| extension == "rs") {
            into.insert(path.display().to_string(), fs::read_to_string(path)?);
        }
        Ok(())
    }
    let mut sources = BTreeMap::new();
    for module in modules {
        let path = format!("crates/ptarmigan/src/{module}");
        read(Path::new(&path), &mut sources).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(sources)
}

/// Has `cargo mutants` list the mutants of the files.
fn mutants(sources: &BTreeMap<String, String>) -> Result<Vec<Mutant>, String> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--package", "ptarmigan"]);
    sources.keys().for_each(|file| _ = command.args(["--file", file]));
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("cargo mutants: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("no such command") {
        return Err("cargo-mutants is missing: cargo install cargo-mutants --locked".into());
    }
    if !output.status.success() {
        return Err(format!("cargo mutants: {}", errors.trim()));
    }
    source::parse(&String::from_utf8_lossy(&output.stdout), sources)
}

/// Returns the mutants that are wanted, in the seed's order.
fn order<'m>(all: &'m [Mutant], args: &MutantsArgs) -> Vec<&'m Mutant> {
    let is_wanted = |mutant: &Mutant| {
        let line = mutant.to_string();
        args.only.is_empty() || args.only.iter().any(|text| line.contains(text.as_str()))
    };
    let mut order: Vec<&Mutant> = all.iter().filter(|mutant| is_wanted(mutant)).collect();
    order.sort_by_key(|mutant| mutant.order(args.seed));
    order
}

/// Names the options and the sources that a state is about.
fn about(args: &MutantsArgs, sources: &BTreeMap<String, String>) -> String {
    let sources = sources
        .iter()
        .fold(0, |sum, (name, text)| source::hash(text.as_bytes(), source::hash(name.as_bytes(), sum)));
    let MutantsArgs { seed, count, only, .. } = args;
    format!("seed {seed}, {count} of {only:?}, sources {sources:016x}")
}

/// Draws as many mutants as are wanted and compile, unless the state has them. Builds the tests.
fn built(
    copy: &Copy,
    sources: &BTreeMap<String, String>,
    order: &[&Mutant],
    count: usize,
    state: &mut State,
) -> Result<Vec<Executable>, String> {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    let put = |drawn: &[&Mutant]| {
        let numbered: Vec<(usize, &Mutant)> = drawn.iter().enumerate().map(|(i, m)| (i + 1, *m)).collect();
        copy.put_mutants(sources, &numbered)
    };
    let build = |drawn: &[&Mutant]| {
        let lines = put(drawn)?;
        bar.set_message(format!("building the tests with {} mutants", drawn.len()));
        copy.build(&lines)
    };
    if !state.drawn.is_empty() {
        let executables = build(&drawn(order, state))?;
        bar.finish_and_clear();
        return executables.map_err(|_| "the mutants do not compile any more; --new begins again".into());
    }
    let mut broken: BTreeSet<String> = BTreeSet::new();
    loop {
        let compile = |broken: &BTreeSet<String>, n| {
            order.iter().filter(|m| !broken.contains(&m.id())).take(n).copied().collect::<Vec<_>>()
        };
        // Some to spare, as each check takes a while.
        let some = compile(&broken, count + count / 4);
        bar.set_message(format!("checking {} mutants", some.len()));
        let blamed = copy.check(&put(&some)?)?;
        let blamed = if blamed.is_empty() {
            let few = compile(&broken, count);
            match build(&few)? {
                Ok(executables) => {
                    // Others that do not compile were not drawn.
                    let last = few.last().map(|mutant| mutant.id());
                    let before =
                        order.iter().map(|mutant| mutant.id()).take_while(|id| Some(id) != last.as_ref());
                    state.broken = before.filter(|id| broken.contains(id)).count();
                    state.drawn = few.iter().map(|mutant| mutant.id()).collect();
                    state.save()?;
                    bar.finish_and_clear();
                    return Ok(executables);
                }
                Err(blamed) => blamed,
            }
        } else {
            blamed
        };
        broken.extend(blamed.iter().map(|number| some[number - 1].id()));
    }
}

/// Returns the mutants that the state has.
fn drawn<'m>(order: &[&'m Mutant], state: &State) -> Vec<&'m Mutant> {
    let by_id: BTreeMap<String, &Mutant> = order.iter().map(|mutant| (mutant.id(), *mutant)).collect();
    state.drawn.iter().filter_map(|id| by_id.get(id).copied()).collect()
}

/// Tries mutants, which have numbers, by fast tests or by the slow ones. A mutant that fast tests
/// have killed is not tried again.
fn round(
    is_slow: bool,
    mutants: &[(usize, &Mutant)],
    limits: Limits,
    processes: &mut Processes<'_>,
    state: &mut State,
) -> Result<(), String> {
    let is_done = |state: &State, id: &String| {
        state.verdicts.contains_key(id) || !is_slow && state.first.contains_key(id)
    };
    if mutants.iter().all(|(_, mutant)| is_done(state, &mutant.id())) {
        return Ok(());
    }
    measured(is_slow, processes, state)?;
    let tests: Vec<Test> =
        state.tests.iter().filter(|test| state.slow.contains(&test.id()) == is_slow).cloned().collect();
    // Mutants that few tests come to are decided first.
    let mut todo: Vec<(usize, &Mutant, Vec<&Test>)> =
        mutants.iter().map(|&(number, mutant)| (number, mutant, chosen(mutant, number, &tests))).collect();
    todo.sort_by_key(|(_, _, tests)| tests.iter().map(|test| test.time).sum::<Duration>());
    let bar = bar(todo.len(), if is_slow { "mutants, by slow tests" } else { "mutants, by fast tests" });
    for (number, mutant, tests) in todo {
        bar.inc(1);
        let id = mutant.id();
        if is_done(state, &id) {
            continue;
        }
        let verdict = judge(&tests, number, limits, processes);
        let verdict = match state.first.remove(&id) {
            Some(first) => first.and(verdict),
            None => verdict,
        };
        let is_killed = matches!(verdict, Verdict::Killed(_));
        if is_slow && !is_killed {
            bar.suspend(|| println!("{mutant}: {}", said(&verdict)));
        }
        let known = if is_slow || is_killed { &mut state.verdicts } else { &mut state.first };
        known.insert(id, verdict);
        state.save()?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// A test that takes longer is one of the slow ones.
const FAST: Duration = Duration::from_secs(3);
/// A test that takes longer fails.
const SLOW: Duration = Duration::from_secs(300);

/// Runs the tests that are not known yet without a mutant, with the limit of fast ones or of slow
/// ones.
fn measured(is_slow: bool, processes: &mut Processes<'_>, state: &mut State) -> Result<(), String> {
    let mut todo: Vec<(&Executable, String, String)> = Vec::new();
    let mut there = BTreeSet::new();
    let executables = processes.executables;
    for executable in executables {
        for name in processes.names(executable)? {
            let id = format!("{} {name}", executable.name);
            let is_known = state.failing.contains(&id) || state.tests.iter().any(|test| test.id() == id);
            if !is_known && state.slow.contains(&id) == is_slow {
                todo.push((executable, name, id.clone()));
            }
            there.insert(id);
        }
    }
    state.tests.retain(|test| there.contains(&test.id()));
    let bar = bar(todo.len(), "tests without a mutant");
    for (executable, name, id) in todo {
        match processes.measure(executable, &name, if is_slow { SLOW } else { FAST }) {
            Ok(test) => state.tests.push(test),
            Err(Outcome::TimedOut) if !is_slow => state.slow.push(id),
            Err(_) => state.failing.push(id),
        }
        bar.inc(1);
        // Not each time: the file is long.
        if is_slow || bar.position().is_multiple_of(50) {
            state.save()?;
        }
    }
    bar.finish_and_clear();
    state.save()
}

fn bar(len: usize, of: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len as u64).with_style(style).with_message(of)
}

fn said(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Killed(by) => format!("killed by {by}"),
        Verdict::Survived(0) => "survived, as no test comes to it".into(),
        Verdict::Survived(tests) => format!("survived {tests} tests that come to it"),
        Verdict::Undecided(why) => format!("undecided: {why}"),
    }
}

/// All mutants that were tried, with their verdicts; `None` for one of the list.
struct Report {
    found: Vec<(Mutant, Option<Verdict>)>,
    /// How many they were drawn from.
    of: usize,
    broken: usize,
    failing: Vec<String>,
}

impl Report {
    /// Returns the number of mutants killed, survived, equivalent and undecided.
    fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for (_, verdict) in &self.found {
            let at = match verdict {
                Some(Verdict::Killed(_)) => 0,
                Some(Verdict::Survived(_)) => 1,
                None => 2,
                Some(Verdict::Undecided(_)) => 3,
            };
            counts[at] += 1;
        }
        counts
    }

    fn print(&self, seed: u64) -> ExitCode {
        self.failing.iter().for_each(|test| println!("left out, as it fails without a mutant: {test}"));
        for (mutant, verdict) in &self.found {
            let Some(verdict @ (Verdict::Survived(_) | Verdict::Undecided(_))) = verdict else { continue };
            println!("\n{}\n{}", said(verdict), Entry::of(mutant));
        }
        let [killed, survived, equivalent, undecided] = self.counts();
        println!(
            "{} of {} mutants by seed {seed}: {killed} killed, {survived} survived, {equivalent} equivalent, \
             {undecided} undecided; {} drawn do not compile",
            self.found.len(),
            self.of,
            self.broken
        );
        if survived + undecided == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
