//! The machine of a log: its memory, its CPUs under the sanitizer, and the findings.
use super::callers::Callers;
use super::impossible::{Facts, ImpossibleRecord};
use super::memory::{Full, Pages};
use super::origins::Origins;
use super::recent::Origin;
use crate::symbols::Symbols;
use ptsan::{
    Access, AccessKind, Adversary, Arch, Barrier, Config, Content, DeviceEntry, ExceptionLevel, Flush, Guard,
    GuestPage, Hold, Kind, Operation, Reader, Sanitizer, Target,
};
use ptsan_log::{self as log, Entry, Header, Record, Scope};
use std::collections::{BTreeSet, HashMap};

/// The most pages that have held tables: 16 GiB.
const MOST_TABLE_PAGES: usize = 1 << 22;
/// The most lies that are kept. All are counted.
const MOST_LIES: usize = 64;

/// The number of records, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) allocated: u64,
    pub(super) freed: u64,
    pub(super) stores: u64,
    pub(super) roots: u64,
    pub(super) invalidations: u64,
    pub(super) accesses: u64,
    pub(super) data: u64,
    pub(super) queued: u64,
    pub(super) entries: u64,
    pub(super) readers: u64,
    pub(super) locks: u64,
}

/// The replay cannot go on.
#[derive(Debug)]
pub(super) enum Limit {
    /// Of pages that were stored to.
    Memory,
    /// Of pages that have held tables.
    Tables,
}

/// A machine, and the sanitizer that watches it.
pub(super) struct Machine {
    pub(super) sanitizer: Sanitizer,
    pub(super) counts: Counts,
    pub(super) noted: Origins,
    /// The first lies, and how many there were.
    pub(super) lies: (Vec<ImpossibleRecord>, u64),
    /// The record that ended the log, if it says that all tables should be free.
    pub(super) ended: Option<bool>,
    memory: Pages,
    facts: Facts,
    callers: Callers,
    operations: HashMap<u64, Operation>,
    readers: HashMap<u64, Reader>,
    cpus: u16,
    /// CPUs that have loaded a root. Others hold no entry that an invalidation could drop.
    used: BTreeSet<u16>,
    table_bytes: u64,
    entry_bytes: u64,
}

impl Machine {
    /// Creates the machine that a header describes. `keep` is how many findings are kept, `most`
    /// how many pages of memory.
    pub(super) fn new(
        header: &Header,
        arch: Arch,
        seed: Option<u64>,
        (keep, most): (usize, usize),
        symbols: Symbols,
    ) -> Self {
        let own = arch.levels.first().map_or(4096, |l| l.table_bytes);
        let entry_bytes = arch.levels.first().map_or(8, |l| u64::from(l.entry_bytes));
        let facts = Facts::new(header, &arch);
        let config = Config {
            cpus: usize::from(header.cpus),
            devices: usize::from(header.devices),
            asids: header.asids,
            common_numbers: header.common_numbers,
            locks: header.locks,
            barriers: header.barriers,
            accessed_dirty: header.accessed_dirty,
            two_stages: header.two_stages,
            keeps_invalid: header.keeps_invalid,
            exception_level: exception_level_of(header.exception_level),
            adversary: seed.map(Adversary::new),
            keep,
            track_origins: true,
            ..Config::new(arch)
        };
        let mut sanitizer = Sanitizer::new(config);
        if header.cpus > 0 && (header.barriers || header.accessed_dirty || header.locks) {
            sanitizer.running_on(0);
        }
        Self {
            sanitizer,
            counts: Counts::default(),
            noted: Origins::default(),
            lies: (Vec::new(), 0),
            ended: None,
            memory: Pages::new(most),
            facts,
            callers: Callers::new(symbols),
            operations: HashMap::new(),
            readers: HashMap::new(),
            cpus: header.cpus,
            used: BTreeSet::new(),
            table_bytes: u64::from(if header.table_bytes == 0 { own } else { header.table_bytes }),
            entry_bytes,
        }
    }

    /// Carries out a record.
    pub(super) fn apply(&mut self, entry: &Entry<'_>) -> Result<(), Limit> {
        let origin = Origin { record: entry.number, pc: entry.pc };
        let record = self.sized(entry.record);
        if let Err((what, instead)) = self.facts.check(&record) {
            self.lie(ImpossibleRecord { origin, kind: record.name(), what, instead });
            return Ok(());
        }
        if self.facts.pages() > MOST_TABLE_PAGES {
            return Err(Limit::Tables);
        }
        self.noted.begins(&self.sanitizer, origin);
        self.sanitizer.called_from(Some(self.callers.of(entry.pc)));
        let misuses = self.sanitizer.count(Kind::Misuse);
        self.carry_out(&record).map_err(|Full| Limit::Memory)?;
        if self.sanitizer.count(Kind::Misuse) > misuses {
            let what = "the sanitizer cannot make sense of it".to_owned();
            let instead = "record what the kernel did, in the order in which it happened";
            self.lie(ImpossibleRecord { origin, kind: record.name(), what, instead });
        }
        self.noted.ended(&self.sanitizer, origin);
        Ok(())
    }

