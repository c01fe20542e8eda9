//! Reads `crates/xtask/lists/knobs.toml`: programs, and the knobs that are turned for each.
use crate::program::{command_of, with_words};
use crate::repository;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::path::Path;

/// The list.
pub const LIST: &str = "crates/xtask/lists/knobs.toml";
/// The switch of the C library's allocator.
const GLIBC: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

/// A knob of the machine or of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Knob {
    /// Blocks of 64 KiB in all anonymous memory.
    Blocks,
    /// All tasks of the program on one CPU.
    Pin,
    /// A variable with which the allocator or the runtime asks for huge pages.
    Switch,
}

impl Display for Knob {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobProgram {
    /// The name.
    pub name: String,
    /// The command, of which the first word is looked up in `PATH`.
    #[serde(default)]
    run: Vec<String>,
    /// Instead of it: a program of a complaint.
    #[serde(default)]
    file: Option<String>,
    /// Arguments, or variables as `NAME=VALUE`, on both sides.
    #[serde(default)]
    with: Vec<String>,
    /// The variable that the switch is.
    #[serde(default)]
    switch: Option<String>,
    /// Its knobs.
    pub knobs: Vec<Knob>,
}

/// The programs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnobPrograms {
    /// A script that makes their input.
    pub prepare: String,
    /// In the order in which they run.
    pub program: Vec<KnobProgram>,
}

impl Knob {
    /// All of them.
    pub const ALL: [Knob; 3] = [Knob::Blocks, Knob::Pin, Knob::Switch];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Blocks => "blocks",
            Knob::Pin => "pin",
            Knob::Switch => "switch",
        }
    }

    /// Returns the size of blocks, in KiB, that is set for a recording, and its value. `None` if
    /// the knob leaves the machine as it is.
    pub fn blocks(self, turned: bool) -> Option<(u64, &'static str)> {
        match self {
            Knob::Blocks => Some((64, if turned { "always" } else { "never" })),
            Knob::Pin => None,
            Knob::Switch => Some((2048, "madvise")),
        }
    }

    /// Returns the command before the recorder, from which the program has its CPUs.
    pub fn before(self, turned: bool) -> &'static [&'static str] {
        if turned && self == Knob::Pin { &["taskset", "-c", "0"] } else { &[] }
    }
}

impl KnobProgram {
    /// Builds the program in `dir`, if it is one of a complaint. Returns its command.
    ///
    /// # Errors
    /// The compiler's text, or the field that is wrong.
    pub fn build(&self, home: &Path, dir: &Path) -> Result<Vec<String>, String> {
        match (&self.file, self.run.is_empty()) {
            (Some(file), true) => command_of(&home.join(file), dir, None),
            (None, false) => Ok(self.run.clone()),
            _ => Err(format!("{}: either `run` or `file`", self.name)),
        }
    }

    /// Returns the command that runs it.
    pub fn command(&self, built: &[String], knob: Knob, turned: bool) -> Vec<String> {
        let mut words = self.with.clone();
        if turned && knob == Knob::Switch {
            words.push(self.switch.clone().unwrap_or_else(|| GLIBC.to_owned()));
        }
        with_words(built, &words)
    }
}

impl KnobPrograms {
    /// Reads the list.
    ///
    /// # Errors
    /// A text that names the file, if it cannot be read or is malformed.
    pub fn read(path: &Path) -> Result<Self, String> {
        let list: KnobPrograms =
            toml::from_str(&repository::read(path)?).map_err(|e| format!("{LIST}: {e}"))?;
        let mut names = BTreeSet::new();
        match list.program.iter().find(|program| !names.insert(&program.name)) {
            Some(twice) => Err(format!("{LIST}: there are two programs {}", twice.name)),
            None => Ok(list),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::complaints;

    #[test]
    fn each_knob_has_ten_programs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let list = KnobPrograms::read(&root.join(LIST)).unwrap();
        for knob in Knob::ALL {
            let programs = list.program.iter().filter(|program| program.knobs.contains(&knob));
            assert_eq!(programs.count(), 10, "{}", knob.name());
        }
        for KnobProgram { name, run, file, .. } in &list.program {
            assert_eq!(run.is_empty(), file.is_some(), "{name}");
            let there = file.as_ref().is_none_or(|file| root.join(complaints::HOME).join(file).exists());
            assert!(there, "{name}");
        }
    }

    #[test]
    fn a_turned_knob_changes_the_command() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let program = KnobProgram { with: words("A=1 x"), ..KnobProgram::default() };
        let command = |knob, turned| program.command(&words("./a"), knob, turned).join(" ");
        assert_eq!(command(Knob::Blocks, true), "env A=1 ./a x");
        assert_eq!(command(Knob::Pin, true), "env A=1 ./a x");
        let switched = format!("env A=1 {GLIBC} ./a x");
        assert_eq!(command(Knob::Switch, true), switched);
    }
}
