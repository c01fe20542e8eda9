//! A figure of the recording, and its comparison with that of another.
use crate::report::words;

/// A figure, and how two of its kind are compared.
pub(super) struct Fact {
    pub(super) what: &'static str,
    /// Empty if the recording does not have it.
    pub(super) value: String,
    pub(super) number: Compare,
    pub(super) better: Better,
    /// Stands for an empty value beside another recording's.
    pub(super) absent: &'static str,
}

impl Fact {
    pub(super) fn is_there(&self) -> bool {
        !self.value.is_empty()
    }
}

/// How a figure is compared.
#[derive(Clone, Copy)]
pub(super) enum Compare {
    /// By how many times it is the other.
    Ratio(f64),
    /// As [`Ratio`](Self::Ratio), if the axes of both traces are alike.
    OnAxis(f64),
    /// A share of a whole: by the difference of both.
    Share(f64),
    No,
}

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
    /// It depends.
    Neither,
}

/// Returns how the second of two figures differs from the first, and whether that is better.
pub(super) fn difference(a: &Fact, b: &Fact, alike: bool) -> String {
    let (text, differs, less) = match (a.number, b.number) {
        (Compare::OnAxis(_), _) if !alike => return "–".to_owned(),
        (Compare::Ratio(a), Compare::Ratio(b)) | (Compare::OnAxis(a), Compare::OnAxis(b)) => {
            (words::times(a, b), a > 0.0 && (b / a - 1.0).abs() >= 0.01, b < a)
        }
        (Compare::Share(a), Compare::Share(b)) => {
            let points = (b - a) * 100.0;
            let sign = if points < 0.0 { "−" } else { "+" };
            (format!("{sign}{:.1} points", points.abs()), points.abs() >= 1.0, b < a)
        }
        _ => return "–".to_owned(),
    };
    let hint = match (a.better, less) {
        (Better::Neither, _) => "",
        _ if !differs => "",
        (Better::Less, true) | (Better::More, false) => ", better",
        (Better::Less, false) | (Better::More, true) => ", worse",
    };
    text + hint
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(a: Compare, b: Compare, better: Better, alike: bool) -> String {
        let fact = |number| Fact { what: "", value: String::new(), number, better, absent: "" };
        difference(&fact(a), &fact(b), alike)
    }

    #[test]
    fn a_difference_says_if_it_is_better_and_shares_are_no_ratios() {
        let ratio = |a, b, better| said(Compare::Ratio(a), Compare::Ratio(b), better, true);
        assert_eq!(ratio(100.0, 50.0, Better::Less), "0.50 ×, better");
        assert_eq!(ratio(100.0, 150.0, Better::Less), "1.50 ×, worse");
        assert_eq!(ratio(1000.0, 1005.0, Better::Less), "1.00 ×", "as good as equal");
        assert_eq!(ratio(1.0, 76.0, Better::Neither), "76.00 ×");
        assert_eq!(ratio(0.0, 3.0, Better::Less), "–");
        let share = |a, b, better| said(Compare::Share(a), Compare::Share(b), better, true);
        assert_eq!(share(0.017, 0.33, Better::Less), "+31.3 points, worse");
        assert_eq!(share(0.5, 0.25, Better::More), "−25.0 points, worse");
        assert_eq!(share(1.0, 1.0, Better::More), "+0.0 points");
        let on_axis = |alike| said(Compare::OnAxis(2.0), Compare::OnAxis(1.0), Better::Less, alike);
        assert_eq!([true, false].map(on_axis), ["0.50 ×, better", "–"]);
        assert_eq!(said(Compare::Share(1.0), Compare::No, Better::More, true), "–");
    }
}
