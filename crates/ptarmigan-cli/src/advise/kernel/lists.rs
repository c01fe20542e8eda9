//! Whether caching of table pages pays, and with how large magazines and how large a budget.
//!
//! Magazines are tried from the smallest on, then budgets from the largest on. The choice is the
//! smallest of each with which no more than a hundredth of the allocations more leave the CPU's own
//! lists than with the usual settings. It is compared with no caching at all. Caching pays if that
//! takes a hundredth more time, and the allocator clears a hundredth more pages.
use super::super::advice::{Advice, Rejected, To, Variant, Verdict};
use super::super::figures::{Figures, LEAST_SHARE, Saved, percent};
use super::super::measure::{Compared, Measure, Side};
use crate::error::Failure;
use crate::replay::{CountedMachine, CountedTrace};

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

/// What was tried.
struct Tried<'a> {
    recorded: &'a CountedTrace,
    measure: &'a Measure,
    variants: Vec<Variant>,
}

impl Tried<'_> {
    fn run(&mut self, on: CountedMachine) -> Result<Figures, Failure> {
        let figures = Figures::of(&[self.measure.once(Side { trace: self.recorded, on })?]);
        self.variants.push(Variant::new(settings(&on), &figures));
        Ok(figures)
    }
}

/// Returns the settings as a kernel is given them.
fn settings(on: &CountedMachine) -> String {
    let budget = on.budget.map_or(String::new(), |pages| format!(", budget of {pages} pages"));
    format!("quicklist=on,magazine={}{budget}", on.magazine)
}

/// Compares caching with none.
pub fn advise(recorded: &CountedTrace, measure: &Measure) -> Result<Verdict, Failure> {
    measure.say("replaying with and without caching");
    let usual = measure.usual;
    let mut tried = Tried { recorded, measure, variants: Vec::new() };
    let most = tried.run(usual)?;
    let mut chosen = (usual, most.clone());
    for magazine in MAGAZINES {
        let on = CountedMachine { magazine, ..usual };
        let figures = tried.run(on)?;
        if as_good(&figures, &most) {
            chosen = (on, figures);
            break;
        }
    }
    let mut pages = chosen.1.cached_peak;
    while pages / 2 >= LEAST_BUDGET {
        pages /= 2;
        let on = CountedMachine { budget: Some(pages.min(u64::from(u32::MAX)) as u32), ..chosen.0 };
        let figures = tried.run(on)?;
        if !as_good(&figures, &most) {
            break;
        }
        chosen = (on, figures);
    }
    let off = Side { trace: recorded, on: CountedMachine { magazine: 0, ..usual } };
    let Compared { without, with, saved } = measure.compare(off, Side { trace: recorded, on: chosen.0 })?;
    Ok(verdict(chosen.0, without, with, saved, tried.variants))
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
        "of {} pages that the allocator clears, it spares {spared} ({})",
        without.misses,
        percent(share)
    );
    if share < LEAST_SHARE || saved.work_share < LEAST_SHARE {
        let time = match saved.work_share {
            share if share > 0.0 => format!("{} of the replay's time", percent(share)),
            _ => "no time that the replays would show".to_owned(),
        };
        let reason = format!("caching does not pay: {pages}, and {time}; quicklist=off keeps nothing");
        return Verdict::Not(Rejected { kind: KIND, to: To::Kernel, measured: true, reason });
    }
    let usual = variants.first().map_or(0, |usual| usual.cached_peak);
    Verdict::Advised(Box::new(Advice {
        kind: KIND,
        to: To::Kernel,
        title: format!("cache table pages: {}", settings(&on)),
        figure: format!(
            "Caching pays: {pages}. {} Keeps {} pages at the most, where the usual settings keep {usual}.",
            saved.sentence(&without),
            with.cached_peak
        ),
        how: "the boot parameter as above; ListsConfig::fixed_budget for the budget.".to_owned(),
        not_measured: "a kernel's own allocator, which may be slower or faster than the library's; several \
                       CPUs that want pages at once; other programs beside this one."
            .to_owned(),
        value: saved.work_share,
        without,
        with,
        saved,
        variants,
    }))
}