    /// Ends the machine: with a record that says so, tables that are left are leaks. Findings name
    /// records in place of events.
    pub(super) fn finish(&mut self, records: u64) {
        if self.ended == Some(true) {
            let origin = Origin { record: records, pc: None };
            self.sanitizer.called_from(Some(self.callers.of(None)));
            self.sanitizer.finish_with(&self.memory);
            self.noted.ended(&self.sanitizer, origin);
        }
        let callers = &mut self.callers;
        self.noted.name(&mut self.sanitizer, "record", |pc| callers.of(Some(pc)));
    }

    /// Returns the functions at the address of an instruction.
    pub(super) fn functions(&mut self, pc: Option<u64>) -> Vec<String> {
        self.callers.of(pc).frames().into_iter().map(|frame| frame.symbol).collect()
    }

    /// Puts the usual size in where the record has no size.
    fn sized<'a>(&self, record: Record<'a>) -> Record<'a> {
        let usual = self.table_bytes;
        match record {
            Record::TableAllocated { phys, size: 0, level, content } => {
                Record::TableAllocated { phys, size: usual, level, content }
            }
            Record::TableFreed { phys, size: 0 } => Record::TableFreed { phys, size: usual },
            other => other,
        }
    }

    fn lie(&mut self, lie: ImpossibleRecord) {
        self.lies.1 += 1;
        if self.lies.0.len() < MOST_LIES {
            self.lies.0.push(lie);
        }
    }

    fn carry_out(&mut self, record: &Record<'_>) -> Result<(), Full> {
        let (san, memory) = (&mut self.sanitizer, &mut self.memory);
        if matches!(record, Record::Store { .. } | Record::Exchange { .. } | Record::Fill { .. }) {
            // Walkers may come just before a store, too.
            san.adversary_step(memory);
        }
        match *record {
            Record::TableAllocated { phys, size, level, content } => {
                self.counts.allocated += 1;
                let content = match content {
                    log::Content::Zero => Content::Zero,
                    log::Content::Unknown => Content::Unknown,
                    log::Content::Unchecked => Content::Unchecked,
                };
                san.table_allocated(memory, phys, size, level, content);
            }
            Record::TableFreed { phys, size } => {
                self.counts.freed += 1;
                san.table_freed(memory, phys, size);
            }
            Record::Store { phys, value, bytes } | Record::Exchange { phys, value, bytes } => {
                self.counts.stores += 1;
                memory.write(phys, &value.to_le_bytes()[..usize::from(bytes.min(8))])?;
                self.written(phys, u64::from(bytes), matches!(record, Record::Exchange { .. }));
            }
            Record::Fill { phys, bytes, value } => {
                self.counts.stores += bytes / 8;
                for at in (phys..phys.saturating_add(bytes)).step_by(8) {
                    self.memory.write(at, &value.to_le_bytes())?;
                    self.written(at, 8, false);
                }
            }
            Record::Memory { phys, bytes } => memory.write(phys, bytes)?,
            Record::RootLoaded { cpu, root, space, flushes } => {
                self.counts.roots += 1;
                if cpu < self.cpus {
                    self.used.insert(cpu);
                }
                san.switch(memory, usize::from(cpu), root, space);
                if flushes {
                    san.flush(memory, usize::from(cpu), Flush::space(space));
                }
            }
            Record::Lazy { cpu } => san.lazy(usize::from(cpu)),
            Record::Resume { cpu } => san.resume(usize::from(cpu)),
            Record::Leave { cpu } => san.leave(usize::from(cpu)),
            Record::Invalidate { cpu, scope, leaf_only, level, exception_level } => {
                self.counts.invalidations += 1;
                let flush = flush_of(scope, leaf_only, level, exception_level);
                match cpu {
                    Some(cpu) => san.flush(memory, usize::from(cpu), flush),
                    None => self.used.iter().for_each(|cpu| san.flush(memory, usize::from(*cpu), flush)),
                }
            }
            Record::SpaceCreated { space } => san.space_created(space),
            Record::SpaceDestroyed { space } => san.space_destroyed(space),
            Record::DataMapped { space, va } => san.frame_mapped(memory, space, va),
            Record::DataFreed { phys, size } => {
                self.counts.data += 1;
                san.frame_freed(memory, phys, size);
            }
            Record::DataReused { phys, size } => {
                self.counts.data += 1;
                san.frame_reused(memory, phys, size);
            }
            Record::Barrier { cpu, kind } => {
                let barrier = match kind {
                    log::BarrierKind::Data => Barrier::Data,
                    log::BarrierKind::Instruction => Barrier::Instruction,
                    log::BarrierKind::Fence => Barrier::Fence,
                    log::BarrierKind::Stores => Barrier::Stores,
                };
                san.barrier(usize::from(cpu), barrier);
            }
            Record::FlushesDone => san.flushes_done(memory),
            Record::Running { cpu } => san.running_on(usize::from(cpu)),
            Record::Stage1Flushed { cpu } => san.stage1_flushed(usize::from(cpu)),
            Record::OperationBegins { id } => _ = self.operations.insert(id, san.operation_begins()),
            Record::OperationEnds { id } => {
                if let Some(operation) = self.operations.remove(&id) {
                    san.operation_ends(memory, operation);
                }
            }
            Record::Access { cpu, va, kind, user } => {
                self.counts.accesses += 1;
                // A fault is no finding: the kernel serves it.
                let _ = san.translate(memory, usize::from(cpu), va, Access { kind: access(kind), user });
            }
            Record::AccessCombined { cpu, number, va, gpa, kind } => {
                self.counts.accesses += 1;
                // All accesses of a guest are those of a user to stage 2.
                let (page, access) = (GuestPage { number, va }, Access { kind: access(kind), user: true });
                let _ = san.translate_combined(memory, usize::from(cpu), page, gpa, access);
            }
            Record::Stage1PartFlushed { cpu, number, va } => {
                san.stage1_part_flushed(usize::from(cpu), number, va);
            }
            Record::End { all_freed } => self.ended = Some(all_freed),
            _ => return self.carry_out_other(record),
        }
        Ok(())
    }

    /// Carries out a record of a device, of a reader without a lock, of a lock or of numbers.
    fn carry_out_other(&mut self, record: &Record<'_>) -> Result<(), Full> {
        let (san, memory) = (&mut self.sanitizer, &mut self.memory);
        match *record {
            Record::FlushQueued { device, scope, leaf_only, level, exception_level } => {
                self.counts.queued += 1;
                let flush = flush_of(scope, leaf_only, level, exception_level);
                san.flush_queued(usize::from(device), flush);
            }
            Record::QueueCompleted { device } => san.queue_completed(memory, usize::from(device)),
            Record::DeviceEntry { device, phys, bytes, word, valid } => {
                let shape = DeviceEntry { bytes, valid: (word, valid) };
                san.device_entry(memory, usize::from(device), phys, shape);
            }
            Record::DeviceEntryWritten { phys, bytes } => {
                self.counts.entries += 1;
                memory.write(phys, bytes)?;
                san.device_entry_written(memory, phys);
            }
            Record::DeviceEntriesFlushed { device, phys } => {
                san.device_entries_flushed(usize::from(device), phys);
            }
            Record::ReaderBegins { id, root } => {
                self.counts.readers += 1;
                self.readers.insert(id, san.reader_begins(memory, root));
            }
            Record::ReaderReads { id, table } => {
                if let Some(reader) = self.readers.get(&id) {
                    san.reader_reads(memory, *reader, table);
                }
            }
            Record::ReaderEnds { id } => {
                if let Some(reader) = self.readers.remove(&id) {
                    san.reader_ends(reader);
                }
            }
            Record::LockGuards { table, lock, flush_first } => {
                san.lock_guards(table, Guard { lock, flush_first });
            }
            Record::LockTaken { cpu, lock, shared } => {
                self.counts.locks += 1;
                let hold = if shared { Hold::Shared } else { Hold::Exclusive };
                san.lock_taken(usize::from(cpu), lock, hold);
            }
            Record::LockReleased { cpu, lock } => san.lock_released(memory, usize::from(cpu), lock),
            Record::NumberGiven { root, space } => san.number_given(root, space),
            Record::NumbersTakenBack => san.numbers_taken_back(),
            _ => {}
        }
        Ok(())
    }

    /// Tells the sanitizer of each entry that a store has reached.
    fn written(&mut self, phys: u64, bytes: u64, exchanged: bool) {
        let first = phys - phys % self.entry_bytes;
        for entry in (first..phys.saturating_add(bytes)).step_by(self.entry_bytes as usize) {
            if exchanged {
                self.sanitizer.entry_exchanged(&self.memory, entry);
            } else {
                self.sanitizer.entry_written(&self.memory, entry);
            }
        }
    }
}

