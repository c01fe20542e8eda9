//! Writes a log, record by record, without allocating.
use crate::MAX_RECORD;
use crate::header::{Header, MOST_HEADER_BYTES};
use crate::record::{EXCHANGED, ExceptionLevel, MAX_BYTES, MAX_ENTRY, MAX_TEXT, Record, Scope, kind};
use crate::wire::{CHECK_BYTES, Check, Payload};

/// Where a log goes: a serial line, a buffer, a file.
///
/// Implemented for closures `FnMut(&[u8]) -> Result<(), E>`, and with the feature `std` for
/// [`Written`].
pub trait Sink {
    /// Why bytes could not be written.
    type Error;

    /// Takes all of `bytes`: the header, or one record.
    ///
    /// # Errors
    /// The sink's own. The log is of no use from there on.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
}

impl<E, F: FnMut(&[u8]) -> Result<(), E>> Sink for F {
    type Error = E;

    fn take(&mut self, bytes: &[u8]) -> Result<(), E> {
        self(bytes)
    }
}

/// A sink that writes to a [`std::io::Write`].
#[cfg(feature = "std")]
#[derive(Debug)]
pub struct Written<W>(pub W);

#[cfg(feature = "std")]
impl<W: std::io::Write> Sink for Written<W> {
    type Error = std::io::Error;

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// Writes a log to a sink.
///
/// Records are to be written in the order in which things happened. CPUs that write to one log
/// share the encoder under a lock, held across the thing that happens and its record.
#[derive(Debug)]
pub struct Encoder<S> {
    sink: S,
    check: Check,
}

impl<S: Sink> Encoder<S> {
    /// Begins a log: writes its header.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(mut sink: S, header: &Header) -> Result<Self, S::Error> {
        let mut bytes = [0; MOST_HEADER_BYTES];
        let (end, check) = header.put(&mut bytes);
        sink.take(&bytes[..end])?;
        Ok(Self { sink, check })
    }

    /// Writes a record. Texts and bytes beyond [`MAX_TEXT`] and [`MAX_BYTES`] are cut.
    ///
    /// # Errors
    /// The sink's.
    pub fn record(&mut self, record: &Record<'_>) -> Result<(), S::Error> {
        self.write(None, record)
    }

    /// Writes a record of the effect of the instruction at `pc`, a virtual address.
    ///
    /// # Errors
    /// The sink's.
    pub fn record_at(&mut self, pc: u64, record: &Record<'_>) -> Result<(), S::Error> {
        self.write(Some(pc), record)
    }

    /// Writes the content of memory, `bytes` from `phys` on, in as many records as that takes.
    ///
    /// # Errors
    /// The sink's.
    pub fn memory(&mut self, phys: u64, bytes: &[u8]) -> Result<(), S::Error> {
        for (n, part) in bytes.chunks(MAX_BYTES).enumerate() {
            let phys = phys.wrapping_add((n * MAX_BYTES) as u64);
            self.record(&Record::Memory { phys, bytes: part })?;
        }
        Ok(())
    }

    /// Ends the log: no record may follow. With `all_freed`, tables that are still allocated are
    /// leaks.
    ///
    /// # Errors
    /// The sink's.
    pub fn end(&mut self, all_freed: bool) -> Result<(), S::Error> {
        self.record(&Record::End { all_freed })
    }

    /// Returns the sink, to flush it say.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Returns the sink.
    #[must_use]
    pub fn into_sink(self) -> S {
        self.sink
    }

    fn write(&mut self, pc: Option<u64>, record: &Record<'_>) -> Result<(), S::Error> {
        let mut payload = Payload::new();
        if let Some(pc) = pc {
            payload.number(pc);
        }
        let kind = put(&mut payload, record);
        let fields = payload.as_bytes();
        let mut bytes = [0; MAX_RECORD];
        let end = 2 + fields.len();
        bytes[0] = if pc.is_some() { kind | kind::WITH_PC } else { kind };
        // A payload has at most 255 bytes.
        bytes[1] = fields.len() as u8;
        bytes[2..end].copy_from_slice(fields);
        self.check = self.check.with(&bytes[..end]);
        bytes[end..end + CHECK_BYTES].copy_from_slice(&self.check.value().to_le_bytes());
        self.sink.take(&bytes[..end + CHECK_BYTES])
    }
}

