//! Keeps verdicts between runs.
use super::judge::{Test, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// All that is known so far, in a file.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct State {
    #[serde(skip)]
    file: PathBuf,
    /// The options and the sources that it is about.
    about: String,
    /// The drawn mutants that compile, by [`Mutant::id`](super::source::Mutant::id), in the order
    /// of their numbers.
    pub drawn: Vec<String>,
    /// The number of mutants that were drawn and do not compile.
    pub broken: usize,
    /// The verdicts of all tests.
    pub verdicts: BTreeMap<String, Verdict>,
    /// The verdicts of fast tests, which did not kill the mutant.
    pub first: BTreeMap<String, Verdict>,
    /// Tests that pass without a mutant.
    pub tests: Vec<Test>,
    /// Tests that do not.
    pub failing: Vec<String>,
    /// Tests that take long.
    pub slow: Vec<String>,
}

impl State {
    /// Reads a file of states, which may not be there.
    ///
    /// # Errors
    ///
    /// The file is about something else, or is not understood.
    pub fn open(file: &Path, about: &str) -> Result<Self, String> {
        let file = file.to_owned();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                return Ok(State { file, about: about.into(), ..State::default() });
            }
            Err(err) => return Err(format!("{}: {err}", file.display())),
        };
        let name = file.display();
        let state: State = serde_json::from_str(&text)
            .map_err(|e| format!("{name} is not understood, {e}; --new begins again"))?;
        if state.about != about {
            return Err(format!("{name} is about other options or sources; --new begins again"));
        }
        Ok(State { file, ..state })
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| format!("{}: {e}", self.file.display()))?;
        let new = self.file.with_extension("new");
        fs::write(&new, text + "\n")
            .and_then(|()| fs::rename(&new, &self.file))
            .map_err(|e| format!("{}: {e}", self.file.display()))
    }

    /// Forgets mutants that were not killed, which tests written since may kill, and tests that
    /// failed.
    pub fn forget_survivors(&mut self) {
        self.failing.clear();
        self.first.clear();
        self.verdicts.retain(|_, verdict| matches!(verdict, Verdict::Killed(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_state_is_read_back_only_for_the_same_sources() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("state.json");
        let mut state = State::open(&file, "seed 1").expect("none yet");
        assert_eq!(state.drawn.len(), 0);
        let test = Test {
            executable: "p/all".into(),
            name: "a::b".into(),
            time: Duration::from_micros(7),
            seen: None,
        };
        state.drawn = vec!["a".into(), "b".into(), "c".into()];
        state.broken = 3;
        state.failing = vec!["p/all x".into()];
        state.slow = vec!["p/all a::b".into()];
        state.first = BTreeMap::from([("b".into(), Verdict::Survived(1))]);
        state.tests = vec![Test { seen: Some([1, 3].into()), ..test.clone() }, test];
        state.verdicts = BTreeMap::from([
            ("a".into(), Verdict::Killed("p/all a::b".into())),
            ("b".into(), Verdict::Survived(2)),
            ("c".into(), Verdict::Undecided("no time".into())),
        ]);
        state.save().expect("written");
        let (same, other) = (State::open(&file, "seed 1"), State::open(&file, "seed 2"));
        fs::write(&file, r#"{"about": "seed 1", "drawn": 7}"#).expect("written");
        let broken = State::open(&file, "seed 1");
        assert_eq!(same.as_ref(), Ok(&state));
        assert!(
            other.is_err_and(|why| why.contains("--new")) && broken.is_err_and(|why| why.contains("--new"))
        );
        state.forget_survivors();
        assert_eq!(
            (state.failing.len(), state.verdicts.into_keys().collect::<Vec<_>>()),
            (0, vec!["a".into()])
        );
    }
}