fn access(kind: log::AccessKind) -> AccessKind {
    match kind {
        log::AccessKind::Read => AccessKind::Read,
        log::AccessKind::Write => AccessKind::Write,
        log::AccessKind::Exec => AccessKind::Exec,
    }
}

/// Returns the invalidation of a record.
fn flush_of(
    scope: Scope,
    leaf_only: bool,
    level: Option<u8>,
    exception_level: Option<log::ExceptionLevel>,
) -> Flush {
    let exception_level = exception_level.map(exception_level_of);
    Flush { target: target(scope), leaf_only, level, exception_level }
}

const fn exception_level_of(level: log::ExceptionLevel) -> ExceptionLevel {
    match level {
        log::ExceptionLevel::El1 => ExceptionLevel::El1,
        log::ExceptionLevel::El2 => ExceptionLevel::El2,
        log::ExceptionLevel::El3 => ExceptionLevel::El3,
    }
}

fn target(scope: Scope) -> Target {
    match scope {
        Scope::Page { space, va } => Target::Page { space, va },
        Scope::Range { space, start, end, stride } => Target::Range { space, start, end, stride },
        Scope::EverySpace { start, end, stride } => Target::EverySpace { start, end, stride },
        Scope::Space(space) => Target::Space(space),
        Scope::All => Target::All,
    }
}
