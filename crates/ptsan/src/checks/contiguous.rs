//! Runs of entries that hardware may cache as one translation: the Contiguous bit of AArch64, and
//! Svnapot of RISC-V.
//!
//! The entries of a run are stored one by one, so that they contradict each other for a while. They
//! have to agree when the operation has ended.
use crate::arch::{Entry, Perms};
use crate::memory::Memory;
use crate::owed::{Run, Touched};
use crate::report::{Kind, Place, Rule};
use crate::state::{EntryAt, Sanitizer};

impl Sanitizer {
    /// Notes a told store, of event `since`, to an entry that belongs to a run, or may. Returns
    /// whether the entry was valid before and after, and belongs to a run of another length now.
    pub(crate) fn touch_run(
        &mut self,
        at: EntryAt,
        index: u64,
        since: u64,
        (old, new): (Option<u64>, u64),
    ) -> bool {
        if self.config.arch.contiguous.is_none() {
            return false;
        }
        let length = |raw| self.config.arch.run_of(at.level, raw).entries_log2;
        let (before, after) = (old.map(length), length(new));
        let belongs = after.max(before.unwrap_or(0));
        let log2 = self.runs.longest(at.level, belongs);
        if log2 > 0 {
            let first = index & !((1 << log2) - 1);
            let run = Run { table: at.table, level: at.level, first, log2 };
            let begun = self.operations.begun();
            if let Some(touched) = self.runs.touch(run, begun).filter(|_| belongs > 0) {
                touched.since = since;
                // An entry that was recorded earlier has other callers.
                touched.store = if since == self.event { self.reports.stored(since) } else { None };
            }
        }
        let arch = &self.config.arch;
        let valid = |raw| matches!(arch.entry(at.level, index, raw), Entry::Leaf { accessed: true, .. });
        before.is_some_and(|before| before != after) && old.is_some_and(valid) && valid(new)
    }

    /// Reports the runs whose entries contradict each other although no store to them is under way.
    pub(crate) fn check_runs(&mut self, memory: &(impl Memory + ?Sized)) {
        let operations = &self.operations;
        for Touched { run, since, store, .. } in self.runs.take(|begun| operations.ended(begun)) {
            let Some(f) = self.frames.get(run.table).filter(|_| self.is_table(run.table)) else { continue };
            let phys = f.phys;
            let Some((index, note)) = self.disagreement(memory, phys, run) else { continue };
            let bytes = u64::from(self.config.arch.entry_bytes());
            let at = EntryAt { entry: phys.wrapping_add(index * bytes), table: run.table, level: run.level };
            let va = self.way_up(memory, at).map(|(_, va)| va);
            let place = Place { frame: Some(phys), va, level: Some(run.level), ..Place::default() };
            let rule = (Kind::ContiguousRange, Rule::RunDisagrees);
            let note = || format!("{note}; the last store to the run was event {since}");
            self.report_of(store.as_ref(), rule, place, note);
        }
    }

    /// Returns the first entry that does not fit into the run to which an entry claims to belong,
    /// and the reason.
    fn disagreement(&self, memory: &(impl Memory + ?Sized), table: u64, run: Run) -> Option<(u64, String)> {
        let arch = &self.config.arch;
        let bytes = arch.entry_bytes();
        let read = |index: u64| memory.read(table.wrapping_add(index * u64::from(bytes)), bytes).unwrap_or(0);
        let last = run.first + (1 << run.log2);
        let log2 = |index: u64| arch.run_of(run.level, read(index)).entries_log2;
        let claims = (run.first..last).find(|&index| log2(index) > 0)?;
        let first = claims & !((1 << log2(claims)) - 1);
        let start = self.as_part(run.level, claims, read(claims))?;
        let shift = arch.levels[usize::from(run.level)].shift;
        (first..first + (1 << log2(claims))).find_map(|index| {
            let raw = read(index);
            let what = match self.as_part(run.level, index, raw) {
                _ if log2(index) != log2(claims) => "belongs to no such run",
                None => "maps nothing",
                Some(part) if part.0 != start.0.wrapping_add(index.wrapping_sub(claims) << shift) => {
                    "maps memory that is not next to it"
                }
                Some(part) if (part.1, part.2, part.3) != (start.1, start.2, start.3) => {
                    "has other attributes"
                }
                Some(_) => return None,
            };
            let claim = read(claims);
            Some((
                index,
                format!(
                    "entry {claims} ({claim:#x}) makes a run of entries {first}..{}, and entry {index} ({raw:#x}) {what}",
                    first + (1 << log2(claims))
                ),
            ))
        })
    }

    /// Returns the address of the page, and the attributes that all entries of a run must share.
    fn as_part(&self, level: u8, index: u64, raw: u64) -> Option<(u64, Perms, bool, u8)> {
        let arch = &self.config.arch;
        let Entry::Leaf { phys, perms, global, memory_type, .. } = arch.entry(level, index, raw) else {
            return None;
        };
        // Hardware makes one page writable at a time.
        let set = arch.hardware_bits.map(|of| of(level, raw)).is_some_and(|b| b.dirty || b.sets_dirty);
        Some((phys, perms.with_if(Perms::WRITE, set), global, memory_type))
    }
}
