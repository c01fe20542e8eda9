//! What to simulate and how much to keep.
use super::chance::Adversary;
use crate::arch::Arch;
use crate::report::{Allow, Suppressions};

/// What to simulate and how much to keep.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many CPUs there are, at most 65,535.
    pub cpus: usize,
    /// The page-table format.
    pub arch: Arch,
    /// Cached entries are tagged with their address space and survive a switch to another (PCID, ASID).
    ///
    /// A table may then be given back while a CPU that has *another* space loaded holds it: what counts is that it
    /// is flushed before that CPU uses the space again, and a walk that shows it was not is reported.
    pub asids: bool,
    /// Frames may stand at several levels: an entry of the top points at the top itself.
    pub recursive: bool,
    /// When a table is first reached by a walk and nothing told of its linking, report entries in it that equal what
    /// was there at its allocation. Code that clears a table and then happens to write the very same entries
    /// looks the same, so this is off unless asked for.
    pub infer_leftovers: bool,
    /// Whenever an access makes one CPU walk, every other CPU that has the same root loaded, active or lazy, walks
    /// speculatively for the same address. Hardware may; so a test that accesses memory from one CPU finds the
    /// shootdowns that the others miss.
    pub eager_walkers: bool,
    /// CPUs walk speculatively at moments and for addresses of their choice: see [`Adversary`].
    pub adversary: Option<Adversary>,
    /// How many findings are kept in full; all are counted.
    pub keep: usize,
    /// Findings that are kept say who called the hook. The environment variable `PTSAN_BACKTRACE=0` turns it off.
    pub backtraces: bool,
    /// Every table remembers who allocated it and who freed it. Costs some microseconds for each.
    pub track_origins: bool,
    /// Findings that are known and allowed.
    pub suppressions: Suppressions,
    /// [`crate::Stats::nanoseconds`] counts. Costs some 50 ns a hook.
    pub timed: bool,
}

impl Config {
    /// One CPU, no ASIDs, no adversary, 64 findings kept with backtraces.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        Self {
            cpus: 1,
            arch,
            asids: false,
            recursive: false,
            infer_leftovers: false,
            eager_walkers: false,
            adversary: None,
            keep: 64,
            backtraces: true,
            track_origins: false,
            suppressions: Suppressions::default(),
            timed: false,
        }
    }

    /// The same, with findings that are allowed.
    #[must_use]
    pub fn allow(mut self, allow: Allow) -> Self {
        self.suppressions.push(allow);
        self
    }

    /// What the environment says instead: `PTSAN_SEED` for the seed of an adversary that there is anyway, a number
    /// (`0x` for hexadecimal) or `random`; `PTSAN_BACKTRACE=0`.
    ///
    /// [`crate::Sanitizer::new`] reads it, so that a failed run can be repeated without a change to the code.
    pub(crate) fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        if let Some(adversary) = &mut self.adversary
            && let Some(seed) = variable("PTSAN_SEED").and_then(|s| parse_seed(&s))
        {
            adversary.seed = seed;
        }
        self.backtraces &= variable("PTSAN_BACKTRACE").as_deref() != Some("0");
        self
    }
}

fn parse_seed(text: &str) -> Option<u64> {
    use std::hash::{BuildHasher, Hasher, RandomState};
    match text.trim() {
        "random" => Some(RandomState::new().build_hasher().finish()),
        text => match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_replaces_the_seed_and_turns_backtraces_off() {
        let with = |adversary, seed: &'static str, backtrace: &'static str| {
            let config = Config { adversary, ..Config::new(Arch::x86_64()) };
            let config = config.with_environment(|name| match name {
                "PTSAN_SEED" => Some(seed.to_owned()),
                "PTSAN_BACKTRACE" => Some(backtrace.to_owned()),
                _ => None,
            });
            (config.adversary.map(|a| a.seed), config.backtraces)
        };
        let some = Some(Adversary::new(7));
        assert_eq!(with(some, "0x10", "0"), (Some(16), false));
        assert_eq!(with(some, "10", "1"), (Some(10), true));
        assert_eq!(with(some, "ten", ""), (Some(7), true), "nonsense changes nothing");
        assert_eq!(with(None, "10", "1"), (None, true), "no adversary comes from outside");
        assert_ne!(with(some, "random", "1").0, with(some, "random", "1").0);
    }
}
