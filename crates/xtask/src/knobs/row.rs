//! Compares the saving that is predicted for a program with the measured one.
use super::list::Knob;
use serde::Serialize;

/// The most points of the baseline that a prediction may be off.
pub const WITHIN: f64 = 10.0;

/// The counts of one recording: faults, or requests between CPUs.
#[derive(Clone, Copy, Debug)]
pub struct KnobCounts {
    /// With the knob as it was.
    pub before: f64,
    /// The saving that this recording predicts.
    pub predicted: f64,
    /// With the knob turned.
    pub after: f64,
}

/// One program and one knob.
#[derive(Clone, Debug, Serialize)]
pub struct KnobComparison {
    /// The knob.
    pub knob: Knob,
    /// The program's name.
    pub program: String,
    /// The median without the knob.
    pub baseline: f64,
    /// The median of the predicted savings.
    pub predicted: f64,
    /// The measured saving: the difference of the medians.
    pub measured: f64,
    /// The difference of both, in percent of the baseline.
    pub error: f64,
    /// The largest difference of two recordings without the knob, in percent of the baseline.
    pub spread: f64,
}

/// Returns the median. The list must not be empty.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Rounds to one decimal.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

impl KnobComparison {
    /// Compares the recordings of a program, of which there must be one at least.
    pub fn new(knob: Knob, program: &str, counts: &[KnobCounts]) -> Self {
        let before = || counts.iter().map(|one| one.before);
        let baseline = median(before());
        let measured = baseline - median(counts.iter().map(|one| one.after));
        let predicted = median(counts.iter().map(|one| one.predicted));
        let percent = |part: f64| rounded(100.0 * part / baseline.max(1.0));
        let range = before().fold(f64::NEG_INFINITY, f64::max) - before().fold(f64::INFINITY, f64::min);
        KnobComparison {
            knob,
            program: program.to_owned(),
            baseline,
            predicted: rounded(predicted),
            measured,
            error: percent((predicted - measured).abs()),
            spread: percent(range),
        }
    }

    /// Returns whether the prediction is near enough.
    pub fn holds(&self) -> bool {
        self.error <= WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_part_of_the_baseline() {
        let one = |before, predicted, after| KnobCounts { before, predicted, after };
        let counts = [one(1000.0, 400.0, 700.0), one(1010.0, 420.0, 690.0), one(990.0, 90.0, 900.0)];
        let row = KnobComparison::new(Knob::Blocks, "a", &counts);
        assert_eq!((row.baseline, row.predicted, row.measured), (1000.0, 400.0, 300.0));
        assert_eq!((row.error, row.spread, row.holds()), (10.0, 2.0, true));
        assert!(!KnobComparison { error: 10.1, ..row }.holds());
        // A knob that makes it worse than the prediction says.
        let worse = KnobComparison::new(Knob::Pin, "a", &[one(100.0, 0.0, 150.0)]);
        assert_eq!((worse.measured, worse.error), (-50.0, 50.0));
        let idle = KnobComparison::new(Knob::Pin, "a", &[one(0.0, 0.0, 0.0)]);
        assert_eq!((idle.error, idle.spread), (0.0, 0.0));
    }
}
