//! Rows, as reader and writer share them: kind numbers, tag bits, and the validity of events.
use crate::{Event, FailedCall, FaultFlags, Kind, Locking, MapFlags, Note, Symbols, tasks::Tasks};

/// The kind number that ends the rows.
pub(crate) const END: u8 = 15;
/// The kind number of clones.
pub(crate) const CLONE: usize = 1;
pub(crate) const NEW_CPU: u8 = 0x10;
pub(crate) const NEW_TASK: u8 = 0x20;
pub(crate) const SLOT_SHIFT: u8 = 6;
/// Page numbers and lengths are below this.
pub(crate) const MAX_PAGE: u64 = 1 << 52;
/// Times, in microseconds, are below this.
pub(crate) const MAX_TIME: u64 = 1 << 52;

/// Durations in any unit, and counts of notes, are below this.
pub(crate) const MAX_DURATION: u64 = 1 << 56;

/// Short names of the kinds, in the order of [`kind_index`].
pub const KIND_NAMES: [&str; 15] = [
    "fault",
    "clone",
    "exec",
    "area",
    "exit",
    "mmap",
    "munmap",
    "brk",
    "mremap",
    "mprotect",
    "madvise",
    "tlb-flush",
    "idle",
    "truth",
    "other",
];

/// The kind number of the rows that formats 2 and 3 have added. Their second byte is one of
/// [`more`].
pub(crate) const MORE: u8 = 14;

/// The second byte of rows of kind [`MORE`].
pub(crate) mod more {
    pub(crate) const TIME: u8 = 0;
    pub(crate) const LOCK: u8 = 1;
    pub(crate) const LOCK_ALL: u8 = 2;
    pub(crate) const STACK_LIMIT: u8 = 3;
    pub(crate) const NAME: u8 = 4;
    pub(crate) const PID: u8 = 5;
    pub(crate) const TOUCHED: u8 = 6;
    pub(crate) const FAILED_MPROTECT: u8 = 7;
    pub(crate) const FAILED_MADVISE: u8 = 8;
    pub(crate) const FAILED_LOCK: u8 = 9;
    pub(crate) const FAILED_MREMAP: u8 = 10;
    pub(crate) const TEXT: u8 = 11;
    pub(crate) const PLACE: u8 = 12;
    pub(crate) const TOOK: u8 = 13;
    pub(crate) const USED: u8 = 14;
    pub(crate) const MAPPED: u8 = 15;
    pub(crate) const RUNTIME: u8 = 16;
    pub(crate) const CALLER: u8 = 17;
    pub(crate) const STOP_COST: u8 = 18;
    /// The first that format 3 has added.
    pub(crate) const V3: u8 = TEXT;
}

/// Returns the number of a kind in the format, which is also its index in
/// [`Summary::by_kind`](crate::Summary::by_kind). The kinds that formats 2 and 3 have added share a
/// number.
#[must_use]
pub fn kind_index(kind: &Kind) -> usize {
    match kind {
        Kind::Fault { .. } => 0,
        Kind::Clone { .. } => CLONE,
        Kind::Exec { .. } => 2,
        Kind::Area { .. } => 3,
        Kind::Exit { .. } => 4,
        Kind::Mmap { .. } => 5,
        Kind::Munmap { .. } => 6,
        Kind::Brk { .. } => 7,
        Kind::Mremap { .. } => 8,
        Kind::Mprotect { .. } => 9,
        Kind::Madvise { .. } => 10,
        Kind::TlbFlush { .. } => 11,
        Kind::Idle => 12,
        Kind::Truth { .. } => 13,
        Kind::Lock { .. }
        | Kind::LockAll { .. }
        | Kind::StackLimit { .. }
        | Kind::Name(_)
        | Kind::Pid(_)
        | Kind::Touched { .. }
        | Kind::Failed { .. }
        | Kind::Note(_) => usize::from(MORE),
    }
}

pub(crate) fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

pub(crate) fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

fn range(start: u64, pages: u64) -> Result<(), &'static str> {
    if pages == 0 {
        return Err("a range of no pages");
    }
    page(start)?;
    if pages > MAX_PAGE - start { Err("a range that ends beyond the last page") } else { Ok(()) }
}

