//! Ring buffers of perf events, one per CPU.
//!
//! ```text
//!  kernel     writes a record ── data_head, release
//!  drain      head: acquire ──> copies the records out ── tail: release ──> free for the kernel
//!             └────── tail ─────── record ─── record ─── part ───────┘ head
//! ```
//!
//! # Why
//!
//! Kernel and recorder share the memory and take no lock: each writes one word of its own. A record
//! is copied out before the tail moves, because the kernel writes over it from then on. The records
//! are given on once the copy is whole. A record may go around the end of the ring, and its length
//! may be nonsense: then the rest is counted as lost, because otherwise a bad length would make
//! garbage of all records behind it.
use crate::linux::allowed;
use perf_event_open_sys::{bindings as b, ioctls};
use ptarmigan_term::{Bytes, Failure};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a ring that need no privileges: `perf_event_mlock_kb` is 516 for each CPU.
const RING: usize = 512 << 10;
/// Bytes of a ring of events, the first that a user may have for all CPUs.
pub(crate) const EVENTS: &[usize] = &[2 << 20, RING];
/// The same for samples, which are larger, and beside the others.
pub(crate) const SAMPLES: &[usize] = &[8 << 20, 2 << 20, RING, RING / 4, RING / 8];
const PAGE: usize = 4096;

/// The most bytes of a record, whose length is a number of 16 bits.
const LONGEST: usize = 1 << 16;

