//! Whether caching of table pages pays, and with how large magazines and how large a budget.
//!
//! Magazines are tried from the smallest on, then budgets from the largest on. The choice is the
//! smallest of each with which no more than a hundredth of the allocations more leave the CPU's own
//! lists than with the usual settings. It is compared with no caching at all. Caching pays if that
//! takes a hundredth more time, and the allocator clears a hundredth more pages.
use super::super::advice::{Advice, Details, Rejected, To, Variant, Verdict};
use super::super::figures::{Figures, LEAST_SHARE, Saved, percent};
use super::super::measure::{Compared, Measure, Side};
use ptarmigan_replay::{CountedMachine, SoloTrace};
use ptarmigan_term::Count;
use ptarmigan_term::Failure;
use ptarmigan_term::words::several;

const KIND: &str = "caching";
/// Sizes of magazines that are tried, the smallest first.
const MAGAZINES: [usize; 4] = [4, 8, 16, 32];
/// The least budget that is tried, in pages.
const LEAST_BUDGET: u64 = 8;

/// Returns how many allocations leave the CPU's own lists: for the depot or for the allocator.
fn leave(figures: &Figures) -> u64 {
    figures.misses + figures.refills
}

/// Returns whether settings are about as good as the usual ones.
fn as_good(figures: &Figures, usual: &Figures) -> bool {
    leave(figures) <= leave(usual) + usual.tables_made / 100
}

/// Returns the settings as a kernel is given them.
fn settings(on: &CountedMachine) -> String {
    let budget = on.budget.map_or(String::new(), |pages| format!(", budget of {pages} pages"));
    format!("quicklist=on,magazine={}{budget}", on.magazine)
}

/// Compares replays with and without caching.
pub fn advise(recorded: &SoloTrace, measure: &Measure) -> Result<Verdict, Failure> {
    measure.say("replaying with and without caching");
    let usual = measure.usual;
    let mut variants = Vec::new();
    let chosen = choose(usual, |on| {
        let figures = Figures::of(&[measure.once(Side { trace: recorded, on })?]);
        variants.push(Variant::new(settings(&on), &figures));
        Ok(figures)
    })?;
    let off = Side { trace: recorded, on: CountedMachine { magazine: 0, ..usual } };
    let Compared { without, with, saved } = measure.compare(off, Side { trace: recorded, on: chosen })?;
    Ok(verdict(chosen, without, with, saved, variants))
}

/// Returns the smallest settings that are about as good as the usual ones. `replay` tries settings.
fn choose(
    usual: CountedMachine,
    mut replay: impl FnMut(CountedMachine) -> Result<Figures, Failure>,
) -> Result<CountedMachine, Failure> {
    let most = replay(usual)?;
    let mut chosen = (usual, most.clone());
    for magazine in MAGAZINES {
        let on = CountedMachine { magazine, ..usual };
        let figures = replay(on)?;
        if as_good(&figures, &most) {
            chosen = (on, figures);
            break;
        }
    }
    let mut pages = chosen.1.cached_peak;
    while pages / 2 >= LEAST_BUDGET {
        pages /= 2;
        let on = CountedMachine { budget: Some(pages.min(u64::from(u32::MAX)) as u32), ..chosen.0 };
        let figures = replay(on)?;
        if !as_good(&figures, &most) {
            break;
        }
        chosen = (on, figures);
    }
    Ok(chosen.0)
}

