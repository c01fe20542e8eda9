//! Reads the advice that the command gives, and compares it with the answer that is right.
use super::table::{Case, NONE};
use serde::Deserialize;

/// The result of `--check` for a prediction that holds.
const HELD: &str = "held";

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
    check: Option<Check>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    faults: u64,
}

#[derive(Debug, Deserialize)]
struct Piece {
    kind: String,
    title: String,
    figure: String,
    how: String,
    #[serde(default)]
    expect: Vec<Figure>,
}

/// A figure without and with the advice, and as the second recording has it.
#[derive(Debug, Deserialize)]
struct Figure {
    figure: String,
    with: f64,
    #[serde(default)]
    recorded: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Check {
    advice: Vec<Checked>,
}

#[derive(Debug, Deserialize)]
struct Checked {
    result: String,
    #[serde(default)]
    figures: Vec<Figure>,
}

impl Answer {
    /// The kind of the first piece, or `none`.
    pub fn first(&self) -> &str {
        self.advice.first().map_or(NONE, |piece| &piece.kind)
    }

    /// The first piece as the command prints it: the change and its figure.
    pub fn line(&self) -> Option<String> {
        self.advice.first().map(|piece| format!("{}: {}", piece.title, piece.figure))
    }

    /// Page faults of the recording.
    pub fn faults(&self) -> u64 {
        self.whole.faults
    }

    /// Page faults that the first piece predicts, of the programs that it is for.
    pub fn predicted(&self) -> Option<u64> {
        faults(&self.advice.first()?.expect).map(|figure| figure.with as u64)
    }

    /// Page faults of these programs in the second recording.
    pub fn recorded(&self) -> Option<u64> {
        let checked = self.check.as_ref()?.advice.first()?;
        faults(&checked.figures)?.recorded.map(|faults| faults as u64)
    }

    /// The result of the comparison of the first piece with the second recording.
    pub fn result(&self) -> Option<&str> {
        Some(&self.check.as_ref()?.advice.first()?.result)
    }

    /// Returns the ways in which this is not the right answer to `case`.
    pub fn wrong(&self, case: &Case) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.first() != case.first {
            wrong.push(format!("{} comes first, {} is right", self.first(), case.first));
        }
        let come = |kind: &&String| self.advice.iter().any(|piece| piece.kind == **kind);
        wrong.extend(case.never.iter().filter(come).map(|kind| format!("{kind} must not come")));
        if let (Some(says), Some(piece)) = (&case.says, self.advice.first())
            && !piece.how.contains(says.as_str())
        {
            wrong.push(format!("the way to do it does not say {says}"));
        }
        let result = self.result();
        if case.held && self.first() == case.first && result != Some(HELD) {
            wrong.push(format!("the prediction: {}", result.unwrap_or("not compared").replace('_', " ")));
        }
        wrong
    }
}

fn faults(figures: &[Figure]) -> Option<&Figure> {
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
        let figures = serde_json::json!([{ "figure": "faults", "without": 10.0, "with": 1.0, "recorded": 2.0 }]);
        let check = serde_json::json!({ "advice": [{ "result": result, "figures": figures }] });
        let whole = serde_json::json!({ "faults": 10 });
        serde_json::from_value(serde_json::json!({ "whole": whole, "advice": advice, "check": check })).unwrap()
    }

    #[test]
    fn the_right_answer_has_its_kind_first_and_holds() {
        let case = Case { first: "churn".into(), held: true, says: Some("mallopt".into()), ..Case::default() };
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
    fn no_advice_is_an_answer() {
        let case = Case { first: NONE.into(), ..Case::default() };
        let nothing: Answer = serde_json::from_str(r#"{ "whole": { "faults": 3 }, "advice": [] }"#).unwrap();
        assert!(nothing.wrong(&case).is_empty() && nothing.predicted().is_none());
        assert_eq!(answer(&["vfork"], "held").wrong(&case), ["vfork comes first, none is right"]);
    }
}
