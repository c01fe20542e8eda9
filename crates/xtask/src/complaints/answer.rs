//! Reads the advice that the command gives, and compares it with the answer that is right.
use super::table::{Case, NONE};
use serde::Deserialize;

/// The result of `--check` for a prediction that holds.
const HELD: &str = "held";
/// The result for a program that gets the same advice again.
const NOT_CARRIED_OUT: &str = "not_carried_out";
/// Whom advice on settings of the machine is for: no answer to a complaint about a program.
const MACHINE: &str = "machine";
/// The figure that is a time, which another machine does not have.
const TIME: &str = "fork_seconds";

/// The document of `ptarmigan advise --json`, as far as it is looked at.
#[derive(Debug, Deserialize)]
pub struct Document {
    /// One answer for each trace.
    pub traces: Vec<Answer>,
}

/// The advice from one recording.
#[derive(Debug, Deserialize)]
pub struct Answer {
    whole: Counts,
    advice: Vec<Piece>,
    #[serde(default)]
    check: Option<Comparison>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    faults: u64,
}

#[derive(Debug, Deserialize)]
struct Piece {
    kind: String,
    #[serde(default)]
    to: String,
    title: String,
    figure: String,
    how: String,
    #[serde(default)]
    expect: Vec<Predicted>,
}

/// A figure without and with the advice, and as the second recording has it.
#[derive(Debug, Deserialize)]
struct Predicted {
    figure: String,
    with: f64,
    #[serde(default)]
    recorded: Option<f64>,
    #[serde(default)]
    result: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Comparison {
    advice: Vec<Checked>,
}

#[derive(Debug, Deserialize)]
struct Checked {
    result: String,
    #[serde(default)]
    figures: Vec<Predicted>,
}

impl Answer {
    /// The first piece for the program, with its place in the list.
    fn piece(&self) -> Option<(usize, &Piece)> {
        self.advice.iter().enumerate().find(|(_, piece)| piece.to != MACHINE)
    }

    /// The comparison of that piece with the second recording: comparisons come in the order of the
    /// pieces.
    fn checked(&self) -> Option<&Checked> {
        self.check.as_ref()?.advice.get(self.piece()?.0)
    }

    /// The kind of the first piece for the program, or [`NONE`].
    pub fn first(&self) -> &str {
        self.piece().map_or(NONE, |(_, piece)| &piece.kind)
    }

    /// The first piece as the command prints it: the change and its figure.
    pub fn line(&self) -> Option<String> {
        self.piece().map(|(_, piece)| format!("{}: {}", piece.title, piece.figure))
    }

    /// Page faults of the recording.
    pub fn faults(&self) -> u64 {
        self.whole.faults
    }

    /// Page faults that the first piece predicts, of the programs that it is for.
    pub fn predicted(&self) -> Option<u64> {
        faults(&self.piece()?.1.expect).map(|figure| figure.with as u64)
    }

    /// Page faults of these programs in the second recording.
    pub fn recorded(&self) -> Option<u64> {
        faults(&self.checked()?.figures)?.recorded.map(|faults| faults as u64)
    }

    /// The result of the comparison of the first piece with the second recording.
    pub fn result(&self) -> Option<&str> {
        Some(&self.checked()?.result)
    }

    /// Whether the prediction of the first piece holds: all of its counts do, or, if it predicts a
    /// time alone, the cured program does not get it again.
    fn is_held(&self) -> bool {
        let Some(checked) = self.checked() else { return false };
        let mut counts = checked.figures.iter().filter(|figure| figure.figure != TIME).peekable();
        match counts.peek() {
            None => checked.result != NOT_CARRIED_OUT,
            Some(_) => counts.all(|figure| figure.result.as_deref() == Some(HELD)),
        }
    }

    /// Returns the ways in which this is not the right answer to `case`.
    pub fn wrong(&self, case: &Case) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.first() != case.first {
            wrong.push(format!("{} comes first, {} is right", self.first(), case.first));
        }
        let come = |kind: &&String| self.advice.iter().any(|piece| piece.kind == **kind);
        wrong.extend(case.never.iter().filter(come).map(|kind| format!("{kind} must not come")));
        if let (Some(says), Some((_, piece))) = (&case.says, self.piece())
            && !piece.how.contains(says.as_str())
        {
            wrong.push(format!("the way to do it does not say {says}"));
        }
        if case.held && self.first() == case.first && !self.is_held() {
            let result = self.result().unwrap_or("not compared").replace('_', " ");
            wrong.push(format!("the prediction: {result}"));
        }
        wrong
    }
}

