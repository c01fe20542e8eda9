//! Rows, as reader and writer share them: kind numbers, tag bits, and the validity of events.
use crate::wire::{Known, Row};
use crate::{Event, FaultFlags, Kind, MapFlags, Symbols, tasks::Tasks};

/// The kind number that ends the rows.
pub(crate) const END: u8 = 15;
/// The kind number of clones.
pub(crate) const CLONE: usize = 1;
pub(crate) const NEW_CPU: u8 = 0x10;
pub(crate) const NEW_TASK: u8 = 0x20;
pub(crate) const SLOT_SHIFT: u8 = 6;
/// Times, in microseconds, are below this.
pub(crate) const MAX_TIME: u64 = 1 << 52;

/// The kind number of the rows that formats 2 to 4 have added. Their second byte is their own
/// number.
pub(crate) const MORE: u8 = 14;

/// The second byte of rows of kind [`MORE`] that are no events.
pub(crate) mod more {
    pub(crate) const TIME: u8 = 0;
    pub(crate) const TEXT: u8 = 11;
    pub(crate) const PLACE: u8 = 12;
    /// The first that format 3 has added.
    pub(crate) const V3: u8 = TEXT;
    /// The first that format 4 has added: a setting.
    pub(crate) const V4: u8 = 19;

    /// Returns the first version of the format that has a row of kind [`MORE`](super::MORE) with
    /// this second byte.
    pub(crate) const fn since(what: u8) -> u16 {
        match what {
            ..V3 => 2,
            V3..V4 => 3,
            V4.. => 4,
        }
    }
}

/// Returns the number of a kind in the format, which is also its index in
/// [`Summary::by_kind`](crate::Summary::by_kind). The kinds that formats 2 to 4 have added share a
/// number.
#[must_use]
#[inline]
pub fn kind_index(kind: &Kind) -> usize {
    let code = kind.code();
    usize::from(if code >> 8 == 0 { code } else { code >> 8 })
}

fn only(bits: impl Into<u16>, known: impl Into<u16>) -> Result<(), &'static str> {
    let (bits, known) = (bits.into(), known.into());
    if bits & !known == 0 { Ok(()) } else { Err("unknown flags") }
}

/// Returns whether an event of a trace of format 1 has flags that it cannot have.
#[inline]
pub(crate) fn check_v1(e: &Event) -> Result<(), &'static str> {
    match e.kind {
        Kind::Fault { flags, .. } => only(flags.0, FaultFlags::V1),
        Kind::Mmap { flags, .. } => only(flags.0, MapFlags::V1),
        _ => Ok(()),
    }
}

/// Returns the error of an event at this point, or `Ok`.
#[inline(always)]
pub(crate) fn check(e: &Event, cpus: u16, tasks: &Tasks, symbols: &Symbols) -> Result<(), &'static str> {
    if e.cpu >= cpus {
        return Err("a CPU that the header does not have");
    }
    let may_follow_exit = match &e.kind {
        Kind::TlbFlush { .. } | Kind::Idle => true,
        Kind::Note(note) => note.may_follow_exit(),
        _ => false,
    };
    if may_follow_exit {
        // A task tears down its address space and leaves its CPU after its exit event.
        if e.task >= tasks.count() {
            return Err("a task that was never made");
        }
    } else if !tasks.alive(e.task) {
        return Err("a task that is not alive");
    }
    e.kind.check(&Known { tasks, symbols })
}
