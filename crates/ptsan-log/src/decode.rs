//! Reads one record from bytes that may be arbitrary.
use crate::header::SECOND_VERSION;
use crate::record::{
    AccessKind, BarrierKind, Content, EXCHANGED, ExceptionLevel, MAX_BYTES, MAX_ENTRY, MAX_FILL, Record,
    Scope, kind,
};
use crate::wire::{Bad, CHECK_BYTES, Check, Fields};
use core::fmt;

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The record; `None` for one of a kind that may be skipped and is not known.
    pub record: Option<Record<'a>>,
    /// The address of the instruction that did it, if the log says so.
    pub pc: Option<u64>,
    /// How many bytes it took.
    pub used: usize,
    /// The check to go on with.
    pub check: Check,
}

/// An error of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Bytes are missing: as many as the record has are given.
    Short(usize),
    /// The check does not match: bytes before it were changed, lost or repeated.
    Check {
        /// The value in the log.
        found: u16,
        /// The value of the bytes.
        expected: u16,
    },
    /// A kind of record that is not known and may not be skipped.
    Kind(u8),
    /// A record of a later version than that of the log.
    Newer {
        /// The kind of the record.
        kind: u8,
        /// The version that has such records.
        needs: u16,
        /// The version of the log.
        version: u16,
    },
    /// A field is missing or out of range.
    Field {
        /// The kind of the record.
        kind: u8,
        /// The field.
        name: &'static str,
        /// Its value; `None` if it is missing.
        value: Option<u64>,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(needed) => write!(f, "the record has {needed} bytes, and the log ends before"),
            Self::Check { found, expected } => write!(
                f,
                "the check is {found:#06x} and not {expected:#06x}: bytes of this record or of one before it were \
                 changed or lost"
            ),
            Self::Kind(kind) => write!(f, "records of kind {kind:#04x} are not known"),
            Self::Newer { kind, needs, version } => write!(
                f,
                "record of kind {kind:#04x}: version {needs} of the format has it, and the header says version \
                 {version}"
            ),
            Self::Field { kind, name, value: Some(value) } => {
                write!(f, "record of kind {kind:#04x}: {name} cannot be {value:#x}")
            }
            Self::Field { kind, name, value: None } => {
                write!(f, "record of kind {kind:#04x}: {name} is missing")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads the record at the start of `bytes`. `check` is that of all bytes before it, `version` that
/// of the log.
///
/// # Errors
/// See [`DecodeError`].
pub fn decode(bytes: &[u8], check: Check, version: u16) -> Result<Decoded<'_>, DecodeError> {
    let &[tag, length, ..] = bytes else { return Err(DecodeError::Short(2)) };
    let end = 2 + usize::from(length);
    let used = end + CHECK_BYTES;
    let (Some(body), Some(&[low, high])) = (bytes.get(..end), bytes.get(end..used)) else {
        return Err(DecodeError::Short(used));
    };
    let check = check.with(body);
    let found = u16::from_le_bytes([low, high]);
    if found != check.value() {
        return Err(DecodeError::Check { found, expected: check.value() });
    }
    let kind = tag & !kind::WITH_PC;
    let bad = |(name, value): Bad| DecodeError::Field { kind, name, value };
    let mut fields = Fields(&body[2..]);
    let pc = if tag & kind::WITH_PC == 0 { None } else { Some(fields.number("pc").map_err(bad)?) };
    let newer = DecodeError::Newer { kind, needs: SECOND_VERSION, version };
    if version < SECOND_VERSION && (kind::SECOND..=kind::LAST).contains(&kind) {
        return Err(newer);
    }
    let record = match get(kind, &mut fields).map_err(bad)? {
        Some(Record::Barrier { kind: BarrierKind::Stores, .. }) if version < SECOND_VERSION => {
            return Err(newer);
        }
        None if kind < kind::OPTIONAL => return Err(DecodeError::Kind(kind)),
        record => record,
    };
    Ok(Decoded { record, pc, used, check })
}

/// Reads the fields of a record; `None` if its kind is not known. Bytes behind the fields that are
/// known are ignored.
fn get<'a>(kind: u8, f: &mut Fields<'a>) -> Result<Option<Record<'a>>, Bad> {
    Ok(Some(match kind {
        kind::TABLE_ALLOCATED => Record::TableAllocated {
            phys: f.number("address")?,
            size: f.number("size")?,
            level: match f.small::<u8>("level")? {
                0 => None,
                level => Some(level - 1),
            },
            content: match f.number("content")? {
                0 => Content::Zero,
                1 => Content::Unknown,
                2 => Content::Unchecked,
                other => return Err(("content", Some(other))),
            },
        },
        kind::TABLE_FREED => Record::TableFreed { phys: f.number("address")?, size: f.number("size")? },
        kind::STORE => {
            let phys = f.number("address")?;
            let bytes = match f.number("bytes")? {
                bytes @ (1 | 2 | 4 | 8) => bytes,
                other => return Err(("bytes", Some(other))),
            };
            if !phys.is_multiple_of(bytes) {
                return Err(("address", Some(phys)));
            }
            let (bytes, value) = (bytes as u8, f.number("value")?);
            // Logs of encoders that know no exchange end here.
            match f.optional("exchanged")? {
                None | Some(0) => Record::Store { phys, value, bytes },
                Some(EXCHANGED) => Record::Exchange { phys, value, bytes },
                other => return Err(("exchanged", other)),
            }
        }
        kind::FILL => {
            let (phys, bytes) = (f.number("address")?, f.number("bytes")?);
            if !phys.is_multiple_of(8) || phys.checked_add(bytes).is_none() {
                return Err(("address", Some(phys)));
            }
            if !bytes.is_multiple_of(8) || bytes > MAX_FILL {
                return Err(("bytes", Some(bytes)));
            }
            Record::Fill { phys, bytes, value: f.number("value")? }
        }
        kind::MEMORY => {
            let (phys, bytes) = (f.number("address")?, f.rest());
            if bytes.len() > MAX_BYTES {
                return Err(("bytes", Some(bytes.len() as u64)));
            }
            if phys.checked_add(bytes.len() as u64).is_none() {
                return Err(("address", Some(phys)));
            }
            Record::Memory { phys, bytes }
        }
        kind::ROOT_LOADED => Record::RootLoaded {
            cpu: f.small("CPU")?,
            root: f.number("root")?,
            space: f.number("space")?,
            flushes: flag(f, "flags")?,
        },
        kind::LAZY => Record::Lazy { cpu: f.small("CPU")? },
        kind::RESUME => Record::Resume { cpu: f.small("CPU")? },
        kind::LEAVE => Record::Leave { cpu: f.small("CPU")? },
        kind::INVALIDATE => {
            let cpu = match f.number("CPU")? {
                0 => None,
                cpu => Some(u16::try_from(cpu - 1).map_err(|_| ("CPU", Some(cpu)))?),
            };
            let (scope, leaf_only) = scope(f)?;
            let (level, exception_level) = levels(f)?;
            Record::Invalidate { cpu, scope, leaf_only, level, exception_level }
        }
        kind::SPACE_CREATED => Record::SpaceCreated { space: f.number("space")? },
        kind::SPACE_DESTROYED => Record::SpaceDestroyed { space: f.number("space")? },
        kind::DATA_MAPPED => Record::DataMapped { space: f.number("space")?, va: f.number("address")? },
        kind::BARRIER => Record::Barrier {
            cpu: f.small("CPU")?,
            kind: match f.number("barrier")? {
                0 => BarrierKind::Data,
                1 => BarrierKind::Instruction,
                2 => BarrierKind::Fence,
                3 => BarrierKind::Stores,
                other => return Err(("barrier", Some(other))),
            },
        },
        kind::FLUSHES_DONE => Record::FlushesDone,
        kind::RUNNING => Record::Running { cpu: f.small("CPU")? },
        kind::STAGE1_FLUSHED => Record::Stage1Flushed { cpu: f.small("CPU")? },
        kind::DATA_FREED => Record::DataFreed { phys: f.number("address")?, size: f.number("size")? },
        kind::DATA_REUSED => Record::DataReused { phys: f.number("address")?, size: f.number("size")? },
        kind::OPERATION_BEGINS => Record::OperationBegins { id: f.number("operation")? },
        kind::OPERATION_ENDS => Record::OperationEnds { id: f.number("operation")? },
        kind::ACCESS => {
            let (cpu, va, what) = (f.small("CPU")?, f.number("address")?, f.number("access")?);
            let kind = access_kind(what & !4).ok_or(("access", Some(what)))?;
            Record::Access { cpu, va, kind, user: what & 4 != 0 }
        }
        kind::FLUSH_QUEUED => {
            let device = f.small("device")?;
            let (scope, leaf_only) = scope(f)?;
            let (level, exception_level) = levels(f)?;
            Record::FlushQueued { device, scope, leaf_only, level, exception_level }
        }
        kind::QUEUE_COMPLETED => Record::QueueCompleted { device: f.small("device")? },
        kind::DEVICE_ENTRY => device_entry(f)?,
        kind::DEVICE_ENTRY_WRITTEN => device_entry_written(f)?,
        kind::DEVICE_ENTRIES_FLUSHED => Record::DeviceEntriesFlushed {
            device: f.small("device")?,
            phys: optional(f, "one entry", "address")?,
        },
        kind::READER_BEGINS => Record::ReaderBegins { id: f.number("reader")?, root: f.number("root")? },
        kind::READER_READS => Record::ReaderReads { id: f.number("reader")?, table: f.number("table")? },
        kind::READER_ENDS => Record::ReaderEnds { id: f.number("reader")? },
        kind::LOCK_GUARDS => Record::LockGuards {
            table: f.number("table")?,
            lock: f.number("lock")?,
            flush_first: flag(f, "flags")?,
        },
        kind::LOCK_TAKEN => {
            Record::LockTaken { cpu: f.small("CPU")?, lock: f.number("lock")?, shared: flag(f, "shared")? }
        }
        kind::LOCK_RELEASED => Record::LockReleased { cpu: f.small("CPU")?, lock: f.number("lock")? },
        kind::NUMBER_GIVEN => Record::NumberGiven { root: f.number("root")?, space: f.number("space")? },
        kind::NUMBERS_TAKEN_BACK => Record::NumbersTakenBack,
        kind::STAGE1_PART_FLUSHED => Record::Stage1PartFlushed {
            cpu: f.small("CPU")?,
            number: optional(f, "one space", "number")?,
            va: optional(f, "one address", "address")?,
        },
        kind::ACCESS_COMBINED => {
            let (cpu, number) = (f.small("CPU")?, f.number("number")?);
            let (va, gpa) = (f.number("address")?, f.number("guest-physical address")?);
            let what = f.number("access")?;
            let kind = access_kind(what).ok_or(("access", Some(what)))?;
            Record::AccessCombined { cpu, number, va, gpa, kind }
        }
        kind::MARK => {
            let text = f.rest();
            Record::Mark { text: core::str::from_utf8(text).map_err(|_| ("text", Some(text.len() as u64)))? }
        }
        kind::END => Record::End { all_freed: flag(f, "flags")? },
        _ => return Ok(None),
    }))
}