fn verdict(
    on: CountedMachine,
    without: Figures,
    with: Figures,
    saved: Saved,
    variants: Vec<Variant>,
) -> Verdict {
    let spared = without.misses.saturating_sub(with.misses);
    let share = spared as f64 / (without.misses as f64).max(1.0);
    let pages = format!(
        "of {} that the allocator clears, it spares {} ({})",
        several(without.misses, "page"),
        Count(spared),
        percent(share)
    );
    if share < LEAST_SHARE || saved.work_share < LEAST_SHARE {
        let time = match saved.work_share {
            share if share > 0.0 => format!("{} of the replay's time", percent(share)),
            share if share < 0.0 => format!("takes {} more of the replay's time", percent(-share)),
            _ => "no time that the replays would show".to_owned(),
        };
        let reason = if share >= LEAST_SHARE && saved.work_share == 0.0 {
            format!("caching is not shown to pay: {pages}, and no difference of times was found")
        } else {
            format!("caching does not pay: {pages}, and {time}; quicklist=off keeps nothing")
        };
        return Verdict::Not(Rejected { kind: KIND, to: To::Kernel, measured: true, reason });
    }
    let usual = variants.first().map_or(0, |usual| usual.cached_peak);
    Verdict::Advised(Box::new(Advice {
        kind: KIND,
        to: To::Kernel,
        title: format!("cache table pages: {}", settings(&on)),
        figure: format!(
            "Caching pays: {pages}. {} Keeps {} pages at the most, where the usual settings keep {}.",
            saved.sentence(&without),
            Count(with.cached_peak),
            Count(usual),
        ),
        how: "the boot parameter as above; ListsConfig::fixed_budget for the budget.".to_owned(),
        not_measured: "a kernel's own allocator, which may be slower or faster than the library's; several \
                       CPUs that want pages at once; other programs beside this one."
            .to_owned(),
        value: saved.work_share,
        without,
        with,
        saved,
        details: Details::default(),
        linux: None,
        variants,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptarmigan_replay::CountedRun;

    fn figures(run: CountedRun) -> Figures {
        Figures::of(&[run])
    }

    /// Compares a replay without caching, which clears 10,000 pages, with one that clears `misses`
    /// and takes `share` less of the time.
    fn judged(misses: u64, share: f64) -> Result<Advice, String> {
        let run = |misses, processor_ns, cached| {
            figures(CountedRun { misses, processor_ns, cached, made: 10_000, ..CountedRun::default() })
        };
        let (without, with) = (run(10_000, 1e6, 0), run(misses, 1e6 * (1.0 - share), 40));
        let saved = Saved::between(&without, &with);
        let on = CountedMachine::usual(1 << 30);
        let variants = vec![Variant::new("usual", &run(100, 1e6, 124))];
        match verdict(on, without, with, saved, variants) {
            Verdict::Advised(advice) => Ok(*advice),
            Verdict::Not(Rejected { kind, measured, reason, .. }) => {
                assert!(kind == "caching" && measured, "{reason}");
                Err(reason)
            }
        }
    }

    #[test]
    fn caching_pays_from_1_percent_of_pages_and_of_time() {
        let advice = judged(2_500, 0.2).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(
            advice.figure.starts_with(
                "Caching pays: of 10,000 pages that the allocator clears, it spares 7,500 (75 %). Saves 20 % of \
                 the replay's time."
            ),
            "{}",
            advice.figure
        );
        assert!(advice.figure.ends_with("Keeps 40 pages at the most, where the usual settings keep 124."));
        assert!((advice.value - 0.2).abs() < 1e-9, "{}", advice.value);
        assert!(judged(9_900, 0.011).is_ok(), "just enough");
    }

    #[test]
    fn caching_within_the_noise_is_not_called_useless() {
        let reason = judged(100, 0.0).err().unwrap_or_else(|| panic!("advised"));
        assert_eq!(
            reason,
            "caching is not shown to pay: of 10,000 pages that the allocator clears, it spares 9,900 (99 %), and \
             no difference of times was found"
        );
    }

    #[test]
    fn caching_does_not_pay_without_pages_spared_or_without_time() {
        for (misses, share, says) in [
            (9_901, 0.5, "spares 99 (1.0 %), and 50 % of the replay's time"),
            (10_000, 0.5, "spares 0 (0 %)"),
            (12_000, 0.5, "spares 0 (0 %)"),
            (100, 0.009, "spares 9,900 (99 %), and 0.9 % of the replay's time"),
            (10_000, 0.0, "spares 0 (0 %), and no time that the replays would show"),
            (100, -0.25, "spares 9,900 (99 %), and takes 25 % more of the replay's time"),
        ] {
            let reason = judged(misses, share).err().unwrap_or_else(|| panic!("{misses} {share}: advised"));
            assert!(reason.starts_with("caching does not pay: "), "{reason}");
            assert!(reason.contains(says), "{says} is not in {reason}");
        }
    }

    /// Chooses settings for a recording that makes 10,000 tables, of which at most 100 are cached.
    /// Magazines of `magazine` pages and a budget of `budget` pages are enough.
    fn chosen(magazine: usize, budget: u64) -> (usize, Option<u32>, Vec<String>) {
        let mut tried = Vec::new();
        let on = choose(CountedMachine::usual(1 << 30), |on| {
            tried.push(settings(&on));
            let good = on.magazine >= magazine && on.budget.is_none_or(|pages| u64::from(pages) >= budget);
            // The usual settings come first. One more than a hundredth of the tables is too many.
            let (misses, refills) = match (tried.len(), good) {
                (1, _) => (50, 0),
                (_, true) => (90, 60),
                (_, false) => (90, 61),
            };
            Ok(figures(CountedRun { misses, refills, made: 10_000, cached: 100, ..CountedRun::default() }))
        });
        let on = on.unwrap_or_else(|why| panic!("{}", why.message()));
        (on.magazine, on.budget, tried)
    }

    #[test]
    fn the_smallest_equal_magazine_then_budget_is_chosen() {
        let usual = CountedMachine::usual(1 << 30).magazine;
        assert_eq!(chosen(8, 20).0, 8);
        assert_eq!(chosen(8, 20).1, Some(25));
        assert_eq!(chosen(4, 0).1, Some(12), "no budget below 8 pages is tried");
        assert_eq!(chosen(4, 101).1, None, "the usual budget");
        let (magazine, budget, tried) = chosen(1000, 0);
        assert_eq!((magazine, budget), (usual, None), "{tried:?}");
        assert_eq!(tried[1..5], [4, 8, 16, 32].map(|n| format!("quicklist=on,magazine={n}")));
    }
}
