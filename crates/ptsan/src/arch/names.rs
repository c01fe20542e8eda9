//! Names the levels as manuals do.
use super::format::Arch;

impl Arch {
    /// Returns the name of a level in reports: "PT (level 0)" for the last level of x86, for
    /// example.
    #[must_use]
    pub fn level_name(&self, level: u8) -> String {
        level_name(self.level_names, level)
    }
}

/// Names a level: see [`Arch::level_name`].
pub(crate) fn level_name(names: &[&str], level: u8) -> String {
    names.get(usize::from(level)).map_or_else(|| format!("level {level}"), |name| (*name).to_owned())
}
