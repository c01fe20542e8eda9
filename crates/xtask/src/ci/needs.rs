//! Looks for tools and rights, and installs tools that are missing, as root on Debian.
use super::jobs::{Job, Need, Table};
use crate::script::succeeds;
use std::collections::BTreeMap;

/// Needs that were looked for: the reason why one is missing, or `None`.
#[derive(Default)]
pub struct Needs {
    known: BTreeMap<String, Option<String>>,
    updated: bool,
}

impl Needs {
    /// Returns the reason why `job` cannot run here: a need that neither is there nor can be
    /// installed.
    pub fn missing(&mut self, table: &Table, job: &Job) -> Option<String> {
        table.needs_of(job).find_map(|need| self.look(need))
    }

    fn look(&mut self, need: &Need) -> Option<String> {
        if let Some(known) = self.known.get(&need.name) {
            return known.clone();
        }
        let missing = (!succeeds(&need.have)).then(|| self.install(need)).flatten();
        self.known.insert(need.name.clone(), missing.clone());
        missing
    }

    fn install(&mut self, need: &Need) -> Option<String> {
        let Need { name, have, debian, install } = need;
        let script = match (install, debian) {
            (Some(script), _) => script.clone(),
            (None, Some(packages)) => {
                if !succeeds("command -v apt-get") {
                    return Some(format!(
                        "{name} is missing, and there is no apt-get to install {packages} with"
                    ));
                }
                if !succeeds("[ $(id -u) = 0 ]") {
                    return Some(format!("{name} is missing: install {packages}, or run this as root"));
                }
                if !self.updated {
                    self.updated = true;
                    if !succeeds("apt-get update -qq") {
                        return Some(format!("{name} is missing, and apt-get update failed"));
                    }
                }
                format!("apt-get install -y -qq --no-install-recommends {packages}")
            }
            (None, None) => return Some(format!("{name} is missing")),
        };
        println!("installs {name}: {}", script.trim());
        let installed = succeeds(&script) && succeeds(have);
        (!installed).then(|| format!("{name} is missing, and this did not bring it: {}", script.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(have: &str, install: Option<&str>) -> Need {
        Need { name: "x".into(), have: have.into(), debian: None, install: install.map(str::to_owned) }
    }

    #[test]
    fn a_missing_need_is_installed_or_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("need");
        let (have, make) = (format!("test -e {}", file.display()), format!("touch {}", file.display()));
        assert_eq!(Needs::default().look(&need(&have, None)), Some("x is missing".into()));
        let refused = Needs::default().look(&need(&have, Some("false")));
        assert_eq!(refused, Some("x is missing, and this did not bring it: false".into()));
        assert_eq!(Needs::default().look(&need(&have, Some(&make))), None);
        assert_eq!(Needs::default().look(&need(&have, None)), None);
    }
}
