//! Released crates under the page-table sanitizer. Each example runs one crate and fails unless
//! exactly the defects that `docs/defects.md` describes are found.
//!
//! * [`Defect`] is the verdict on a run: the findings that must be made, and those that may follow.
//! * [`silent`] is the verdict on a correct use.
//! * [`entry_address`] tells which addresses an entry translates, for flushes that a crate compiles
//!   for bare metal only.
use ptsan::{Arch, Kind, Memory, Sanitizer};

/// A defect of a released crate.
#[derive(Clone, Copy, Debug)]
pub struct Defect {
    /// The defect, in a line.
    pub title: &'static str,
    /// Crate, version, file and lines.
    pub source: &'static str,
    /// How hardware may really go wrong.
    pub why: &'static str,
    /// Findings that must be made.
    pub must: &'static [Kind],
    /// Findings that may follow from them.
    pub may: &'static [Kind],
}

impl Defect {
    /// Prints the findings.
    ///
    /// # Panics
    /// Panics if a finding that must be made is missing, or if another than the allowed ones is
    /// made.
    #[track_caller]
    pub fn found(&self, san: &Sanitizer) {
        println!("== {}\n   {}\n   {}\n\n{san}\n", self.title, self.source, self.why);
        for kind in Kind::ALL {
            let count = san.count(kind);
            if self.must.contains(&kind) {
                assert!(count > 0, "{}: {kind} was not found; is the crate fixed?", self.title);
            } else {
                let may = count == 0 || self.may.contains(&kind);
                assert!(may, "{}: {kind} was found too, and was not expected", self.title);
            }
        }
    }
}

/// Checks that a correct use is silent.
///
/// # Panics
/// Panics with the report if anything was found.
#[track_caller]
pub fn silent(what: &str, san: &Sanitizer) {
    assert!(san.total() == 0, "{what}: {san}");
    println!("-- silent: {what}\n");
}

/// Returns the first address that the entry at physical address `entry` translates below `root`,
/// sign-extended, or `None` if no table below the root has it. Slots of the root from `upto` on are
/// not searched.
///
/// It reads all tables, so it is for small trees.
pub fn entry_address(
    memory: &(impl Memory + ?Sized),
    arch: &Arch,
    root: u64,
    upto: u64,
    entry: u64,
) -> Option<u64> {
    let top = arch.levels.len() - 1;
    let va = search(memory, arch, (root, upto), top, 0, entry)?;
    let unused = 64 - arch.va_bits;
    Some(((va << unused) as i64 >> unused) as u64)
}

fn search(
    memory: &(impl Memory + ?Sized),
    arch: &Arch,
    (table, slots): (u64, u64),
    level: usize,
    base: u64,
    entry: u64,
) -> Option<u64> {
    let span = 1u64 << arch.levels[level].shift;
    if (table..table + 8 * slots).contains(&entry) {
        return Some(base + (entry - table) / 8 * span);
    }
    if level == 0 {
        return None;
    }
    (0..slots).find_map(|slot| {
        let raw = memory.read(table + 8 * slot, 8)?;
        let ptsan::Entry::Table { phys, .. } = (arch.decode)(level as u8, raw) else { return None };
        search(memory, arch, (phys, 512), level - 1, base + slot * span, entry)
    })
}
