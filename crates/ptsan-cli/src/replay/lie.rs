//! Records that cannot be: the log is at fault, not the code that it is about.
use super::memory::END;
use super::recent::Origin;
use ptsan::Arch;
use ptsan_log::{Header, Record, Scope};
use std::collections::{HashMap, HashSet};

const PAGE: u64 = 4096;
/// The most bytes of one table.
const MOST_BYTES: u64 = 1 << 24;
/// The most operations under way.
const MOST_OPERATIONS: usize = 1 << 10;

/// A record that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lie {
    pub(super) origin: Origin,
    /// The name of the record's kind.
    pub(super) kind: &'static str,
    /// The error.
    pub(super) what: String,
    /// A legal record in its place.
    pub(super) instead: &'static str,
}

/// The error of a record that cannot be, and a legal record in its place.
pub(super) type Wrong = (String, &'static str);

/// The facts that the log has told so far, as far as later records depend on them.
pub(super) struct Facts {
    cpus: u16,
    levels: usize,
    entry_bytes: u64,
    root_align: u64,
    /// Pages in which a table was announced.
    announced: HashSet<u64>,
    spaces: HashSet<u64>,
    /// The space that each CPU has loaded.
    loaded: HashMap<u16, u64>,
    operations: HashSet<u64>,
}

impl Facts {
    pub(super) fn new(header: &Header, arch: &Arch) -> Self {
        let top = arch.levels.last();
        Self {
            cpus: header.cpus,
            levels: arch.levels.len(),
            entry_bytes: top.map_or(8, |l| u64::from(l.entry_bytes)),
            root_align: top.map_or(1, |l| u64::from(l.table_bytes)).max(1).next_power_of_two(),
            announced: HashSet::new(),
            spaces: HashSet::new(),
            loaded: HashMap::new(),
            operations: HashSet::new(),
        }
    }

    /// Returns how many pages have held tables.
    pub(super) fn pages(&self) -> usize {
        self.announced.len()
    }

    /// Checks a record against all before it, and takes note of it if it can be. Sizes are those of
    /// the record, never 0.
    pub(super) fn check(&mut self, record: &Record<'_>) -> Result<(), Wrong> {
        match *record {
            Record::TableAllocated { phys, size, level, .. } => self.allocated(phys, size, level),
            Record::TableFreed { phys, size } => self.freed(phys, size),
            Record::RootLoaded { cpu, root, space, .. } => {
                self.cpu(cpu)?;
                if !root.is_multiple_of(self.root_align) || root >= END {
                    return Err((
                        format!("a root at {root:#x}, and roots are at multiples of {:#x}", self.root_align),
                        "record root-loaded with the physical address alone, without the other bits of the register",
                    ));
                }
                self.spaces.insert(space);
                self.loaded.insert(cpu, space);
                Ok(())
            }
            Record::Lazy { cpu } | Record::Resume { cpu } | Record::Access { cpu, .. } => {
                self.cpu(cpu)?;
                if self.loaded.contains_key(&cpu) {
                    return Ok(());
                }
                Err((
                    format!("CPU {cpu} has no root loaded"),
                    "record root-loaded before; there is none after leave",
                ))
            }
            Record::Barrier { cpu, .. } | Record::Running { cpu } | Record::Stage1Flushed { cpu } => {
                self.cpu(cpu)
            }
            Record::DataFreed { phys, size } | Record::DataReused { phys, size } => {
                if size > 0 && phys.checked_add(size).is_some_and(|end| end <= END) {
                    return Ok(());
                }
                Err((
                    format!("{size:#x} bytes of data at {phys:#x}"),
                    "record the physical address and the bytes of the frame",
                ))
            }
            Record::DataMapped { space, .. } => self.space(space),
            Record::Leave { cpu } => {
                self.cpu(cpu)?;
                self.loaded.remove(&cpu);
                Ok(())
            }
            Record::Invalidate { cpu, scope, .. } => {
                cpu.map_or(Ok(()), |cpu| self.cpu(cpu))?;
                range(scope)
            }
            Record::SpaceCreated { space } => {
                self.spaces.insert(space);
                Ok(())
            }
            Record::SpaceDestroyed { space } => self.destroyed(space),
            Record::OperationBegins { id } => {
                let instead = "give each operation that is under way a number of its own, and end it";
                if self.operations.len() >= MOST_OPERATIONS {
                    return Err((format!("{MOST_OPERATIONS} operations are under way"), instead));
                }
                if self.operations.insert(id) {
                    Ok(())
                } else {
                    Err((format!("operation {id} is under way"), instead))
                }
            }
            Record::OperationEnds { id } if !self.operations.remove(&id) => Err((
                format!("operation {id} is not under way"),
                "record operation-begins with this number before",
            )),
            Record::OperationEnds { .. }
            | Record::Store { .. }
            | Record::Exchange { .. }
            | Record::Fill { .. }
            | Record::Memory { .. }
            | Record::FlushesDone
            | Record::Mark { .. }
            | Record::End { .. } => Ok(()),
        }
    }

    fn cpu(&self, cpu: u16) -> Result<(), Wrong> {
        if cpu < self.cpus {
            return Ok(());
        }
        Err((
            format!("CPU {cpu}, and the header says {} CPUs", self.cpus),
            "number CPUs from 0, and give the header their number",
        ))
    }

    fn table(&self, phys: u64, size: u64) -> Result<(), Wrong> {
        let fits = size <= MOST_BYTES
            && size.is_multiple_of(self.entry_bytes)
            && phys.checked_add(size).is_some_and(|end| end <= END);
        if fits && phys.is_multiple_of(self.entry_bytes) {
            return Ok(());
        }
        Err((
            format!("a table of {size:#x} bytes at {phys:#x}"),
            "record the physical address and the bytes of the table, or 0 bytes for the usual size",
        ))
    }

    fn allocated(&mut self, phys: u64, size: u64, level: Option<u8>) -> Result<(), Wrong> {
        self.table(phys, size)?;
        if let Some(level) = level.filter(|level| usize::from(*level) >= self.levels) {
            return Err((
                format!("level {level}, and the format has levels 0 to {}", self.levels - 1),
                "count levels from the tables of the smallest pages, which are level 0",
            ));
        }
        self.announced.extend(phys / PAGE..=(phys + (size - 1)) / PAGE);
        Ok(())
    }

    fn freed(&self, phys: u64, size: u64) -> Result<(), Wrong> {
        self.table(phys, size)?;
        if self.announced.contains(&(phys / PAGE)) {
            return Ok(());
        }
        Err((
            format!("no table was ever announced at {phys:#x}"),
            "record table-allocated when the allocator hands the table out",
        ))
    }

    fn space(&self, space: u64) -> Result<(), Wrong> {
        if self.spaces.contains(&space) {
            return Ok(());
        }
        Err((
            format!("space {space:#x} was never loaded nor created, or is destroyed"),
            "record space-created before a record of a space that no CPU has loaded",
        ))
    }

    fn destroyed(&mut self, space: u64) -> Result<(), Wrong> {
        if let Some((cpu, _)) = self.loaded.iter().find(|(_, loaded)| **loaded == space) {
            return Err((
                format!("CPU {cpu} has space {space:#x} loaded"),
                "record leave or the next root-loaded of that CPU before space-destroyed",
            ));
        }
        if self.spaces.remove(&space) {
            return Ok(());
        }
        Err((
            format!("space {space:#x} was never loaded nor created, or is destroyed"),
            "record space-created when a space begins; do not destroy a number that stands for another space later",
        ))
    }
}

/// Checks the extent of an invalidation.
fn range(scope: Scope) -> Result<(), Wrong> {
    match scope {
        Scope::Range { start, end, stride, .. } | Scope::EverySpace { start, end, stride }
            if stride == 0 || end < start =>
        {
            Err((
                format!("a range from {start:#x} to {end:#x} by {stride:#x}"),
                "record the first address, the one behind the last, and the bytes of a page between them",
            ))
        }
        // A kernel may flush a number before it uses it.
        _ => Ok(()),
    }
}
