//! Counts the cases of each kind of advice that a recording has, whether or not a change pays.
//!
//! A second recording in which nobody has changed a thing has as many cases of it as the first one,
//! although the saving may have gone: because another change has made the figure small, for
//! example.
use std::collections::BTreeMap;

/// The cases of a recording, by kind and program.
#[derive(Clone, Debug, Default)]
pub struct Needs(BTreeMap<(&'static str, String), u64>);

impl Needs {
    /// Adds cases of a kind that a program has.
    pub fn add(&mut self, kind: &'static str, program: &str, cases: u64) {
        *self.0.entry((kind, program.to_owned())).or_default() += cases;
    }

    /// Returns the cases of a kind that some programs have.
    pub fn of(&self, kind: &str, programs: &[String]) -> u64 {
        let chosen = self.0.iter().filter(|((of, name), _)| *of == kind && programs.contains(name));
        chosen.map(|(_, cases)| cases).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_added_up_by_kind_over_programs() {
        let mut needs = Needs::default();
        for (kind, program, cases) in [("arenas", "a", 2), ("arenas", "b", 3), ("vfork", "a", 7)] {
            needs.add(kind, program, cases);
        }
        needs.add("arenas", "a", 10);
        let of = |kind, names: &[&str]| {
            needs.of(kind, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!((of("arenas", &["a"]), of("arenas", &["a", "b"]), of("vfork", &["b"])), (12, 15, 0));
    }
}