/// Writes the fields of a record; returns the number of its kind.
fn put(to: &mut Payload, record: &Record<'_>) -> u8 {
    let mut numbers = |kind, values: &[u64]| {
        values.iter().for_each(|value| to.number(*value));
        kind
    };
    match *record {
        Record::TableAllocated { phys, size, level, content } => {
            let level = level.map_or(0, |level| u64::from(level) + 1);
            numbers(kind::TABLE_ALLOCATED, &[phys, size, level, content as u64])
        }
        Record::TableFreed { phys, size } => numbers(kind::TABLE_FREED, &[phys, size]),
        Record::Store { phys, value, bytes } => numbers(kind::STORE, &[phys, u64::from(bytes), value]),
        Record::Exchange { phys, value, bytes } => {
            numbers(kind::STORE, &[phys, u64::from(bytes), value, EXCHANGED])
        }
        Record::Fill { phys, bytes, value } => numbers(kind::FILL, &[phys, bytes, value]),
        Record::Memory { phys, bytes } => {
            to.number(phys);
            to.raw(&bytes[..bytes.len().min(MAX_BYTES)]);
            kind::MEMORY
        }
        Record::RootLoaded { cpu, root, space, flushes } => {
            numbers(kind::ROOT_LOADED, &[cpu.into(), root, space, flushes.into()])
        }
        Record::Lazy { cpu } => numbers(kind::LAZY, &[cpu.into()]),
        Record::Resume { cpu } => numbers(kind::RESUME, &[cpu.into()]),
        Record::Leave { cpu } => numbers(kind::LEAVE, &[cpu.into()]),
        Record::Invalidate { cpu, scope, leaf_only, level, exception_level } => {
            to.number(cpu.map_or(0, |cpu| u64::from(cpu) + 1));
            put_scope(to, scope, leaf_only);
            put_levels(to, level, exception_level);
            kind::INVALIDATE
        }
        Record::SpaceCreated { space } => numbers(kind::SPACE_CREATED, &[space]),
        Record::SpaceDestroyed { space } => numbers(kind::SPACE_DESTROYED, &[space]),
        Record::DataMapped { space, va } => numbers(kind::DATA_MAPPED, &[space, va]),
        Record::Barrier { cpu, kind } => numbers(kind::BARRIER, &[cpu.into(), kind as u64]),
        Record::FlushesDone => kind::FLUSHES_DONE,
        Record::Running { cpu } => numbers(kind::RUNNING, &[cpu.into()]),
        Record::Stage1Flushed { cpu } => numbers(kind::STAGE1_FLUSHED, &[cpu.into()]),
        Record::DataFreed { phys, size } => numbers(kind::DATA_FREED, &[phys, size]),
        Record::DataReused { phys, size } => numbers(kind::DATA_REUSED, &[phys, size]),
        Record::OperationBegins { id } => numbers(kind::OPERATION_BEGINS, &[id]),
        Record::OperationEnds { id } => numbers(kind::OPERATION_ENDS, &[id]),
        Record::Access { cpu, va, kind, user } => {
            numbers(kind::ACCESS, &[cpu.into(), va, kind as u64 | u64::from(user) << 2])
        }
        Record::FlushQueued { device, scope, leaf_only, level, exception_level } => {
            to.number(device.into());
            put_scope(to, scope, leaf_only);
            put_levels(to, level, exception_level);
            kind::FLUSH_QUEUED
        }
        Record::QueueCompleted { device } => numbers(kind::QUEUE_COMPLETED, &[device.into()]),
        Record::DeviceEntry { device, phys, bytes, word, valid } => {
            numbers(kind::DEVICE_ENTRY, &[device.into(), phys, bytes.into(), word.into(), valid])
        }
        Record::DeviceEntryWritten { phys, bytes } => {
            let bytes = &bytes[..bytes.len().min(MAX_ENTRY)];
            to.number(phys);
            to.number(bytes.len() as u64);
            to.raw(bytes);
            kind::DEVICE_ENTRY_WRITTEN
        }
        Record::DeviceEntriesFlushed { device, phys } => {
            numbers(kind::DEVICE_ENTRIES_FLUSHED, &[device.into()]);
            put_optional(to, phys);
            kind::DEVICE_ENTRIES_FLUSHED
        }
        Record::ReaderBegins { id, root } => numbers(kind::READER_BEGINS, &[id, root]),
        Record::ReaderReads { id, table } => numbers(kind::READER_READS, &[id, table]),
        Record::ReaderEnds { id } => numbers(kind::READER_ENDS, &[id]),
        Record::LockGuards { table, lock, flush_first } => {
            numbers(kind::LOCK_GUARDS, &[table, lock, flush_first.into()])
        }
        Record::LockTaken { cpu, lock, shared } => {
            numbers(kind::LOCK_TAKEN, &[cpu.into(), lock, shared.into()])
        }
        Record::LockReleased { cpu, lock } => numbers(kind::LOCK_RELEASED, &[cpu.into(), lock]),
        Record::NumberGiven { root, space } => numbers(kind::NUMBER_GIVEN, &[root, space]),
        Record::NumbersTakenBack => kind::NUMBERS_TAKEN_BACK,
        Record::Stage1PartFlushed { cpu, number, va } => {
            to.number(cpu.into());
            put_optional(to, number);
            put_optional(to, va);
            kind::STAGE1_PART_FLUSHED
        }
        Record::AccessCombined { cpu, number, va, gpa, kind } => {
            numbers(kind::ACCESS_COMBINED, &[cpu.into(), number, va, gpa, kind as u64])
        }
        Record::Mark { text } => {
            to.raw(&text.as_bytes()[..text.floor_char_boundary_at(MAX_TEXT)]);
            kind::MARK
        }
        Record::End { all_freed } => numbers(kind::END, &[all_freed.into()]),
    }
}

