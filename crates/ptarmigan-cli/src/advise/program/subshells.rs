//! Children of shells that start no program: `$(…)`, `(…)` and parts of pipelines that run builtins
//! alone.
//!
//! A child counts if its parent is a shell and it ends without an `execve` and a task of its own.
//! The other side is the recording in which the shell does the work itself: without the fork, the
//! child, and the parent's faults on pages that the fork has write-protected.
use super::edit::Edit;
use super::share::Pages;
use crate::advise::facts::Facts;
use foldhash::{HashMap, HashSet, HashSetExt};
use ptarmigan_replay::{PackedKind, Trace};
use ptarmigan_trace::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// The subshells of one shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfShell {
    /// Forks of subshells.
    pub forks: u64,
    /// Their nanoseconds, as far as they were timed.
    pub ns: u64,
}

/// The subshells of a recording.
#[derive(Debug, Default)]
pub struct Subshells {
    /// By the program that forks, as an index of [`Facts::programs`].
    pub shells: BTreeMap<usize, OfShell>,
    /// Tasks of subshells, with the program that forks.
    children: HashMap<u32, usize>,
}

impl Subshells {
    /// Looks at a recording of which the facts are known.
    pub fn of(trace: &Trace, facts: &Facts) -> Self {
        let forks = facts.forks.values().filter(|fork| facts.programs[fork.program].is_shell());
        let forked: HashMap<u32, (usize, Option<u64>)> =
            forks.map(|fork| (fork.child, (fork.program, fork.ns))).collect();
        let (mut ended, mut busy) = (BTreeSet::new(), HashSet::new());
        for step in trace.steps.iter().filter(|step| forked.contains_key(&step.task)) {
            let PackedKind::Rare(rare) = step.what else { continue };
            match trace.rare[rare as usize] {
                Kind::Clone { .. } | Kind::Exec { .. } => drop(busy.insert(step.task)),
                Kind::Exit { .. } => drop(ended.insert(step.task)),
                _ => {}
            }
        }
        let mut found = Subshells::default();
        for task in ended.into_iter().filter(|task| !busy.contains(task)) {
            let (program, ns) = forked[&task];
            let shell = found.shells.entry(program).or_default();
            (shell.forks, shell.ns) = (shell.forks + 1, shell.ns + ns.unwrap_or_default());
            found.children.insert(task, program);
        }
        found
    }

    /// Returns the recording without the subshells of some shells.
    pub fn rewrite(&self, trace: &Trace, shells: &BTreeMap<usize, OfShell>) -> Trace {
        let gone = |task: u32| self.children.get(&task).is_some_and(|program| shells.contains_key(program));
        let (mut pages, mut edit) = (Pages::new(trace), Edit::of(trace));
        for step in &trace.steps {
            let kind = edit.kind(step);
            let forks = matches!(kind, Some(Kind::Clone { child, .. }) if gone(child));
            if !forks && !gone(step.task) && pages.step(step, kind) {
                edit.keep(step);
            }
        }
        edit.finish()
    }
}
