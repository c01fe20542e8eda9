//! Orders advice by the time that it saves, and rejects advice about a small cause while a larger
//! one has no advice.
use super::advice::{Advice, Rejected, To};
use super::causes::{Causes, NOMINAL};
use ptarmigan_term::{Count, Time};

/// Kinds of advice of which only a part of the seconds counts: huge pages have prices of other
/// memory, and memory that is kept is not there for others.
const PRICED: [&str; 2] = ["huge-pages", "churn"];
/// That part.
const PRICED_PART: f64 = 0.8;
/// An upper bound of which a smaller part is likely stands behind other advice.
const UNLIKELY: f64 = 0.2;
/// Kinds of advice that save memory for tables, not time.
const MEMORY: [&str; 3] = ["sparse-layout", "arenas", "empty-tables"];

/// Returns the names of the causes that a kind of advice is about. `None` if these may be any.
fn about(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "huge-pages" => &["fault", "exit"],
        "shared-memory" => &["fault", "fork", "exit"],
        "vfork" => &["fork", "execve", "exit", "fault"],
        "fork-memory" => &["fork", "exit", "fault"],
        "protect" => &["mprotect"],
        "churn" => &["fault", "mmap", "munmap", "madvise", "brk"],
        "growth" => &["fault", "mmap", "munmap"],
        "sharing-lost" => &["fault"],
        "subshells" => &["fork", "exit", "fault"],
        "userfault" => &["fault"],
        "starts" => &["execve", "exit", "fault", "mmap"],
        "pooler" => &["fork", "exit", "fault", "execve"],
        kind if MEMORY.contains(&kind) => &[],
        _ => return None,
    })
}