/// Reads the scope of an invalidation, and whether it spares tables.
fn scope(f: &mut Fields<'_>) -> Result<(Scope, bool), Bad> {
    let what = f.byte("scope")?;
    let scope = match what & 0x7f {
        kind::PAGE => Scope::Page { space: f.number("space")?, va: f.number("address")? },
        kind::RANGE => Scope::Range {
            space: f.number("space")?,
            start: f.number("start")?,
            end: f.number("end")?,
            stride: f.number("stride")?,
        },
        kind::EVERY_SPACE => Scope::EverySpace {
            start: f.number("start")?,
            end: f.number("end")?,
            stride: f.number("stride")?,
        },
        kind::SPACE => Scope::Space(f.number("space")?),
        kind::ALL => Scope::All,
        other => return Err(("scope", Some(other.into()))),
    };
    Ok((scope, what & 0x80 != 0))
}

/// Reads the levels that an invalidation names, of its pages and of its tables. Logs of encoders
/// without levels end before them.
fn levels(f: &mut Fields<'_>) -> Result<(Option<u8>, Option<ExceptionLevel>), Bad> {
    let level = match f.optional("level")? {
        None | Some(0) => None,
        Some(above) => Some(u8::try_from(above - 1).map_err(|_| ("level", Some(above)))?),
    };
    let exception_level = match f.optional("exception level")? {
        None | Some(0) => None,
        Some(number) => Some(ExceptionLevel::of(number).ok_or(("exception level", Some(number)))?),
    };
    Ok((level, exception_level))
}

