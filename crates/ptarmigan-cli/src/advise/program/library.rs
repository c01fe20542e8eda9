//! Counts the large pages that the library has in the recording as it is.
//!
//! `huge` is a model of Linux: it writes the recording anew, and the replay has small pages. Here
//! spaces have large pages in all private anonymous memory but stacks, and no event is changed. A
//! fault for which a large page has made room finds its page mapped.
use crate::advise::advice::{LargeFigures, Variant};
use crate::advise::figures::Figures;
use crate::advise::measure::{Measure, Side};
use ptarmigan_replay::{CountedMachine, CountedRun, HugeFaults, SoloTrace, Trace};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;

/// Replays the recording once with large pages. Returns the counts, as sentences and as a variant.
/// Large pages take memory that the program does not touch: if it runs out, the sentence says so,
/// and there is no variant.
pub fn count(recorded: &SoloTrace, whole: &Figures, measure: &Measure) -> (String, Option<Variant>) {
    measure.say("replaying with large pages of the library");
    let trace = SoloTrace::new(Trace { huge: HugeFaults::Always, ..recorded.trace().clone() });
    let on = CountedMachine { large_pages: true, ..measure.usual };
    match measure.once(Side { trace: &trace, on }) {
        Ok(run) => {
            let (sentence, variant) = told(&run, whole);
            (sentence, Some(variant))
        }
        Err(why) => (format!(" Large pages of the library were not counted: {}.", why.message()), None),
    }
}

/// Puts the counts of a replay into words, beside those of the replay without large pages.
fn told(run: &CountedRun, whole: &Figures) -> (String, Variant) {
    let figures = Figures::of(&[*run]);
    let large = LargeFigures {
        mapped: run.large.mapped,
        splits: run.large.splits,
        faults_spared: figures.faults_found as i64 - whole.faults_found as i64,
        tables_peak_with_reserve: run.large.peak_with_reserve,
    };
    let found = match large.faults_spared {
        // Two CPUs fault on one page, and only one of them maps it: rarer with large pages.
        lost @ ..=-1 => format!("{} fewer find", several(lost.unsigned_abs(), "fault")),
        1 => "1 fault finds".to_owned(),
        spared @ (0 | 2..) => format!("{} find", several(spared.unsigned_abs(), "fault")),
    };
    let sentence = format!(
        " Counted in the library, with large pages wherever they fit, in sparse regions too: faults map {}, \
         {found} their page mapped, and {} {} made. It makes {} instead of {}, and has at most {} at once \
         instead of {}, or {} with those reserved for splits.",
        several(large.mapped, "large page"),
        several(large.splits, "split"),
        if large.splits == 1 { "is" } else { "are" },
        several(figures.tables_made, "table"),
        Count(whole.tables_made),
        Count(figures.tables_peak),
        Count(whole.tables_peak),
        Count(large.tables_peak_with_reserve),
    );
    let variant = Variant::new("large pages of the library in all areas", &figures);
    (sentence, Variant { large: Some(large), ..variant })
}