/// Orders advice: by seconds saved, then by the part of the whole; advice that saves memory alone
/// behind upper bounds; advice that may be a loss last. Moves advice about a small cause to
/// `rejected`.
pub fn rank(advice: &mut Vec<Advice>, rejected: &mut Vec<Rejected>, causes: &Causes) {
    for one in advice.iter_mut().filter(|one| one.to != To::Kernel) {
        let part = one.saved.faults as f64 / one.without.faults.max(1) as f64;
        let of_faults = causes.fault_seconds.filter(|_| part > 0.0).map(|all| all * part);
        // Huge pages have prices of their own, where they were measured.
        if one.linux.is_none() {
            one.details.seconds =
                one.details.seconds.or(of_faults.map(|_| 0.0)).map(|s| s + of_faults.unwrap_or(0.0));
        } else if let (Some(linux), true) = (&one.linux, causes.timed && causes.fault_seconds.is_some()) {
            // Prices are measured on other memory, maybe on a busier machine: no more can be saved
            // than the same part of what was recorded.
            let recorded = causes.seconds(&["fault", "fork", "execve", "exit"]) * 1e9;
            let part = (recorded / linux.without_ns).min(1.0);
            one.details.seconds = one.details.seconds.map(|seconds| seconds * part);
        }
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
    let nominal = if causes.fault_seconds.is_none() { NOMINAL } else { 0.0 };
    let seconds = |one: &Advice| {
        let seconds = one.details.seconds.unwrap_or(0.0) + one.saved.faults.max(0) as f64 * nominal;
        let part = if PRICED.contains(&one.kind) { PRICED_PART } else { 1.0 };
        seconds * one.details.likely.unwrap_or(part)
    };
    let bounds = advice.iter().any(|one| one.details.likely.is_some());
    advice.sort_by(|a, b| {
        let unlikely = |one: &Advice| one.details.likely.is_some_and(|likely| likely < UNLIKELY);
        let late = |one: &Advice| (bounds && MEMORY.contains(&one.kind), unlikely(one));
        // A change of the machine is for somebody else.
        let class = |one: &Advice| (one.to == To::Machine, one.details.uncertain, late(one));
        let time = || seconds(b).total_cmp(&seconds(a));
        class(a).cmp(&class(b)).then_with(time).then_with(|| b.value.total_cmp(&a.value))
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

#[cfg(test)]
mod tests {
    use super::super::advice::Details;
    use super::super::causes::WorkCause;
    use super::super::figures::{Figures, Saved};
    use super::super::program::work::LinuxWork;
    use super::*;
    use ptarmigan_replay::CountedRun;
    use ptarmigan_replay::model::page_prices::PagePrices;

    fn advice(kind: &'static str, seconds: Option<f64>, value: f64) -> Advice {
        let without = Figures::of(&[CountedRun::default()]);
        Advice {
            kind,
            to: To::Program,
            title: kind.to_owned(),
            figure: String::new(),
            how: String::new(),
            not_measured: String::new(),
            value,
            with: without.clone(),
            saved: Saved::between(&without, &without),
            without,
            details: Details { seconds, ..Details::default() },
            linux: None,
            variants: Vec::new(),
        }
    }

    fn causes(seconds: &[(&'static str, f64)]) -> Causes {
        let one = |(kind, seconds): &(&'static str, f64)| WorkCause {
            kind,
            program: "app".to_owned(),
            count: 1000,
            seconds: Some(*seconds),
            mapping: None,
            function: None,
            longest_clock_seconds: None,
            copies: 0,
            only_end: 0,
            pages_each: 0,
            attempt: String::new(),
        };
        Causes {
            all: seconds.iter().map(one).collect(),
            hardly_any: false,
            fault_seconds: Some(1.0),
            timed: true,
        }
    }

    fn order(mut advice: Vec<Advice>, causes: &Causes) -> (Vec<&'static str>, Vec<String>) {
        let mut rejected = Vec::new();
        rank(&mut advice, &mut rejected, causes);
        (advice.iter().map(|one| one.kind).collect(), rejected.into_iter().map(|one| one.reason).collect())
    }

    #[test]
    fn advice_is_ordered_by_seconds_and_a_possible_loss_is_last() {
        let mut uncertain = advice("huge-pages", Some(9.0), 0.99);
        uncertain.details.uncertain = true;
        let all = vec![
            uncertain,
            advice("sparse-layout", None, 0.9),
            advice("vfork", Some(0.2), 0.1),
            advice("empty-tables", None, 0.95),
            advice("pooler", Some(0.3), 0.05),
        ];
        let (kinds, rejected) = order(all, &Causes::default());
        assert_eq!(kinds, ["pooler", "vfork", "empty-tables", "sparse-layout", "huge-pages"]);
        assert!(rejected.is_empty());
    }

    #[test]
    fn an_upper_bound_stands_before_advice_that_saves_memory_alone() {
        let of = |likely| {
            let mut bound = advice("sharing-lost", Some(0.1), 0.2);
            bound.details.likely = Some(likely);
            let all = vec![advice("sparse-layout", Some(1.0), 0.9), bound, advice("vfork", Some(0.04), 0.1)];
            order(all, &Causes::default()).0
        };
        assert_eq!(of(0.5), ["sharing-lost", "vfork", "sparse-layout"]);
        assert_eq!(of(0.1), ["vfork", "sharing-lost", "sparse-layout"]);
    }

    #[test]
    fn recorded_seconds_stand_before_about_as_many_by_prices() {
        let of = |huge: f64| {
            let all = vec![advice("huge-pages", Some(huge), 0.9), advice("protect", Some(1.0), 0.1)];
            order(all, &Causes::default()).0
        };
        assert_eq!(of(1.1), ["protect", "huge-pages"]);
        assert_eq!(of(1.5), ["huge-pages", "protect"]);
    }

    #[test]
    fn faults_that_are_saved_have_their_part_of_the_time() {
        let mut huge = advice("huge-pages", None, 0.9);
        (huge.without.faults, huge.saved.faults) = (1000, 400);
        let mut all = vec![huge];
        rank(&mut all, &mut Vec::new(), &causes(&[("fault", 1.0)]));
        assert_eq!(all[0].details.seconds, Some(0.4));
    }

    #[test]
    fn prices_save_no_more_than_their_part_of_the_recorded_time() {
        let of = |recorded| {
            let mut huge = advice("huge-pages", Some(0.9), 0.9);
            huge.linux = Some(LinuxWork {
                without_ns: 1e9,
                with_ns: 0.1e9,
                saved_ns: [0.8e9, 1e9],
                share: Some(0.9),
                prices: PagePrices::default(),
            });
            let mut all = vec![huge];
            rank(&mut all, &mut Vec::new(), &causes(&[("fault", recorded / 2.0), ("fork", recorded / 2.0)]));
            all[0].details.seconds
        };
        assert_eq!((of(0.5), of(2.0)), (Some(0.45), Some(0.9)));
    }

    #[test]
    fn a_small_cause_gets_no_advice_while_a_larger_one_has_none() {
        let of =
            |kind| order(vec![advice(kind, Some(0.1), 0.9)], &causes(&[("fault", 0.5), ("munmap", 2.0)]));
        let (kinds, rejected) = of("huge-pages");
        assert!(kinds.is_empty());
        let reason = "huge-pages: this is about 500 ms, while 1,000 munmap take 2 s and no advice is about \
                      them: look there first";
        assert_eq!(rejected, [reason]);
        // Memory of tables is another matter, and other kinds may be about anything.
        assert_eq!(of("sparse-layout").0, ["sparse-layout"]);
        assert_eq!(of("another").0, ["another"]);
        let larger = causes(&[("fault", 2.0), ("munmap", 0.5)]);
        assert_eq!(order(vec![advice("huge-pages", Some(0.1), 0.9)], &larger).0, ["huge-pages"]);
    }

    #[test]
    fn a_cause_that_takes_more_than_is_saved_is_told() {
        let all = [advice("sparse-layout", None, 0.9)];
        assert!(leaves_more(&all, &causes(&[("munmap", 0.5)])));
        assert!(!leaves_more(&all, &Causes::default()), "no times are known");
        let all = [advice("vfork", Some(0.6), 0.9)];
        assert!(!leaves_more(&all, &causes(&[("munmap", 0.5)])));
    }
}
