//! Reads `.ci/jobs.toml`: the needs and the jobs.
use crate::repository;
use serde::Deserialize;
use std::{collections::BTreeSet, path::Path};

/// When a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// For each change, by `ci full`.
    #[default]
    Change,
    /// In its turn, by `ci slice`.
    Nightly,
    /// By hand, before a release.
    Release,
}

impl Tier {
    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Change => "change",
            Tier::Nightly => "nightly",
            Tier::Release => "release",
        }
    }
}

/// A tool or a right without which a job cannot run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// The name that jobs say.
    pub name: String,
    /// Script that succeeds if it is there.
    pub have: String,
    /// Packages of Debian that bring it.
    pub debian: Option<String>,
    /// Script that brings it, without `debian`.
    pub install: Option<String>,
}

/// Commands that pass or fail together.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The name, by which it is called and reported.
    pub name: String,
    /// When it runs.
    pub tier: Tier,
    /// Jobs of one lane run one after the other: they share a directory of builds.
    #[serde(default)]
    pub lane: u8,
    /// Minutes that it takes on two idle CPUs.
    pub minutes: f64,
    /// Names of needs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Packages, or directories and files, that it looks at; without any, it looks at all.
    #[serde(default)]
    pub of: Vec<String>,
    /// Whether `--changed` runs it for packages that depend on the changed ones, too.
    #[serde(default)]
    pub smoke: bool,
    /// Into how many jobs it is cut: the script has `PART`, from 1, and `PARTS`.
    #[serde(default)]
    pub parts: Option<u32>,
    /// The script: bash, which stops at the first command that fails.
    pub run: String,
    /// The part of `parts`, from 1.
    #[serde(skip)]
    pub part: u32,
}

/// The table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Minutes that the nightly jobs of one slice may take.
    pub slice_minutes: f64,
    /// Minutes that all jobs of a change may take with their slice, which is cut to what is left.
    pub full_minutes: f64,
    /// Needs of all jobs.
    pub all_need: Vec<String>,
    /// The needs.
    pub need: Vec<Need>,
    /// The jobs, in the order in which they run; one for each part.
    pub job: Vec<Job>,
}

impl Table {
    /// Reads the table at `path`.
    ///
    /// # Errors
    ///
    /// A text that names the file, and the line or job, if it cannot be read, is malformed, names a
    /// job twice or a need that it has not, or has a nightly job that no slice can hold.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = repository::read(path)?;
        Self::parse(&text).map_err(|err| format!("{}: {err}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut table: Table = toml::from_str(text).map_err(|err| err.to_string())?;
        table.job = table.job.iter().flat_map(in_parts).collect();
        let mut names = BTreeSet::new();
        for job in &table.job {
            let Job { name, .. } = job;
            if !names.insert(name) {
                return Err(format!("job {name}: there are two of this name"));
            }
            if let Some(need) = table.unknown(&job.needs) {
                return Err(format!("job {name}: its need {need} is not in the table"));
            }
            if job.tier == Tier::Nightly && job.minutes > table.slice_minutes {
                return Err(format!(
                    "job {name}: no slice of {} minutes holds its {}; cut it by `parts`",
                    table.slice_minutes, job.minutes
                ));
            }
        }
        if let Some(need) = table.unknown(&table.all_need) {
            return Err(format!("all_need: {need} is not in the table"));
        }
        Ok(table)
    }

    /// Returns the first of `needs` that the table has not.
    fn unknown<'n>(&self, needs: &'n [String]) -> Option<&'n String> {
        needs.iter().find(|need| self.need.iter().all(|known| known.name != **need))
    }

    /// Returns the needs of all jobs, then the others of `job`.
    pub fn needs_of<'t>(&'t self, job: &'t Job) -> impl Iterator<Item = &'t Need> {
        let names = self.all_need.iter().chain(&job.needs);
        names.filter_map(|name| self.need.iter().find(|need| need.name == *name))
    }
}

/// Returns `job`, or its parts.
fn in_parts(job: &Job) -> Vec<Job> {
    let Some(parts) = job.parts else { return vec![job.clone()] };
    (1..=parts).map(|part| Job { name: format!("{}-{part}", job.name), part, ..job.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "slice_minutes = 15\nfull_minutes = 40\nall_need = []\n[[need]]\nname = \"jq\"\nhave = \"true\"\n";

    fn parse(job: &str) -> Result<Table, String> {
        Table::parse(&format!("{HEAD}[[job]]\nname = \"a\"\nminutes = 2\nrun = \"true\"\n{job}"))
    }

    #[test]
    fn the_table_of_the_repository_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let table = Table::read(&root.join(".ci/jobs.toml")).unwrap();
        for of in table.job.iter().flat_map(|job| &job.of) {
            assert!(!of.contains('/') || root.join(of).exists(), "{of}: no such path");
        }
    }

    #[test]
    fn a_job_of_parts_is_as_many_jobs() {
        let table = parse("tier = \"nightly\"\nparts = 3\n").unwrap();
        let names: Vec<_> = table.job.iter().map(|job| (job.name.as_str(), job.part)).collect();
        assert_eq!(names, [("a-1", 1), ("a-2", 2), ("a-3", 3)]);
    }

    #[test]
    fn malformed_tables_are_named() {
        for (job, part) in [
            ("tier = \"nightly\"\nneeds = [\"gcc\"]", "job a: its need gcc is not"),
            ("tier = \"weekly\"", "weekly"),
            ("tier = \"nightly\"\nwhen = 1", "when"),
            (
                "tier = \"nightly\"\n[[job]]\nname = \"b\"\ntier = \"nightly\"\nminutes = 16\nrun = \"\"",
                "cut it",
            ),
            (
                "tier = \"change\"\n[[job]]\nname = \"a\"\ntier = \"change\"\nminutes = 1\nrun = \"\"",
                "two of",
            ),
        ] {
            let err = parse(job).unwrap_err();
            assert!(err.contains(part), "{err}");
        }
        // A job that is too long for a slice may be run for each change, or by hand.
        parse("tier = \"release\"\n[[job]]\nname = \"b\"\ntier = \"change\"\nminutes = 90\nrun = \"\"")
            .unwrap();
    }
}
