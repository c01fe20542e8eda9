//! The verdict that the examples about other crates share: exactly the expected findings, or the
//! process fails.
use ptsan::Kind;
use ptsan::adapters::Machine;

/// A defect of a released crate.
pub struct Defect {
    /// The defect, in a line.
    pub title: &'static str,
    /// Crate, version, file and line.
    pub source: &'static str,
    /// How hardware may really go wrong.
    pub why: &'static str,
    /// Lines of the crate that must be among those that led to a finding, where the report knows
    /// lines: `file.rs:7:`. A finding made outside the crate, at a later access, has no line.
    pub at: &'static [&'static str],
    /// Findings that must be made.
    pub must: &'static [Kind],
    /// Findings that may follow from them.
    pub may: &'static [Kind],
}

impl Defect {
    /// Prints the findings. Fails if one that must be made is missing, or if another than the
    /// allowed ones is made.
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
        let lines: Vec<String> = machine.sanitizer(|san, _| {
            let traces = san.findings().iter().filter_map(|f| f.trace.as_ref());
            traces.flat_map(|t| t.frames()).filter_map(|frame| frame.at).collect()
        });
        for line in self.at {
            let there = lines.is_empty() || lines.iter().any(|l| l.contains(line));
            assert!(there, "{}: nothing was found at {line}; did the crate change?", self.title);
        }
    }
}

/// Checks that a correct use is silent.
#[track_caller]
pub fn silent(what: &str, machine: &Machine) {
    assert!(machine.sanitizer(|san, _| san.total()) == 0, "{what}: {machine}");
    println!("-- silent: {what}\n");
}
