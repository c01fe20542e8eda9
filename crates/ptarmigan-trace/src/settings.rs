//! The settings of the recorded machine: facts that decide which pages and tables a kernel makes.
//!
//! # Why
//!
//! A replay has to know, for example, whether the kernel maps blocks of 64 KiB at once. The header
//! has a fixed form and cannot grow with each kernel; a list of names and values can.
//!
//! # Names
//!
//! | name | value |
//! |---|---|
//! | `kernel` | the kernel's release, as of `uname -r` |
//! | `cpus online` | CPUs that may run tasks |
//! | `page bytes` | the base page size in bytes |
//! | `enabled`, `defrag`, `shmem_enabled`, `khugepaged/…` | the file of that name in `/sys/kernel/mm/transparent_hugepage`, of several words the chosen one |
//! | `hugepages-64kB/enabled` | the same, for blocks of 64 KiB |
//! | `fault_around_bytes` | the range that a fault on a file maps, in bytes |
//! | `boot` | the words of the kernel's command line that decide about page tables |
//! | `glibc tunables` | the words of `GLIBC_TUNABLES` that decide about memory |
//!
//! A reader passes over names that it does not know.
use crate::{Kind, MAX_TEXT, Note, Symbols};

/// The most settings of a trace.
pub const MAX_SETTINGS: usize = 1 << 10;

/// The settings of a machine, in the order of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    list: Vec<(Box<str>, Box<str>)>,
}

/// The sizes of blocks that a machine maps at once for anonymous memory, in KiB, the smallest
/// first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSizes {
    /// Sizes that are used everywhere but where programs refuse them.
    pub always: Vec<u64>,
    /// Sizes that are used where programs ask for huge pages.
    pub advised: Vec<u64>,
}

impl Settings {
    /// Adds a setting.
    ///
    /// # Errors
    /// The reason, for a setting that no trace may have: its name or its value is empty, has
    /// control characters or more than [`MAX_TEXT`] bytes, its value has a slash, there is one of
    /// its name, or there are [`MAX_SETTINGS`].
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        for text in [name, value] {
            if text.is_empty() || text.len() > MAX_TEXT {
                return Err("a setting of no or too many bytes");
            }
            if text.chars().any(char::is_control) {
                return Err("a setting with control characters");
            }
        }
        if value.contains('/') {
            return Err("a setting with a path");
        }
        if self.get(name).is_some() {
            return Err("a setting that is there already");
        }
        if self.list.len() == MAX_SETTINGS {
            return Err("too many settings");
        }
        self.list.push((name.into(), value.into()));
        Ok(())
    }

    /// Returns the value of a setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Returns the names and values, in the order of the trace.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns whether the trace has no settings, as traces of formats 1 to 3.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the sizes of blocks that the machine maps at once: the settings
    /// `hugepages-NkB/enabled`. A size that says `inherit` follows the setting `enabled`.
    #[must_use]
    pub fn block_sizes(&self) -> BlockSizes {
        let mut sizes = BlockSizes::default();
        for (name, value) in self.iter() {
            let size = name.strip_prefix("hugepages-").and_then(|name| name.strip_suffix("kB/enabled"));
            let Some(size) = size.and_then(|size| size.parse().ok()) else { continue };
            let value = if value == "inherit" { self.get("enabled") } else { Some(value) };
            match value {
                Some("always") => sizes.always.push(size),
                Some("madvise") => sizes.advised.push(size),
                _ => {}
            }
        }
        sizes.always.sort_unstable();
        sizes.advised.sort_unstable();
        sizes
    }

    /// Follows the next event of a trace, the one with this number: keeps a setting. Settings are
    /// the first events, so that a reader knows all of them before any other event.
    #[inline]
    pub(crate) fn see(&mut self, kind: &Kind, number: u64, symbols: &Symbols) -> Result<(), &'static str> {
        let Kind::Note(Note::Setting { name, value }) = *kind else { return Ok(()) };
        if number != self.list.len() as u64 {
            return Err("a setting behind another event");
        }
        self.add(symbols.text(name), symbols.text(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        list.iter().for_each(|(name, value)| settings.add(name, value).expect("a good setting"));
        settings
    }

    #[test]
    fn settings_keep_their_order_and_are_found_by_name() {
        let list = [("kernel", "6.12.1"), ("enabled", "madvise"), ("cpus online", "2")];
        let found = settings(&list);
        assert_eq!(found.iter().collect::<Vec<_>>(), list);
        assert_eq!((found.get("enabled"), found.get("absent")), (Some("madvise"), None));
        assert!(Settings::default().is_empty() && !found.is_empty());
    }

    #[test]
    fn sizes_of_blocks_are_told_by_how_they_are_used() {
        let sizes = |enabled| {
            settings(&[
                ("hugepages-2048kB/enabled", "inherit"),
                ("enabled", enabled),
                ("hugepages-64kB/enabled", "always"),
                ("hugepages-32kB/enabled", "madvise"),
                ("hugepages-16kB/enabled", "never"),
                ("hugepages-xkB/enabled", "always"),
            ])
            .block_sizes()
        };
        assert_eq!(sizes("always"), BlockSizes { always: vec![64, 2048], advised: vec![32] });
        assert_eq!(sizes("madvise"), BlockSizes { always: vec![64], advised: vec![32, 2048] });
        assert_eq!(sizes("never"), BlockSizes { always: vec![64], advised: vec![32] });
        let alone = settings(&[("hugepages-64kB/enabled", "inherit")]);
        assert_eq!(alone.block_sizes(), BlockSizes::default(), "nobody says how");
    }

    #[test]
    fn settings_that_no_trace_may_have_are_refused() {
        let mut list = settings(&[("enabled", "always")]);
        let long = "x".repeat(MAX_TEXT + 1);
        for (name, value) in [
            ("", "a"),
            ("a", ""),
            ("a", &long),
            (&long, "a"),
            ("a\n", "a"),
            ("a", "/home"),
            ("enabled", "never"),
        ] {
            assert!(list.add(name, value).is_err(), "{name:?} {value:?}");
        }
        for n in 1..MAX_SETTINGS {
            list.add(&n.to_string(), "1").expect("there is room");
        }
        assert_eq!(list.add("more", "1"), Err("too many settings"));
    }
}
