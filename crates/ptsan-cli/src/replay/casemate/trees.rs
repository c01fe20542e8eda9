//! Finds out which memory of a trace holds tables, of which stage.
//!
//! The format announces memory before it says whether that becomes a table. So the whole log is
//! looked at first: a page is a table of a stage if a root of that stage leads to it at any time,
//! or if a hint says so.
use super::register::{Register, Stage};
use super::step::{Hint, Step};
use super::trace::Entry;
use ptsan::{Arch, Granule};
use std::collections::{HashMap, HashSet};

pub(super) const PAGE: u64 = 4096;
/// The bits of an address in a descriptor, with pages of 4 KiB.
const ADDRESS: u64 = 0xffff_ffff_f000;
/// The bits of a root's address in `VTTBR_EL2` and `TTBR0_EL2`.
const ROOT: u64 = 0xffff_ffff_fffe;

/// Returns the table that a descriptor above the last level links.
pub(super) const fn linked(value: u64) -> Option<u64> {
    if value & 3 == 3 { Some(value & ADDRESS) } else { None }
}

/// Splits a root register into address and number.
pub(super) const fn root_and_number(value: u64) -> (u64, u64) {
    (value & ROOT, value >> 48)
}

/// A page that holds a table at some time.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// For each stage, whether it is one of its tables.
    of: [bool; 2],
    /// Whether it is above the last level of a stage.
    links: bool,
    /// For each stage, whether it is the first page of a root.
    root: [bool; 2],
    /// For each stage, whether it is another page of a root of several.
    behind_root: [bool; 2],
}

/// The formats of both stages, and the pages that hold tables.
pub(super) struct Trees {
    /// The format of each stage whose root is loaded.
    pub(super) arch: [Option<Arch>; 2],
    members: HashMap<u64, Member>,
}

impl Trees {
    /// Looks through a log.
    ///
    /// Fails with the line and the reason if a format has no description here.
    pub(super) fn of(steps: &[Entry]) -> Result<Self, (u64, String)> {
        let mut roots = [HashSet::new(), HashSet::new()];
        let mut control = [None, None];
        let mut edges: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut owners = Vec::new();
        for entry in steps {
            match entry.step {
                Step::Sysreg { register: Register::Root(stage), value } if value != 0 => {
                    roots[stage.index()].insert(root_and_number(value).0);
                }
                Step::Sysreg { register: Register::Control(stage), value } => {
                    control[stage.index()].get_or_insert((entry.line, value));
                }
                Step::Write { at, value, .. } => {
                    if let Some(table) = linked(value) {
                        let below = edges.entry(at / PAGE).or_default();
                        if !below.contains(&table) {
                            below.push(table);
                        }
                    }
                }
                Step::Hint { hint: Hint::OwnerRoot, at, value } => owners.push((at / PAGE, value)),
                _ => {}
            }
        }
        let mut trees = Self { arch: [None, None], members: HashMap::new() };
        for stage in Stage::ALL {
            let roots = &roots[stage.index()];
            if roots.is_empty() {
                continue;
            }
            let arch = format(stage, control[stage.index()])?;
            trees.reach(stage, &arch, roots, &edges);
            for (page, _) in owners.iter().filter(|(_, root)| roots.contains(root)) {
                let member = trees.members.entry(*page).or_default();
                member.of[stage.index()] = true;
            }
            trees.arch[stage.index()] = Some(arch);
        }
        Ok(trees)
    }

    fn reach(&mut self, stage: Stage, arch: &Arch, roots: &HashSet<u64>, edges: &HashMap<u64, Vec<u64>>) {
        let top = arch.levels.len() - 1;
        let pages = (u64::from(arch.levels[top].table_bytes) / PAGE).max(1);
        let mut seen = HashSet::new();
        let mut next = Vec::new();
        for root in roots {
            for page in root / PAGE..root / PAGE + pages {
                let member = self.members.entry(page).or_default();
                member.root[stage.index()] |= page == root / PAGE;
                member.behind_root[stage.index()] |= page != root / PAGE;
                next.push((page, top));
            }
        }
        while let Some((page, level)) = next.pop() {
            if !seen.insert((page, level)) {
                continue;
            }
            let member = self.members.entry(page).or_default();
            member.of[stage.index()] = true;
            member.links |= level > 0;
            if level > 0 {
                let below = edges.get(&page).into_iter().flatten();
                next.extend(below.map(|table| (table / PAGE, level - 1)));
            }
        }
    }

