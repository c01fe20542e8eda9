//! User-mode page faults from an unprivileged perf event, through one ring buffer per CPU.
use super::merge::{Finished, Stream};
use super::spill::{self, Consumed, Room, Spill};
use crate::record::linux::allowed;
use crate::record::linux::raw::{Raw, RawKind};
use perf_event_open_sys::bindings as b;
use ptarmigan_replay::{Context, Failure};
use ptarmigan_trace::FaultFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes of a ring: the most that needs no privileges (`perf_event_mlock_kb` is 516).
const RING: usize = 512 << 10;
const PAGE: usize = 4096;
/// Bytes of a fault in the temporary file: time, address, task and CPU.
const NOTE: usize = 24;

/// A ring buffer shared with the kernel.
struct PerfRing {
    fd: OwnedFd,
    base: *mut u8,
}

// SAFETY: only the owner of the ring uses the mapping, one thread at a time.
unsafe impl Send for PerfRing {}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: `base` is the start of a mapping of this length that only the ring uses. A
        // failure leaks it.
        let _ = unsafe { munmap(self.base.cast(), PAGE + RING) };
    }
}

/// Opens the event of one task, its later children included, on one CPU.
fn open_event(pid: i32, cpu: u16) -> Result<OwnedFd, Failure> {
    let mut attr = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: b::PERF_TYPE_SOFTWARE,
        config: b::PERF_COUNT_SW_PAGE_FAULTS.into(),
        sample_type: (b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_ADDR | b::PERF_SAMPLE_CPU)
            .into(),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_watermark = (RING / 8) as u32;
    attr.set_watermark(1);
    attr.set_inherit(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_use_clockid(1);
    let flags = b::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attr` is a valid perf_event_attr with its size set, and lives until the call
    // returns.
    let fd = unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, pid, cpu.into(), -1, flags) };
    if fd < 0 {
        let e = io::Error::last_os_error();
        return Err(allowed::no_perf_events(&e));
    }
    // SAFETY: the call succeeded, so `fd` is open, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl PerfRing {
    fn open(pid: i32, cpu: u16) -> Result<Self, Failure> {
        let fd = open_event(pid, cpu)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other.
        let base = unsafe { mmap(std::ptr::null_mut(), PAGE + RING, prot, MapFlags::SHARED, &fd, 0) };
        let base = base.map_err(|e| {
            Failure::new(match e {
                rustix::io::Errno::PERM => format!(
                    "perf: a buffer of {} KiB for each CPU is more than kernel.perf_event_mlock_kb leaves to \
                     this user; wait for the end of other recordings",
                    RING >> 10
                ),
                e => format!("perf: a buffer: {e}"),
            })
        })?;
        Ok(Self { fd, base: base.cast() })
    }

    /// Lets an event of another task on the same CPU write to this ring.
    fn add(&self, event: &OwnedFd) -> io::Result<()> {
        // SAFETY: the request takes two descriptors, which are open, and accesses no memory.
        let done = unsafe { libc::ioctl(event.as_raw_fd(), b::SET_OUTPUT.into(), self.fd.as_raw_fd()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Copies `out.len()` bytes from position `at`. Positions continue past the end of the ring.
    fn copy(&self, at: u64, out: &mut [u8]) {
        for (i, o) in out.iter_mut().enumerate() {
            let at = (at as usize).wrapping_add(i) % RING;
            // SAFETY: `at` is below RING, and the data starts one page into a mapping of PAGE +
            // RING bytes. The kernel does not write there until the tail has moved past it.
            *o = unsafe { self.base.add(PAGE + at).read_volatile() };
        }
    }

    /// Moves all records to `out`. Returns how many were lost.
    fn drain(&self, out: &mut BufWriter<File>, room: &Room, bytes: &AtomicU64) -> io::Result<u64> {
        let page = self.base.cast::<b::perf_event_mmap_page>();
        // SAFETY: the mapping starts with this page. Head and tail are aligned 64-bit words that
        // live as long as the mapping, and both sides access them only as atomics.
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(&raw mut (*page).data_head), AtomicU64::from_ptr(&raw mut (*page).data_tail))
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        let mut lost = 0;
        while end.wrapping_sub(at) >= 8 {
            let mut r = [0u8; 40];
            self.copy(at, &mut r[..8]);
            let kind = u32::from_le_bytes([r[0], r[1], r[2], r[3]]);
            let size = u64::from(u16::from_le_bytes([r[6], r[7]]));
            if size < 8 || size > end.wrapping_sub(at) {
                break;
            }
            let n = (size as usize).min(r.len());
            self.copy(at, &mut r[..n]);
            if kind == b::PERF_RECORD_SAMPLE && n == 40 {
                // header, process, task, time, address, CPU
                let mut note = [0; NOTE];
                note[..16].copy_from_slice(&r[16..32]);
                note[16..20].copy_from_slice(&r[12..16]);
                note[20..].copy_from_slice(&r[32..36]);
                room.write(out, &note)?;
            } else if kind == b::PERF_RECORD_LOST && n >= 24 {
                lost += u64::from_le_bytes([r[16], r[17], r[18], r[19], r[20], r[21], r[22], r[23]]);
            }
            at = at.wrapping_add(size);
        }
        bytes.fetch_add(at.wrapping_sub(tail.load(Ordering::Relaxed)), Ordering::Relaxed);
        tail.store(at, Ordering::Release);
        Ok(lost)
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

fn cpus(which: &str) -> Vec<u16> {
    let found = list(&fs::read_to_string(format!("/sys/devices/system/cpu/{which}")).unwrap_or_default());
    if found.is_empty() { vec![0] } else { found }
}

/// Allows this process as many open files as it may have.
fn allow_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // With fewer, an event that cannot be opened says so.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// The running events of one command.
pub(crate) struct PerfFaults {
    readers: Vec<JoinHandle<io::Result<u64>>>,
    /// The events of all tasks but the first.
    others: Vec<OwnedFd>,
    stop: Arc<AtomicBool>,
    online: Vec<u16>,
    /// Bytes read from the kernel so far.
    pub(crate) bytes: Arc<AtomicU64>,
}

impl Drop for PerfFaults {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl PerfFaults {
    /// Starts to record tasks and all their later descendants. Without a task, nothing is recorded.
    pub(crate) fn start(pids: &[i32], spill: &Spill) -> Result<Self, Failure> {
        let online = cpus("online");
        let (stop, bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut faults =
            Self { readers: Vec::new(), others: Vec::new(), stop, online: online.clone(), bytes };
        let Some((&first, others)) = pids.split_first() else { return Ok(faults) };
        allow_files();
        for cpu in online {
            let ring = PerfRing::open(first, cpu)?;
            for &pid in others {
                let event = open_event(pid, cpu)?;
                ring.add(&event).context("perf: the event of another task")?;
                faults.others.push(event);
            }
            let file = File::create(spill.path(&format!("cpu{cpu}")))
                .context("the temporary files beside the output")?;
            let (stop, bytes) = (Arc::clone(&faults.stop), Arc::clone(&faults.bytes));
            let room = Arc::clone(&spill.room);
            let run = move || {
                let mut out = BufWriter::with_capacity(1 << 18, file);
                let mut lost = 0;
                loop {
                    let last = stop.load(Ordering::SeqCst);
                    lost += ring.drain(&mut out, &room, &bytes)?;
                    if last {
                        room.flush(&mut out)?;
                        return Ok(lost);
                    }
                    let mut fds = [PollFd::new(&ring.fd, PollFlags::IN)];
                    let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
                    // The ring is read whatever the result. After the end of all tasks the call
                    // returns at once, and the recording is about to stop.
                    if matches!(poll(&mut fds, Some(&wait)), Ok(n) if n > 0)
                        && fds[0].revents().contains(PollFlags::HUP)
                    {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                    }
                }
            };
            let reader = std::thread::Builder::new().name("reader".into()).spawn(run);
            faults.readers.push(reader.context("a thread")?);
        }
        Ok(faults)
    }

    /// Returns the number of CPUs, present or not.
    pub(crate) fn cpus() -> u16 {
        cpus("possible").last().map_or(1, |c| c.saturating_add(1))
    }

    /// Ends the recording. Returns the events of each CPU, how many were lost, and why the files
    /// end early, if they do.
    pub(crate) fn finish(mut self, spill: &Spill) -> Result<Finished, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let (mut streams, mut lost, mut failed) = (Vec::new(), 0, None);
        for (cpu, reader) in self.online.iter().zip(self.readers.drain(..)) {
            let Ok(done) = reader.join() else {
                return Err(Failure::new("a reader of the kernel's buffers failed"));
            };
            let file = spill::consume(&spill.path(&format!("cpu{cpu}")))
                .context("the temporary files beside the output")?;
            streams.push(Stream { events: Box::new(CpuFaults(file)), cut: done.is_err() });
            match done {
                Ok(missed) => lost += missed,
                Err(e) => failed = Some(e),
            }
        }
        Ok(Finished { streams, lost, failed })
    }
}

/// The faults of one CPU, in order of time.
pub(crate) struct CpuFaults(BufReader<Consumed>);

impl Iterator for CpuFaults {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        let mut note = [0; NOTE];
        self.0.read_exact(&mut note).ok()?;
        let word = |at: usize| u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let what = RawKind::Fault { address: long(8), code: FaultFlags::USER.into() };
        Some(Raw { time: long(0), cpu: word(20) as u16, pid: word(16) as i32, what })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_cpus() {
        assert_eq!(super::list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(super::list("0"), [0]);
        assert!(super::list("").is_empty() && super::list("x-y").is_empty());
    }
}
