//! Reads one record from bytes that may be arbitrary.
use crate::coding::Stored;
use crate::header::SECOND_VERSION;
use crate::parts::BarrierKind;
use crate::record::Record;
use crate::wire::{Bad, CHECK_BYTES, Check, Fields, WITH_PC};
use core::fmt;
use core::ops::RangeInclusive;

/// The kinds of version 2 that a reader must know.
const SECOND: RangeInclusive<u8> = 0x14..=0x22;
/// The first kind that a reader may skip if it does not know it.
const OPTIONAL: u8 = 0x40;

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
    let kind = tag & !WITH_PC;
    let bad = |(name, value): Bad| DecodeError::Field { kind, name, value };
    let mut fields = Fields(&body[2..]);
    let pc = if tag & WITH_PC == 0 { None } else { Some(fields.number("pc").map_err(bad)?) };
    let newer = DecodeError::Newer { kind, needs: SECOND_VERSION, version };
    if version < SECOND_VERSION && SECOND.contains(&kind) {
        return Err(newer);
    }
    let record = match Record::get(kind, &mut fields).map_err(bad)? {
        Some(Record::Store { phys, value, bytes }) if Stored.is_exchange(&mut fields).map_err(bad)? => {
            Some(Record::Exchange { phys, value, bytes })
        }
        Some(Record::Barrier { kind: BarrierKind::Stores, .. }) if version < SECOND_VERSION => {
            return Err(newer);
        }
        None if kind < OPTIONAL => return Err(DecodeError::Kind(kind)),
        record => record,
    };
    Ok(Decoded { record, pc, used, check })
}