/// A record in a ring, header included. Its length says nothing: the kernel makes a sample longer
/// than its fields if another event on the same occurrence has a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Sample(&'a [u8]),
    /// A mapping (`PERF_RECORD_MMAP2`).
    Mapping(&'a [u8]),
    /// So many records had no room.
    Lost(u64),
    /// A new task (`PERF_RECORD_FORK`).
    Fork(&'a [u8]),
    /// A task has the memory of a new program (`PERF_RECORD_COMM` of an execve).
    Exec(&'a [u8]),
    /// Another record of a task, which other sources tell of.
    OfTask,
    /// A record that no event here was opened for, or a part of one.
    Unknown,
}

/// Returns the bits of a record's head beside its kind and length.
fn misc(r: &[u8]) -> u16 {
    r.get(4..6).map_or(0, |misc| u16::from_le_bytes([misc[0], misc[1]]))
}

/// Returns whether the kernel, not its task, made an event.
pub(crate) fn is_of_kernel(r: &[u8]) -> bool {
    u32::from(misc(r)) & b::PERF_RECORD_MISC_CPUMODE_MASK == b::PERF_RECORD_MISC_KERNEL
}

impl<'a> Record<'a> {
    fn of(kind: u32, r: &'a [u8]) -> Self {
        let number = |at: usize| Some(u64::from_le_bytes(r.get(at..at + 8)?.try_into().ok()?));
        let lost = |at| number(at).map_or(Self::Unknown, Self::Lost);
        match kind {
            b::PERF_RECORD_SAMPLE => Self::Sample(r),
            b::PERF_RECORD_MMAP2 => Self::Mapping(r),
            // Behind the event's identifier.
            b::PERF_RECORD_LOST => lost(16),
            b::PERF_RECORD_LOST_SAMPLES => lost(8),
            b::PERF_RECORD_FORK => Self::Fork(r),
            b::PERF_RECORD_COMM if misc(r) & b::PERF_RECORD_MISC_COMM_EXEC as u16 != 0 => Self::Exec(r),
            b::PERF_RECORD_EXIT | b::PERF_RECORD_COMM => Self::OfTask,
            _ => Self::Unknown,
        }
    }
}

/// A record that is not as this program knows it: too short for its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strange;

/// Counts the records of a recording that are not as this program knows them. Each is counted as a
/// lost event.
#[derive(Clone, Debug, Default)]
pub(crate) struct StrangeRecords(Arc<AtomicU64>);

impl StrangeRecords {
    /// Counts a record.
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of records so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A ring buffer shared with the kernel.
pub(crate) struct PerfRing {
    fd: OwnedFd,
    base: *mut u8,
    bytes: usize,
    record: Vec<u8>,
}

// SAFETY: only the owner of the ring uses the mapping, one thread at a time.
unsafe impl Send for PerfRing {}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: `base` is the start of a mapping of this length that only the ring uses. A
        // failure leaks it.
        let _ = unsafe { munmap(self.base.cast(), PAGE + self.bytes) };
    }
}

impl AsFd for PerfRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the attributes of a software event that is sampled on the recorder's clock.
pub(crate) fn software(config: u32, samples: u32) -> b::perf_event_attr {
    let mut attr = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: b::PERF_TYPE_SOFTWARE,
        config: config.into(),
        sample_type: samples.into(),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_use_clockid(1);
    attr
}

/// Adds records of mappings, whether they are executable or not, and where they belong.
pub(crate) fn with_mappings(attr: &mut b::perf_event_attr) {
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_mmap_data(1);
    attr.set_sample_id_all(1);
}

/// Opens an event of a task and its descendants on one CPU, or of all tasks on it if `pid` is -1.
pub(crate) fn open_event(attr: &mut b::perf_event_attr, pid: i32, cpu: u16) -> io::Result<OwnedFd> {
    let flags = b::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attr` is a valid perf_event_attr with its size set, and lives until the call
    // returns.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attr, pid, cpu.into(), -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so `fd` is open, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl PerfRing {
    /// Opens an event as [`open_event`] does, with a ring of `bytes`, a power of two.
    pub(crate) fn open(
        attr: &mut b::perf_event_attr,
        pid: i32,
        cpu: u16,
        bytes: usize,
    ) -> Result<Self, Failure> {
        attr.__bindgen_anon_2.wakeup_watermark = (bytes / 8) as u32;
        attr.set_watermark(1);
        Self::map(attr, pid, cpu, bytes)
    }

    /// Opens a ring as [`open`](Self::open) does, whose descriptor becomes readable at each record.
    pub(crate) fn waking(
        attr: &mut b::perf_event_attr,
        pid: i32,
        cpu: u16,
        bytes: usize,
    ) -> Result<Self, Failure> {
        attr.__bindgen_anon_2.wakeup_events = 1;
        Self::map(attr, pid, cpu, bytes)
    }

    fn map(attr: &mut b::perf_event_attr, pid: i32, cpu: u16, bytes: usize) -> Result<Self, Failure> {
        let fd = open_event(attr, pid, cpu).map_err(|e| allowed::no_perf_events(&e))?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other.
        let base = unsafe { mmap(std::ptr::null_mut(), PAGE + bytes, prot, MapFlags::SHARED, &fd, 0) };
        let base = base.map_err(|e| {
            Failure::new(match e {
                rustix::io::Errno::PERM => format!(
                    "perf: a buffer of {} KiB for each CPU is more than kernel.perf_event_mlock_kb leaves to \
                     this user; wait for the end of other recordings",
                    Bytes(bytes as u64).kib()
                ),
                e => format!("perf: a buffer: {e}"),
            })
        })?;
        Ok(Self { fd, base: base.cast(), bytes, record: vec![0; LONGEST] })
    }

    /// Writes the records of another event on the same CPU into this ring, too.
    pub(crate) fn take_from(&self, event: &OwnedFd) -> io::Result<()> {
        // SAFETY: SET_OUTPUT takes a descriptor, and accesses no memory.
        done(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), self.fd.as_raw_fd()) })
    }
}

/// Opens rings on all `cpus`, of the first of `sizes` that is possible on each of them.
pub(crate) fn on_all<R>(
    cpus: &[u16],
    sizes: &[usize],
    open: impl Fn(u16, usize) -> Result<R, Failure>,
) -> Result<Vec<R>, Failure> {
    let mut rings = Err(Failure::quiet());
    for &bytes in sizes {
        rings = cpus.iter().map(|&cpu| open(cpu, bytes)).collect();
        if rings.is_ok() {
            break;
        }
    }
    rings
}

/// Returns the identifier that the samples of an event have.
pub(crate) fn identifier(event: &impl AsFd) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: ID writes one word, to a variable that lives until the call returns.
    done(unsafe { ioctls::ID(event.as_fd().as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Restricts an event of a tracepoint.
pub(crate) fn filter(event: &OwnedFd, filter: &CStr) -> io::Result<()> {
    // SAFETY: SET_FILTER reads a string up to its zero byte, and does not write to it.
    done(unsafe { ioctls::SET_FILTER(event.as_raw_fd(), filter.as_ptr().cast_mut()) })
}

/// Starts an event.
pub(crate) fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: ENABLE takes a number, and accesses no memory.
    done(unsafe { ioctls::ENABLE(event.as_raw_fd(), 0) })
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl PerfRing {
    /// Copies `len` bytes from position `at` to the beginning of the record. Positions continue
    /// past the end of the ring.
    fn copy(&mut self, at: u64, len: usize) {
        let start = at as usize % self.bytes;
        let first = len.min(self.bytes - start);
        for (from, to, n) in [(start, 0, first), (0, first, len - first)] {
            let out = &mut self.record[to..to + n];
            // SAFETY: `from + n` is at most `bytes`, and the data starts one page into a mapping of
            // PAGE + `bytes` bytes. The kernel does not write there until the tail has moved past
            // it, and `out` is memory of this process alone.
            unsafe { std::ptr::copy_nonoverlapping(self.base.add(PAGE + from), out.as_mut_ptr(), n) };
        }
    }

    /// Gives all records to `each`. Returns how many bytes they were.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Record<'_>) -> io::Result<()>) -> io::Result<u64> {
        let page = self.base.cast::<b::perf_event_mmap_page>();
        // SAFETY: the mapping starts with this page. Head and tail are aligned 64-bit words that
        // live as long as the mapping, and both sides access them only as atomics.
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let mut at = start;
        while end.wrapping_sub(at) >= 8 {
            self.copy(at, 8);
            let r = &self.record;
            let kind = u32::from_le_bytes([r[0], r[1], r[2], r[3]]);
            let size = u16::from_le_bytes([r[6], r[7]]);
            if size < 8 || u64::from(size) > end.wrapping_sub(at) {
                // The next record begins nobody knows where.
                each(Record::Unknown)?;
                at = end;
                break;
            }
            self.copy(at, size.into());
            each(Record::of(kind, &self.record[..size.into()]))?;
            at = at.wrapping_add(size.into());
        }
        tail.store(at, Ordering::Release);
        Ok(at.wrapping_sub(start))
    }
}

/// Parses a list of CPUs such as `0-3,8`.
fn list(text: &str) -> Vec<u16> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u16>(), last.parse::<u16>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

pub(crate) fn cpus(which: &str) -> Vec<u16> {
    let found = list(&fs::read_to_string(format!("/sys/devices/system/cpu/{which}")).unwrap_or_default());
    if found.is_empty() { vec![0] } else { found }
}

#[cfg(test)]
mod tests {
    use super::{Record, b, is_of_kernel};

    #[test]
    fn records_are_known_by_their_kind_and_losses_are_numbers() {
        let mut record = [0; 40];
        (record[8], record[16]) = (3, 4);
        assert_eq!(Record::of(b::PERF_RECORD_SAMPLE, &record), Record::Sample(&record));
        assert_eq!(Record::of(b::PERF_RECORD_MMAP2, &record), Record::Mapping(&record));
        assert_eq!(Record::of(b::PERF_RECORD_LOST, &record), Record::Lost(4));
        assert_eq!(Record::of(b::PERF_RECORD_LOST_SAMPLES, &record), Record::Lost(3));
        assert_eq!(Record::of(b::PERF_RECORD_LOST, &record[..16]), Record::Unknown);
        assert_eq!(Record::of(b::PERF_RECORD_EXIT, &record), Record::OfTask);
        assert_eq!(Record::of(b::PERF_RECORD_COMM, &record), Record::OfTask);
        assert_eq!(Record::of(b::PERF_RECORD_FORK, &record), Record::Fork(&record));
        assert_eq!(Record::of(b::PERF_RECORD_THROTTLE, &record), Record::Unknown);
        assert_eq!(Record::of(9999, &record), Record::Unknown);
        let mut exec = record;
        exec[5] = 0x20;
        assert_eq!(Record::of(b::PERF_RECORD_COMM, &exec), Record::Exec(&exec));
        (record[4], exec[4]) = (1, 2);
        assert!(is_of_kernel(&record) && !is_of_kernel(&exec) && !is_of_kernel(&[]));
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(super::list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(super::list("0"), [0]);
        assert!(super::list("").is_empty() && super::list("x-y").is_empty());
    }

    #[test]
    fn rings_of_all_cpus_have_the_largest_size_that_all_can_have() {
        let room = std::cell::Cell::new(0);
        let with_room = |all: usize| {
            room.set(all);
            let open = |cpu, bytes| {
                let left = room.get().checked_sub(bytes).ok_or_else(|| super::Failure::new("no room"))?;
                room.set(left);
                Ok((cpu, bytes))
            };
            super::on_all(&[0, 3], &[8, 2, 1], open).ok()
        };
        assert_eq!(with_room(16), Some(vec![(0, 8), (3, 8)]));
        // The room of the larger size is not given back here.
        assert_eq!(with_room(12), Some(vec![(0, 2), (3, 2)]));
        assert_eq!(with_room(1), None);
    }
}