    /// Returns whether the page at an address holds a table of the stage at some time.
    pub(super) fn is_table(&self, stage: Stage, at: u64) -> bool {
        self.members.get(&(at / PAGE)).is_some_and(|m| m.of[stage.index()])
    }

    /// Returns whether descriptors in the page may link tables.
    pub(super) fn may_link(&self, at: u64) -> bool {
        self.members.get(&(at / PAGE)).is_some_and(|m| m.links)
    }

    /// Returns the bytes of the table that begins at a page, or `None` if the page is a later part
    /// of a root.
    pub(super) fn bytes(&self, stage: Stage, page: u64) -> Option<u64> {
        let member = self.members.get(&page)?;
        let top = self.arch[stage.index()].as_ref()?.levels.last()?;
        match (member.root[stage.index()], member.behind_root[stage.index()]) {
            (true, _) => Some(u64::from(top.table_bytes).max(PAGE)),
            (false, true) => None,
            (false, false) => Some(PAGE),
        }
    }
}

/// Returns the format that a control register describes. Without one it is Casemate's own: 48 bits,
/// four levels.
fn format(stage: Stage, control: Option<(u64, u64)>) -> Result<Arch, (u64, String)> {
    let Some((line, value)) = control else {
        return Ok(match stage {
            Stage::One => Arch::aarch64_4k(48),
            Stage::Two => Arch::aarch64_stage2(Granule::K4, 48, 0),
        });
    };
    let bits = 64 - (value & 0x3f) as u8;
    let fail = |what: String| Err((line, what));
    if value >> 14 & 3 != 0 {
        return fail("expected a granule of 4 KiB (TG0 is 0), as Casemate's own model has it".to_owned());
    }
    let (arch, start) = match stage {
        Stage::One => (Arch::aarch64_4k(bits), None),
        Stage::Two => {
            // SL0 counts down from level 2.
            let start = [2, 1, 0, 3][(value >> 6 & 3) as usize];
            (Arch::aarch64_stage2(Granule::K4, bits, start), Some(start))
        }
    };
    if arch.levels.is_empty() {
        let from = start.map_or(String::new(), |level| format!(" from level {level}"));
        return fail(format!("expected a format that exists, found {bits} bits of address{from}"));
    }
    Ok(arch)
}

#[cfg(test)]
mod tests {
    use super::super::trace::Trace;
    use super::*;

    fn trees(text: &str) -> Result<Trees, (u64, String)> {
        Trees::of(&Trace::read(text.as_bytes()).steps)
    }

    #[test]
    fn tables_are_what_a_root_leads_to_or_a_hint_names() {
        let log = "(mem-write 0 0 plain 2000 3003)(mem-write 0 0 plain 1000 2003)(mem-write 0 0 plain 3000 4003)\
                   (mem-write 0 0 plain 4008 9003)(msr 0 0 vttbr_el2 1000)(hint 0 0 set_owner_root 7000 1000)";
        let trees = trees(log).unwrap();
        for (at, table, links) in [
            (0x1000, true, true),
            (0x2008, true, true),
            (0x3000, true, true),
            (0x4000, true, false),
            (0x7000, true, false),
            (0x9000, false, false),
        ] {
            assert_eq!((trees.is_table(Stage::Two, at), trees.may_link(at)), (table, links), "{at:#x}");
            assert!(!trees.is_table(Stage::One, at));
        }
        assert!(trees.arch[0].is_none());
    }

    #[test]
    fn the_format_is_that_of_the_control_register() {
        // 40 bits from level 1: the root is two tables.
        let trees = trees("(msr 0 0 vtcr_el2 58)(msr 0 0 vttbr_el2 2000)").unwrap();
        assert_eq!(trees.arch[1].as_ref().map(|a| (a.va_bits, a.levels.len())), Some((40, 3)));
        assert_eq!((trees.bytes(Stage::Two, 2), trees.bytes(Stage::Two, 3)), (Some(8192), None));
        let line = |log| super::Trees::of(&Trace::read(str::as_bytes(log)).steps).err().map(|(line, _)| line);
        assert_eq!(line("\n(msr 0 0 vtcr_el2 8018)(msr 0 0 vttbr_el2 2000)"), Some(2), "16 KiB");
        assert_eq!(line("(msr 0 0 tcr_el2 3f)(msr 0 0 ttbr0_el2 2000)"), Some(1), "1 bit");
    }
}
