//! Records that cannot be: the log is at fault, not the code that it is about.
use super::error::RecordError;
use super::memory::END;
use super::readers::{Entries, Readers};
use super::recent::Origin;
use super::under_way::{Locks, Numbered};
use ptsan::{Arch, ByGuestAddress};
use ptsan_log::{Header, Record, Scope};
use std::collections::{HashMap, HashSet};

const PAGE: u64 = 4096;
/// The most bytes of one table.
const MOST_BYTES: u64 = 1 << 24;

/// A record that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImpossibleRecord {
    pub(super) origin: Origin,
    /// The name of the record's kind.
    pub(super) kind: &'static str,
    /// The error.
    pub(super) what: String,
    /// A legal record in its place.
    pub(super) instead: &'static str,
}

/// The facts that the log has told so far, as far as later records depend on them.
pub(super) struct Facts {
    readers: Readers,
    format: &'static str,
    /// How a guest-physical address is invalidated, if the tables are those of stage 2.
    by_address: Option<ByGuestAddress>,
    levels: usize,
    entry_bytes: u64,
    root_align: u64,
    /// Pages in which a table was announced.
    announced: HashSet<u64>,
    spaces: HashSet<u64>,
    /// The space that each CPU or device has loaded.
    loaded: HashMap<u16, u64>,
    entries: Entries,
    operations: Numbered,
    walks: Numbered,
    locks: Locks,
}

impl Facts {
    pub(super) fn new(header: &Header, arch: &Arch) -> Self {
        let top = arch.levels.last();
        Self {
            readers: Readers { cpus: header.cpus, devices: header.devices },
            format: arch.name,
            by_address: arch.second_stage.map(|second| second.by_address),
            levels: arch.levels.len(),
            entry_bytes: top.map_or(8, |l| u64::from(l.entry_bytes)),
            root_align: top.map_or(1, |l| u64::from(l.table_bytes)).max(1).next_power_of_two(),
            announced: HashSet::new(),
            spaces: HashSet::new(),
            loaded: HashMap::new(),
            entries: Entries::default(),
            operations: Numbered::operations(),
            walks: Numbered::readers(),
            locks: Locks::default(),
        }
    }

    /// Returns how many pages have held tables.
    pub(super) fn pages(&self) -> usize {
        self.announced.len()
    }

