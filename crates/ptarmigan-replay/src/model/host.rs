//! The machine that a model belongs to, and the one that this process runs on.
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identification of a host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "an object of cpu, cpus, hypervisor and kernel")]
pub struct HostName {
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that there are.
    pub cpus: usize,
    /// The CPUs say that a hypervisor is below them.
    pub hypervisor: bool,
    /// The kernel and its release.
    pub kernel: String,
}

impl HostName {
    /// Returns this host's.
    pub fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let flags = info.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
        let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        HostName {
            cpu: known(model.map_or("", |(_, name)| name.trim())),
            cpus: info.lines().filter(|line| line.starts_with("processor")).count(),
            hypervisor: flags.is_some_and(|(_, flags)| flags.split(' ').any(|f| f == "hypervisor")),
            kernel: known(format!("Linux {}", read("/proc/sys/kernel/osrelease")).trim()),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostName { cpu, cpus, hypervisor, kernel } = self;
        let guest = if *hypervisor { ", under a hypervisor" } else { "" };
        write!(f, "{cpu}, {cpus} CPUs{guest}, with {kernel}")
    }
}