fn put_scope(to: &mut Payload, scope: Scope, leaf_only: bool) {
    let what = match scope {
        Scope::Page { .. } => kind::PAGE,
        Scope::Range { .. } => kind::RANGE,
        Scope::EverySpace { .. } => kind::EVERY_SPACE,
        Scope::Space(_) => kind::SPACE,
        Scope::All => kind::ALL,
    };
    to.byte(what | u8::from(leaf_only) << 7);
    let mut numbers = |values: &[u64]| values.iter().for_each(|value| to.number(*value));
    match scope {
        Scope::Page { space, va } => numbers(&[space, va]),
        Scope::Range { space, start, end, stride } => numbers(&[space, start, end, stride]),
        Scope::EverySpace { start, end, stride } => numbers(&[start, end, stride]),
        Scope::Space(space) => numbers(&[space]),
        Scope::All => {}
    }
}

/// Writes the levels that an invalidation names, of its pages and of its tables: as many
/// fields as it needs.
fn put_levels(to: &mut Payload, level: Option<u8>, exception_level: Option<ExceptionLevel>) {
    if level.is_some() || exception_level.is_some() {
        to.number(level.map_or(0, |level| u64::from(level) + 1));
    }
    if let Some(exception_level) = exception_level {
        to.number(exception_level as u64);
    }
}

/// Writes 0, or 1 and a number.
fn put_optional(to: &mut Payload, value: Option<u64>) {
    to.number(value.is_some().into());
    if let Some(value) = value {
        to.number(value);
    }
}

/// Cuts texts between characters.
trait Cut {
    fn floor_char_boundary_at(&self, most: usize) -> usize;
}

impl Cut for str {
    fn floor_char_boundary_at(&self, most: usize) -> usize {
        if self.len() <= most {
            return self.len();
        }
        (0..=most).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}