fn faults(figures: &[Predicted]) -> Option<&Predicted> {
    figures.iter().find(|figure| figure.figure == "faults")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kinds: &[&str], result: &str) -> Answer {
        let advice: Vec<_> = kinds
            .iter()
            .map(|kind| {
                serde_json::json!({ "kind": kind, "title": "keep it", "figure": "saves 9.", "how": "by mallopt",
                    "expect": [{ "figure": "faults", "without": 10.0, "with": 1.0 }] })
            })
            .collect();
        let figures = serde_json::json!([
            { "figure": "fork_seconds", "without": 10.0, "with": 1.0, "recorded": 9.0, "result": "missed" },
            { "figure": "faults", "without": 10.0, "with": 1.0, "recorded": 2.0, "result": result },
        ]);
        let check = serde_json::json!({ "advice": [{ "result": result, "figures": figures }] });
        let whole = serde_json::json!({ "faults": 10 });
        serde_json::from_value(serde_json::json!({ "whole": whole, "advice": advice, "check": check }))
            .unwrap()
    }

    #[test]
    fn the_right_answer_has_its_kind_first_and_holds() {
        let case =
            Case { first: "churn".into(), held: true, says: Some("mallopt".into()), ..Case::default() };
        let right = answer(&["churn", "huge-pages"], "held");
        assert_eq!(right.wrong(&case), Vec::<String>::new());
        assert_eq!((right.predicted(), right.recorded(), right.faults()), (Some(1), Some(2), 10));
        assert_eq!(right.line().as_deref(), Some("keep it: saves 9."));
        let missed = answer(&["churn"], "not_carried_out").wrong(&case);
        assert_eq!(missed, ["the prediction: not carried out"]);
        let strict = Case { never: vec!["huge-pages".into()], says: Some("jemalloc".into()), ..case };
        let wrong = answer(&["huge-pages", "churn"], "held").wrong(&strict);
        let expected = ["huge-pages comes first, churn is right", "huge-pages must not come"];
        assert_eq!(wrong, [&expected[..], &["the way to do it does not say jemalloc"]].concat());
    }

    #[test]
    fn a_time_need_not_hold() {
        let case = Case { first: "vfork".into(), held: true, ..Case::default() };
        let of = |result: &str| -> Answer {
            let check = serde_json::json!({ "advice": [{ "result": result, "figures": [
                { "figure": "fork_seconds", "without": 9.0, "with": 1.0, "result": result }] }] });
            let piece = serde_json::json!({ "kind": "vfork", "title": "", "figure": "", "how": "" });
            let answer = serde_json::json!({ "whole": { "faults": 1 }, "advice": [piece], "check": check });
            serde_json::from_value(answer).unwrap()
        };
        assert!(of("missed").wrong(&case).is_empty());
        assert_eq!(of("not_carried_out").wrong(&case), ["the prediction: not carried out"]);
    }

    #[test]
    fn settings_of_the_machine_are_no_answer() {
        let piece = |kind: &str, to: &str, with: f64| {
            serde_json::json!({ "kind": kind, "to": to, "title": kind, "figure": "", "how": "by mallopt",
                "expect": [{ "figure": "faults", "without": 10.0, "with": with }] })
        };
        let checked = |result: &str, recorded: f64| {
            serde_json::json!({ "result": result, "figures": [
                { "figure": "faults", "with": 1.0, "recorded": recorded, "result": result }] })
        };
        let of = |advice: Vec<serde_json::Value>| -> Answer {
            let check = serde_json::json!({ "advice": [checked("missed", 7.0), checked("held", 2.0)] });
            let whole = serde_json::json!({ "faults": 10 });
            serde_json::from_value(serde_json::json!({ "whole": whole, "advice": advice, "check": check }))
                .unwrap()
        };
        let both = of(vec![piece("pin", "machine", 9.0), piece("churn", "program", 1.0)]);
        let case =
            Case { first: "churn".into(), held: true, says: Some("mallopt".into()), ..Case::default() };
        assert_eq!(both.wrong(&case), Vec::<String>::new());
        assert_eq!((both.predicted(), both.recorded(), both.result()), (Some(1), Some(2), Some("held")));
        assert!(both.line().is_some_and(|line| line.starts_with("churn")));
        let alone = of(vec![piece("mthp", "machine", 9.0)]);
        assert_eq!((alone.first(), alone.predicted(), alone.result()), (NONE, None, None));
    }

    #[test]
    fn no_advice_is_an_answer() {
        let case = Case { first: NONE.into(), ..Case::default() };
        let nothing: Answer = serde_json::from_str(r#"{ "whole": { "faults": 3 }, "advice": [] }"#).unwrap();
        assert!(nothing.wrong(&case).is_empty() && nothing.predicted().is_none());
        assert_eq!(answer(&["vfork"], "held").wrong(&case), ["vfork comes first, none is right"]);
    }
}