    /// Checks a record against all before it, and takes note of it if it can be. Sizes are those of
    /// the record, never 0.
    pub(super) fn check(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        match *record {
            Record::TableAllocated { phys, size, level, .. } => self.allocated(phys, size, level),
            Record::TableFreed { phys, size } => self.freed(phys, size),
            Record::RootLoaded { cpu, root, space, .. } => {
                self.readers.any(cpu)?;
                self.root(root)?;
                self.spaces.insert(space);
                self.loaded.insert(cpu, space);
                Ok(())
            }
            Record::Lazy { cpu } | Record::Resume { cpu } => {
                self.readers.cpu(cpu)?;
                self.has_root(cpu)
            }
            Record::Access { cpu, .. } => {
                self.readers.any(cpu)?;
                self.has_root(cpu)
            }
            Record::AccessCombined { cpu, .. } => {
                self.readers.cpu(cpu)?;
                self.second_stage()?;
                self.has_root(cpu)
            }
            Record::Stage1PartFlushed { cpu, .. } => {
                self.readers.cpu(cpu)?;
                self.second_stage()
            }
            Record::Barrier { cpu, .. } | Record::Running { cpu } | Record::Stage1Flushed { cpu } => {
                self.readers.cpu(cpu)
            }
            Record::FlushQueued { device, scope, level, .. } => {
                self.readers.device(device)?;
                self.level(level)?;
                range(scope)
            }
            Record::QueueCompleted { device } => self.readers.device(device),
            Record::DeviceEntry { device, phys, bytes, .. } => {
                self.readers.device(device)?;
                self.entries.add(device, phys, bytes)
            }
            Record::DeviceEntryWritten { phys, bytes } => self.entries.written(phys, bytes.len()),
            Record::DeviceEntriesFlushed { device, phys } => {
                self.readers.device(device)?;
                phys.map_or(Ok(()), |phys| self.entries.flushed(device, phys, self.readers))
            }
            Record::ReaderBegins { id, root } => {
                self.root(root)?;
                self.walks.begin(id)
            }
            Record::ReaderReads { id, .. } => self.walks.expect(id),
            Record::ReaderEnds { id } => self.walks.end(id),
            Record::LockGuards { table, .. } => self.table(table, self.entry_bytes),
            Record::LockTaken { cpu, lock, shared } => {
                self.readers.cpu(cpu)?;
                self.locks.take(cpu, lock, shared)
            }
            Record::LockReleased { cpu, lock } => {
                self.readers.cpu(cpu)?;
                self.locks.release(cpu, lock)
            }
            Record::NumberGiven { root, .. } => self.root(root),
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
                self.readers.any(cpu)?;
                self.loaded.remove(&cpu);
                Ok(())
            }
            Record::Invalidate { cpu, scope, level, .. } => {
                self.level(level)?;
                cpu.map_or(Ok(()), |cpu| self.readers.any(cpu))?;
                self.by_address(cpu, scope)?;
                range(scope)
            }
            Record::SpaceCreated { space } => {
                self.spaces.insert(space);
                Ok(())
            }
            Record::SpaceDestroyed { space } => self.destroyed(space),
            Record::OperationBegins { id } => self.operations.begin(id),
            Record::OperationEnds { id } => self.operations.end(id),
            Record::NumbersTakenBack
            | Record::Store { .. }
            | Record::Exchange { .. }
            | Record::Fill { .. }
            | Record::Memory { .. }
            | Record::FlushesDone
            | Record::Mark { .. }
            | Record::End { .. } => Ok(()),
        }
    }

    fn has_root(&self, reader: u16) -> Result<(), RecordError> {
        if self.loaded.contains_key(&reader) {
            return Ok(());
        }
        Err((
            format!("{} has no root loaded", self.readers.name(reader)),
            "record root-loaded before; there is none after leave",
        ))
    }

    fn root(&self, root: u64) -> Result<(), RecordError> {
        if root.is_multiple_of(self.root_align) && root < END {
            return Ok(());
        }
        Err((
            format!("a root at {root:#x}, and roots are at multiples of {:#x}", self.root_align),
            "record the physical address alone, without the other bits of the register",
        ))
    }

    fn second_stage(&self) -> Result<(), RecordError> {
        if self.by_address.is_some() {
            return Ok(());
        }
        Err((
            format!("{} is no format of stage 2", self.format),
            "give the header the format of the hypervisor's tables",
        ))
    }

    /// Checks that a CPU has an invalidation of such an extent. Devices have all.
    fn by_address(&self, cpu: Option<u16>, scope: Scope) -> Result<(), RecordError> {
        let of_cpu = cpu.is_none_or(|cpu| cpu < self.readers.cpus);
        let whole = matches!(scope, Scope::Space(_) | Scope::All);
        if self.by_address != Some(ByGuestAddress::Never) || !of_cpu || whole {
            return Ok(());
        }
        Err((
            format!("{} has no invalidation by address", self.format),
            "record scope 3, one guest, or scope 4, everything, as the instruction has it",
        ))
    }

    fn table(&self, phys: u64, size: u64) -> Result<(), RecordError> {
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

    fn level(&self, level: Option<u8>) -> Result<(), RecordError> {
        if let Some(level) = level.filter(|level| usize::from(*level) >= self.levels) {
            return Err((
                format!("level {level}, and the format has levels 0 to {}", self.levels - 1),
                "count levels from the tables of the smallest pages, which are level 0",
            ));
        }
        Ok(())
    }

    fn allocated(&mut self, phys: u64, size: u64, level: Option<u8>) -> Result<(), RecordError> {
        self.table(phys, size)?;
        self.level(level)?;
        self.announced.extend(phys / PAGE..=(phys + (size - 1)) / PAGE);
        Ok(())
    }

    fn freed(&self, phys: u64, size: u64) -> Result<(), RecordError> {
        self.table(phys, size)?;
        if self.announced.contains(&(phys / PAGE)) {
            return Ok(());
        }
        Err((
            format!("no table was ever announced at {phys:#x}"),
            "record table-allocated when the allocator hands the table out",
        ))
    }

    fn space(&self, space: u64) -> Result<(), RecordError> {
        if self.spaces.contains(&space) {
            return Ok(());
        }
        Err((
            format!("space {space:#x} was never loaded nor created, or is destroyed"),
            "record space-created before a record of a space that no CPU has loaded",
        ))
    }

    fn destroyed(&mut self, space: u64) -> Result<(), RecordError> {
        if let Some((cpu, _)) = self.loaded.iter().find(|(_, loaded)| **loaded == space) {
            return Err((
                format!("{} has space {space:#x} loaded", self.readers.name(*cpu)),
                "record leave or the next root-loaded there before space-destroyed",
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
fn range(scope: Scope) -> Result<(), RecordError> {
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
