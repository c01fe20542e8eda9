//! Orders advice by the time that it saves, and rejects advice about a small cause while a larger one
//! has none.
use super::advice::{Advice, Rejected, To};
use super::causes::Causes;
use ptarmigan_term::{Count, Time};

/// Kinds of advice that save memory for tables, not time.
const MEMORY: [&str; 3] = ["sparse-layout", "arenas", "empty-tables"];

/// Returns the causes that a kind of advice is about, by their names. `None` if it may be about any.
fn about(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "huge-pages" => &["fault", "exit"],
        "shared-memory" => &["fault", "fork", "exit"],
        "vfork" => &["fork", "execve", "exit", "fault"],
        "fork-memory" => &["fork", "exit", "fault"],
        "pooler" => &["fork", "exit", "fault", "execve"],
        kind if MEMORY.contains(&kind) => &[],
        _ => return None,
    })
}

/// Orders advice: by seconds saved, then by the part of the whole, and advice that may be a loss
/// last. Moves advice about a small cause to `rejected`.
pub fn rank(advice: &mut Vec<Advice>, rejected: &mut Vec<Rejected>, causes: &Causes) {
    for one in advice.iter_mut().filter(|one| one.to == To::Program) {
        let part = one.saved.faults as f64 / one.without.faults.max(1) as f64;
        let of_faults = causes.fault_seconds.filter(|_| part > 0.0).map(|all| all * part);
        one.details.seconds = one.details.seconds.or(of_faults);
    }
    if let Some((kind, count, seconds)) = unexplained(advice, causes) {
        let small = |one: &mut Advice| {
            one.to == To::Program
                && !MEMORY.contains(&one.kind)
                && about(one.kind).is_some_and(|kinds| causes.seconds(kinds) < seconds)
        };
        for one in advice.extract_if(.., small) {
            let own = Time::from_secs(causes.seconds(about(one.kind).unwrap_or_default()));
            let reason = format!(
                "{}: this is about {own}, while {} {kind} take {} and no advice is about them: look there \
                 first",
                one.title,
                Count(count),
                Time::from_secs(seconds)
            );
            rejected.push(Rejected { kind: one.kind, to: To::Program, measured: true, reason });
        }
    }
    let seconds = |one: &Advice| one.details.seconds.unwrap_or(0.0);
    advice.sort_by(|a, b| {
        let certain = a.details.uncertain.cmp(&b.details.uncertain);
        let time = || seconds(b).total_cmp(&seconds(a));
        certain.then_with(time).then_with(|| b.value.total_cmp(&a.value))
    });
}

/// Returns the kind of the largest cause that no piece of advice is about, with its count and
/// seconds. `None` if no times are known.
fn unexplained(advice: &[Advice], causes: &Causes) -> Option<(&'static str, u64, f64)> {
    let mut explained = Vec::new();
    for one in advice.iter().filter(|one| one.to == To::Program) {
        explained.extend(about(one.kind)?);
    }
    causes.largest_but(&explained)
}

/// Returns whether a cause that no piece of advice is about has more time than all of the advice
/// saves.
pub fn leaves_more(advice: &[Advice], causes: &Causes) -> bool {
    let certain: f64 =
        advice.iter().filter(|one| !one.details.uncertain).filter_map(|one| one.details.seconds).sum();
    unexplained(advice, causes).is_some_and(|(_, _, seconds)| seconds > certain)
}
