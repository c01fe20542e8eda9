//! What Linux does at a fault before it looks for a page.
use super::tags;
use ptarmigan::space::{Access, Area, AreaFlags};

/// Size of a huge page, in bytes: what a table of entries of 4 KiB maps.
const HUGE: u64 = 2 << 20;

/// Where faults try huge pages first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeFaults {
    /// Nowhere.
    Never,
    /// In areas that asked for them (`MADV_HUGEPAGE`).
    Advised,
    /// Everywhere but where they are refused.
    Always,
}

impl HugeFaults {
    /// Returns whether a fault at `va` in `area`, with no table there yet, prepares for private pages
    /// although it reads: Linux does so before it knows whether a huge page of zeroes will do.
    pub fn prepares(self, area: &Area, va: u64, access: Access) -> bool {
        let wanted = match self {
            HugeFaults::Never => false,
            HugeFaults::Advised => area.tag & tags::HUGE != 0,
            HugeFaults::Always => area.tag & tags::NO_HUGE == 0 && !area.flags.has(AreaFlags::GROWS_DOWN),
        };
        let start = va & !(HUGE - 1);
        let plain = !area.flags.has(AreaFlags::SHARED) && !area.flags.has(AreaFlags::BACKED);
        wanted && plain && access != Access::Write && area.start <= start && start + HUGE <= area.end
    }
}
