//! Programs that are started for each small job.
//!
//! A start maps the program and its libraries, relocates them and, with an interpreter, reads
//! modules before the job begins. The start of an interpreter is taken to end with the last library
//! that is mapped: what comes then may be the job. Another program that is started often for small
//! jobs does hardly more than start. Of the runs of a program, the lower quartile counts.
//!
//! ```text
//!  execve ── libc.so ── libpython.so ── _json.so ── … job … ── exit
//!  |------------- start -----------------------|
//! ```
//!
//! The other side is the recording in which one process does all jobs: only the first run has the
//! faults of a start.
use super::edit::Edit;
use super::languages::Language;
use crate::advise::facts::Facts;
use foldhash::{HashMap, HashMapExt};
use ptarmigan_replay::{PackedEvent, PackedKind, Tasks, Trace};
use ptarmigan_trace::{Kind, MapFlags, Prot};
use std::collections::BTreeMap;

/// The runs of one program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Started {
    /// Whether it is an interpreter.
    pub is_interpreter: bool,
    /// Its starts.
    pub starts: u64,
    /// Faults of a start.
    pub each: u64,
    /// Faults of all starts but the first.
    pub spared: u64,
}

/// The starts of programs in a recording.
#[derive(Debug, Default)]
pub struct Starts {
    /// By the program, as an index of [`Facts::programs`].
    pub programs: BTreeMap<usize, Started>,
    /// How many of its first faults each later run spares, by the number of its program.
    spared: HashMap<u32, u64>,
}

impl Starts {
    /// Looks at a recording of which the facts are known.
    pub fn of(trace: &Trace, facts: &Facts) -> Self {
        // Faults up to now, and up to the last library, of each run.
        let mut runs: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        each_step(trace, |number, step| {
            let Some(number) = number else { return };
            let run = runs.entry(number).or_default();
            match step.what {
                PackedKind::Fault { .. } => run.0 += 1,
                PackedKind::Rare(rare) if maps_library(&trace.rare[rare as usize]) => run.1 = run.0,
                _ => {}
            }
        });
        // A program may have thousands of runs, and as many mappings that name its language.
        let is_interpreter: Vec<bool> =
            facts.programs.iter().map(|program| Language::of(program) != Language::C).collect();
        let mut of_program: BTreeMap<usize, Vec<(u32, u64)>> = BTreeMap::new();
        for (number, (faults, start)) in runs {
            let program = facts.program(number);
            let start = if is_interpreter[program] { start } else { faults };
            of_program.entry(program).or_default().push((number, start));
        }
        let mut found = Starts::default();
        for (program, runs) in of_program {
            let mut sorted: Vec<u64> = runs.iter().map(|run| run.1).collect();
            sorted.sort_unstable();
            let each = sorted[sorted.len() / 4];
            let later = runs[1..].iter().map(|(number, start)| (*number, each.min(*start)));
            let spared = later.clone().map(|(_, spared)| spared).sum();
            found.spared.extend(later);
            let (is_interpreter, starts) = (is_interpreter[program], runs.len() as u64);
            found.programs.insert(program, Started { is_interpreter, starts, each, spared });
        }
        found
    }

    /// Returns the recording with one start of each of some programs.
    pub fn rewrite(&self, trace: &Trace, facts: &Facts, of: &BTreeMap<usize, Started>) -> Trace {
        let mut left: HashMap<u32, u64> = HashMap::new();
        let chosen = self.spared.iter().filter(|(number, _)| of.contains_key(&facts.program(**number)));
        left.extend(chosen.map(|(number, spared)| (*number, *spared)));
        let mut edit = Edit::of(trace);
        each_step(trace, |number, step| match (step.what, number.and_then(|number| left.get_mut(&number))) {
            (PackedKind::Fault { .. }, Some(left)) if *left > 0 => *left -= 1,
            _ => edit.keep(step),
        });
        edit.finish()
    }
}

/// Shows each step with the number of the program that its task runs; behind its exit it runs none.
fn each_step<'t>(trace: &'t Trace, mut see: impl FnMut(Option<u32>, &'t PackedEvent)) {
    let mut tasks = Tasks::new(trace);
    trace.steps.iter().for_each(|step| see(tasks.step(trace, step), step));
}

/// Returns whether a call maps code of a file.
fn maps_library(kind: &Kind) -> bool {
    matches!(kind, Kind::Mmap { prot, flags, .. }
        if prot.0 & Prot::EXEC != 0 && flags.0 & MapFlags::ANON == 0)
}
