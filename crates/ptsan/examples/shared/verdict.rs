//! What the examples about other crates share: the expected finding and nothing else, or the process fails.
use ptsan::Kind;
use ptsan::adapters::Machine;

/// A defect of a released crate.
pub struct Defect {
    /// What it is, in a line.
    pub title: &'static str,
    /// Crate, version, file and line.
    pub source: &'static str,
    /// Why hardware may really go wrong.
    pub why: &'static str,
    /// What must be found.
    pub must: &'static [Kind],
    /// What may be found besides, as a consequence.
    pub may: &'static [Kind],
}

impl Defect {
    /// Prints what was found, and fails unless it is what must be and at most what may be.
    #[track_caller]
    pub fn found(&self, machine: &Machine) {
        println!("== {}\n   {}\n   {}\n", self.title, self.source, self.why);
        println!("{machine}\n");
        for kind in Kind::ALL {
            let count = machine.sanitizer(|san, _| san.count(kind));
            if self.must.contains(&kind) {
                assert!(count > 0, "{}: {kind} was not found; is the crate fixed?", self.title);
            } else {
                assert!(
                    count == 0 || self.may.contains(&kind),
                    "{}: {kind} was found too, and was not expected",
                    self.title
                );
            }
        }
    }
}

/// Nothing was found where nothing is wrong.
#[track_caller]
pub fn silent(what: &str, machine: &Machine) {
    assert!(machine.sanitizer(|san, _| san.total()) == 0, "{what}: {machine}");
    println!("-- silent: {what}\n");
}
