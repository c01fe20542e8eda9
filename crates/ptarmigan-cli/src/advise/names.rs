//! Gives programs of a second recording the names that they have in the first one.
use super::facts::Facts;
use ptarmigan_term::Failure;

/// Pairs of names, in the first recording and in the second one.
pub struct Renamed<'a>(&'a [(String, String)]);

impl<'a> Renamed<'a> {
    /// Checks the names of the first recording.
    ///
    /// # Errors
    /// If a name is no program of it, or stands twice on one side.
    pub fn new(pairs: &'a [(String, String)], first: &Facts) -> Result<Self, Failure> {
        for (at, (old, new)) in pairs.iter().enumerate() {
            has(first, old, &format!("--as {old}={new}: the first recording has no program {old}"))?;
            for (earlier, other) in &pairs[..at] {
                if let Some(twice) = [(earlier, old), (other, new)].iter().find(|(a, b)| a == b) {
                    return Err(Failure::new(format!(
                        "--as {old}={new}: {} stands in --as {earlier}={other}, too; give each program once",
                        twice.0
                    )));
                }
            }
        }
        Ok(Renamed(pairs))
    }

    /// Renames the programs of the second recording. A program that has one of the old names, and
    /// is another one, is not compared.
    ///
    /// # Errors
    /// If a name is no program of it.
    pub fn apply(&self, second: &mut Facts) -> Result<(), Failure> {
        for (old, new) in self.0 {
            has(second, new, &format!("--as {old}={new}: the second recording has no program {new}"))?;
        }
        for program in &mut second.programs {
            if let Some((old, _)) = self.0.iter().find(|(_, new)| *new == program.name) {
                program.name.clone_from(old);
            } else if self.0.iter().any(|(old, _)| *old == program.name) {
                program.name += " (not compared)";
            }
        }
        Ok(())
    }
}

fn has(facts: &Facts, name: &str, or: &str) -> Result<(), Failure> {
    match facts.named(name) {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!("{or}, but {}", facts.some_names()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::facts::ProgramFacts;

    fn facts(names: &[&str]) -> Facts {
        let mut facts = Facts::default();
        for name in names {
            facts.programs.push(ProgramFacts::default());
            (*name).clone_into(&mut facts.programs.last_mut().unwrap().name);
        }
        facts
    }

    fn renamed(pairs: &[(&str, &str)], first: &[&str], second: &[&str]) -> Result<Vec<String>, String> {
        let pairs: Vec<_> = pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect();
        let mut second = facts(second);
        let names = Renamed::new(&pairs, &facts(first)).and_then(|names| names.apply(&mut second));
        names.map_err(|failure| failure.message().to_owned())?;
        Ok(second.programs.into_iter().map(|program| program.name).collect())
    }

    #[test]
    fn programs_get_the_names_of_the_first_recording() {
        let names = renamed(&[("a", "b"), ("c", "a")], &["a", "c"], &["b", "a", "d", "c"]);
        assert_eq!(names.unwrap(), ["a", "c", "d", "c (not compared)"]);
    }

    #[test]
    fn names_that_no_recording_has_are_refused() {
        let error = |pairs: &[(&str, &str)]| renamed(pairs, &["a", "c"], &["b"]).unwrap_err();
        assert_eq!(error(&[("x", "b")]), "--as x=b: the first recording has no program x, but a, c");
        assert_eq!(error(&[("a", "x")]), "--as a=x: the second recording has no program x, but b");
        let twice = "--as c=b: b stands in --as a=b, too; give each program once";
        assert_eq!(error(&[("a", "b"), ("c", "b")]), twice);
    }
}