fn access_kind(what: u64) -> Option<AccessKind> {
    match what {
        0 => Some(AccessKind::Read),
        1 => Some(AccessKind::Write),
        2 => Some(AccessKind::Exec),
        _ => None,
    }
}

fn device_entry<'a>(f: &mut Fields<'a>) -> Result<Record<'a>, Bad> {
    let (device, phys) = (f.small("device")?, f.number("address")?);
    let bytes = match f.number("bytes")? {
        bytes @ (8 | 16 | 32 | 64) => bytes,
        other => return Err(("bytes", Some(other))),
    };
    if !phys.is_multiple_of(bytes) {
        return Err(("address", Some(phys)));
    }
    let word = match f.small::<u8>("word")? {
        word if u64::from(word) < bytes / 8 => word,
        other => return Err(("word", Some(other.into()))),
    };
    let valid = match f.number("valid bits")? {
        0 => return Err(("valid bits", Some(0))),
        valid => valid,
    };
    Ok(Record::DeviceEntry { device, phys, bytes: bytes as u8, word, valid })
}

fn device_entry_written<'a>(f: &mut Fields<'a>) -> Result<Record<'a>, Bad> {
    let (phys, bytes) = (f.number("address")?, f.number("bytes")?);
    if !bytes.is_power_of_two() || bytes > MAX_ENTRY as u64 {
        return Err(("bytes", Some(bytes)));
    }
    if !phys.is_multiple_of(bytes) {
        return Err(("address", Some(phys)));
    }
    Ok(Record::DeviceEntryWritten { phys, bytes: f.raw("content", bytes as usize)? })
}

/// Reads a flag, and the number that follows it if it is 1.
fn optional(f: &mut Fields<'_>, name: &'static str, value: &'static str) -> Result<Option<u64>, Bad> {
    Ok(if flag(f, name)? { Some(f.number(value)?) } else { None })
}

/// Reads a number whose bit 0 is known, and whose other bits are zero.
fn flag(f: &mut Fields<'_>, name: &'static str) -> Result<bool, Bad> {
    match f.number(name)? {
        value @ 0..=1 => Ok(value == 1),
        other => Err((name, Some(other))),
    }
}