fn page(page: u64) -> Result<(), &'static str> {
    if page < MAX_PAGE { Ok(()) } else { Err("a page number of more than 52 bits") }
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
#[inline]
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
    match e.kind {
        Kind::Fault { page: p, flags } => page(p).and(only(flags.0, FaultFlags::ALL)),
        Kind::Clone { child, .. } => {
            if child != tasks.count() {
                return Err("a child whose number is not the next");
            }
            if tasks.room() { Ok(()) } else { Err("too many tasks") }
        }
        Kind::Exec { stack_end, .. } => page(stack_end),
        Kind::Area { start, pages, prot, .. }
        | Kind::Mprotect { start, pages, prot }
        | Kind::Failed { call: FailedCall::Mprotect { start, pages, prot }, .. } => {
            range(start, pages).and(only(prot.0, 7u8))
        }
        Kind::Mmap { start, pages, prot, flags } => {
            range(start, pages).and(only(prot.0, 7u8)).and(only(flags.0, MapFlags::ALL))
        }
        Kind::Munmap { start, pages }
        | Kind::Madvise { start, pages, .. }
        | Kind::Failed { call: FailedCall::Madvise { start, pages, .. }, .. } => range(start, pages),
        Kind::Brk { end } => page(end),
        // An old length of 0 duplicates a shared mapping.
        Kind::Mremap { from, old_pages, to, new_pages, .. } => {
            range(from, old_pages.max(1)).and(range(to, new_pages))
        }
        Kind::Failed { call: FailedCall::Mremap { start, pages, to, .. }, .. } => {
            range(start, pages).and(range(to, pages))
        }
        Kind::TlbFlush { pages, .. } | Kind::StackLimit { pages } => page(pages),
        Kind::Lock { start, pages, how } => {
            range(start, pages).and(only(how.0, (Locking::ALL | Locking::LATER) & !Locking::FUTURE))
        }
        Kind::Failed { call: FailedCall::Lock { start, pages, how }, .. } => {
            range(start, pages).and(only(how.0, Locking::ALL & !Locking::FUTURE))
        }
        Kind::LockAll { how } => only(how.0, Locking::ALL),
        Kind::Touched { start, pages, flags } => {
            let has = |flag: u8| flags.0 & flag != 0;
            let allowed = match (has(FaultFlags::HUGE), has(FaultFlags::WRITE)) {
                _ if matches!(flags, FaultFlags::WAITING | FaultFlags::POPULATED) => flags.0,
                (true, _) => FaultFlags::HUGE,
                (false, true) => FaultFlags::WRITE | FaultFlags::USER,
                (false, false) => FaultFlags::PRESENT | FaultFlags::USER,
            };
            range(start, pages).and(only(flags.0, allowed))
        }
        Kind::Note(note) => check_note(note, symbols),
        Kind::Exit { .. } | Kind::Idle | Kind::Truth { .. } | Kind::Name(_) | Kind::Pid(_) => Ok(()),
    }
}

fn check_note(note: Note, symbols: &Symbols) -> Result<(), &'static str> {
    match note {
        Note::Took { nanos, away, .. } => duration(nanos).and(duration(away)),
        Note::Used { user, system, minor, .. } => {
            duration(user).and(duration(system))?;
            if minor < MAX_DURATION { Ok(()) } else { Err("too many faults") }
        }
        Note::Mapped { start, pages, name, .. } => {
            range(start, pages)?;
            if !symbols.has_text(name) {
                return Err("a symbol's name that does not exist");
            }
            if name.is_some_and(|name| symbols.text(name).contains('/')) {
                return Err("the name of a mapping with a path");
            }
            Ok(())
        }
        Note::Caller { page: p, events, place, .. } => {
            page(p)?;
            if events == 0 || events >= MAX_DURATION {
                return Err("a caller of no or too many events");
            }
            if symbols.has_place(place) { Ok(()) } else { Err("a place that does not exist") }
        }
        Note::StopCost { nanos } => duration(nanos),
        Note::Runtime(_) => Ok(()),
    }
}

fn duration(units: u64) -> Result<(), &'static str> {
    if units < MAX_DURATION { Ok(()) } else { Err("a duration of more than 56 bits") }
}
