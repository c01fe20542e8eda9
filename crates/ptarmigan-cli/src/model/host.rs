//! The machine that a model belongs to, and the one that this process runs on.
use serde::Deserialize;
use std::fmt;

/// What tells one host from another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object of cpu and kernel")]
pub(crate) struct HostName {
    /// The CPU's model.
    pub cpu: String,
    /// The kernel and its release.
    pub kernel: String,
}

impl HostName {
    /// Returns this host's.
    pub(super) fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        HostName {
            cpu: known(model.map_or("", |(_, name)| name.trim())),
            kernel: known(format!("Linux {}", read("/proc/sys/kernel/osrelease")).trim()),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.cpu, self.kernel)
    }
}
