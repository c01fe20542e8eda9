//! Sparse processes on the library: groups that share their frames, each with tables of its own.
use super::model::{FRAME, LowMemory, Records, entries, most_leaf_tables, span, upper_bytes};
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::X86Pae;
use ptarmigan::frames::NoFrame;
use ptarmigan::machine::On;
use ptarmigan::space::{Access, AreaError, AreaFlags, FaultError, Space, SpaceMachine};
use ptarmigan_term::{Context, Failure};

/// Processes, in groups that a process forks. A group maps frames of its own, and each of its
/// processes maps all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SparseLoad {
    /// Groups.
    pub groups: u64,
    /// Processes of a group: how often each frame is mapped.
    pub sharing: u64,
    /// Frames of a group.
    pub frames: u64,
    /// One of so many entries of a table is in use.
    pub one_in: u64,
}

/// The fate of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// The process that got no memory, counted from 1; `None` if all got the pages that they
    /// wanted.
    pub died: Option<u64>,
    /// Leaf tables of the processes that had got all, at the end.
    pub tables: u64,
    /// Of the leaf tables in use at the end, those in high memory.
    pub high: u64,
    /// Frames of low memory that were free at the end.
    pub low_free: u32,
}

impl SparseLoad {
    /// Returns the number of processes.
    pub fn processes(&self) -> u64 {
        self.groups * self.sharing
    }

    /// Returns the entries of a table that are in use, 1 at least.
    fn per_table(&self) -> u64 {
        (entries() / self.one_in.max(1)).max(1)
    }

    /// Returns the leaf tables of a process.
    pub fn tables_each(&self) -> u64 {
        self.frames.div_ceil(self.per_table())
    }

    /// Returns the leaf tables of all processes.
    pub fn tables(&self) -> u64 {
        self.processes() * self.tables_each()
    }

    /// Returns the bytes that are mapped, each frame counted once.
    pub fn mapped(&self) -> u64 {
        self.groups * self.frames * FRAME
    }

    /// Returns whether a process has addresses for its tables.
    pub fn fits(&self) -> bool {
        self.frames > 0 && self.tables_each() <= most_leaf_tables()
    }

    /// Returns which process gets no low memory for its tables, counted from 1, as the model has
    /// it; `None` if all of them do.
    pub fn dies_at(&self, low: &LowMemory, ram: u64, records: Records) -> Option<u64> {
        let free = low.bytes.saturating_sub(low.kernel + records.bytes(ram, low.bytes));
        let last = free / (upper_bytes() + self.tables_each() * FRAME);
        (last < self.processes()).then_some(last + 1)
    }

    /// Runs the processes until all have got the pages that they want, or one gets no memory. All
    /// of them have ended when this returns. `high` returns the leaf tables in high memory.
    ///
    /// # Errors
    /// If something other than memory is missing.
    pub fn run<M: SpaceMachine>(&self, on: On<'_, M>, high: impl Fn() -> u64) -> Result<Fate, Failure> {
        let mut spaces: Vec<Space<X86Pae>> = Vec::new();
        let result = self.fill(on, &mut spaces);
        let fate = result.map(|short| Fate {
            died: short.map(|_| spaces.len() as u64 + 1),
            tables: spaces.len() as u64 * self.tables_each(),
            high: high(),
            low_free: on.frames().low_frames().0,
        });
        for space in spaces {
            space.end(on).context("a process ends")?;
        }
        fate
    }

    /// Begins processes until `spaces` has all of them. Returns why it does not.
    fn fill<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        spaces: &mut Vec<Space<X86Pae>>,
    ) -> Result<Option<NoFrame>, Failure> {
        for _ in 0..self.groups {
            let mut first = match Space::<X86Pae>::new(on) {
                Ok(space) => space,
                Err(e) => return Ok(Some(e)),
            };
            if let Some(e) = self.touch(on, &mut first)? {
                first.end(on).context("a process without memory")?;
                return Ok(Some(e));
            }
            let parent = spaces.len();
            spaces.push(first);
            for _ in 1..self.sharing {
                match spaces[parent].edit(on).context("fork")?.fork() {
                    Ok(child) => spaces.push(child),
                    Err(AreaError::NoFrame(e)) => return Ok(Some(e)),
                    Err(e) => return Err(Failure::new(format!("fork: {e}"))),
                }
            }
        }
        Ok(None)
    }

    /// Maps the frames of a group. Returns why not.
    fn touch<M: SpaceMachine>(
        &self,
        on: On<'_, M>,
        space: &mut Space<X86Pae>,
    ) -> Result<Option<NoFrame>, Failure> {
        let area = VirtRange::up_to(self.tables_each() * span());
        match space.edit(on).context("mmap")?.mmap(area, AreaFlags::READ.with(AreaFlags::WRITE), 0) {
            Ok(_) => {}
            Err(AreaError::NoFrame(e)) => return Ok(Some(e)),
            Err(e) => return Err(Failure::new(format!("mmap: {e}"))),
        }
        let (per_table, apart) = (self.per_table(), self.one_in.max(1) * FRAME);
        for frame in 0..self.frames {
            let at = frame / per_table * span() + frame % per_table * apart;
            match space.fault(on, VirtAddr(at), Access::Write) {
                Ok(_) => {}
                Err(FaultError::NoFrame(e)) => return Ok(Some(e)),
                Err(e) => return Err(Failure::new(format!("a fault: {e}"))),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::userpte::model::leaf_bytes;

    #[test]
    fn tables_are_those_of_the_formula_where_all_of_them_are_full() {
        for one_in in [1_u32, 2, 64, 512] {
            let per_table = 512 / u64::from(one_in);
            let load = SparseLoad { groups: 16, sharing: 8, frames: 3 * per_table, one_in: one_in.into() };
            let formula = leaf_bytes(load.mapped() as f64, 8.0, 1.0 / f64::from(one_in));
            assert_eq!((load.tables() * FRAME) as f64, formula);
            assert_eq!(load.tables(), 3 * 128);
        }
    }

    #[test]
    fn a_process_with_a_page_in_each_table_fills_the_address_space() {
        let load = SparseLoad { groups: 128, sharing: 1, frames: 1536, one_in: 512 };
        assert!(load.fits() && !SparseLoad { frames: 1537, ..load }.fits());
        let low = LowMemory { bytes: 768 << 20, kernel: 0, spaces: 0, mapped: None };
        assert_eq!(load.tables(), 196_608);
        // All 196,608 leave nothing for roots, middle tables and records: some die earlier.
        let died = load.dies_at(&low, 4 << 30, Records::Linux);
        let room = (768 << 20) - (32 << 20);
        assert_eq!(died, Some(room / (1536 * 4096 + 3 * 4096 + 32) + 1));
    }
}
