//! Tracepoints, through a private tracefs instance.
use super::format::{Field, TracepointFormat};
use super::keeper;
use super::merge::{Finished, Stream};
use super::raw::{MmCall, Raw, RawKind};
use super::ring::PageLayout;
use super::spill::{self, Consumed, Room, Spill};
use crate::error::{Context, Failure};
use ptarmigan_trace::FaultFlags;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const ROOT: &str = "/sys/kernel/tracing";
/// Kernel memory per CPU. It is emptied every 50 ms, so it holds 1.5 million records per second and
/// CPU.
const BUFFER_KIB: u32 = 32 << 10;
/// Prefix of the instances' names; the process number follows.
const PREFIX: &str = "ptarmigan-";
const POLL: Duration = Duration::from_millis(50);

/// A group of tracepoints that make events of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Fault,
    Clone,
    ExecStart,
    ExecDone,
    Exit,
    Enter(MmCall),
    Leave,
    Locked,
    Refused,
    BadAddress,
    TlbFlush,
    Idle,
}

/// Path of the event, its group, the kernel's filter, the required fields.
type Wanted = (String, Point, Option<&'static str>, &'static [&'static str]);

fn wanted() -> Vec<Wanted> {
    let mut all: Vec<Wanted> = vec![
        ("exceptions/page_fault_user".into(), Point::Fault, None, &["address", "error_code"]),
        (
            "exceptions/page_fault_kernel".into(),
            Point::Fault,
            Some("address < 0x800000000000"),
            &["address", "error_code"],
        ),
        ("task/task_newtask".into(), Point::Clone, None, &["pid", "clone_flags"]),
        ("sched/sched_prepare_exec".into(), Point::ExecStart, None, &[]),
        ("sched/sched_process_exec".into(), Point::ExecDone, None, &["old_pid"]),
        ("sched/sched_process_exit".into(), Point::Exit, None, &[]),
        ("sched/sched_switch".into(), Point::Idle, Some("next_pid == 0"), &[]),
        // SIGBUS and SIGSEGV of the kernel's own: they follow the fault that they are for.
        (
            "signal/signal_generate".into(),
            Point::Refused,
            Some("(sig == 7 || sig == 11) && code > 0 && code < 128"),
            &[],
        ),
        // EFAULT: the kernel's faults on behalf of the call were refused.
        ("raw_syscalls/sys_exit".into(), Point::BadAddress, Some("ret == -14"), &[]),
        ("tlb/tlb_flush".into(), Point::TlbFlush, None, &["reason", "pages"]),
        (
            "mmap_lock/mmap_lock_acquire_returned".into(),
            Point::Locked,
            Some("write == 1 && success == 1"),
            &[],
        ),
    ];
    let calls: [(&str, MmCall, &'static [&'static str]); 12] = [
        ("mmap", MmCall::Mmap, &["addr", "len", "prot", "flags"]),
        ("munmap", MmCall::Munmap, &["addr", "len"]),
        ("brk", MmCall::Brk, &["brk"]),
        ("mremap", MmCall::Mremap, &["addr", "old_len", "new_len", "flags", "new_addr"]),
        ("mprotect", MmCall::Mprotect, &["start", "len", "prot"]),
        ("pkey_mprotect", MmCall::Mprotect, &["start", "len", "prot"]),
        ("madvise", MmCall::Madvise, &["start", "len_in", "behavior"]),
        ("mlock", MmCall::Mlock, &["start", "len"]),
        ("mlock2", MmCall::Mlock, &["start", "len", "flags"]),
        ("munlock", MmCall::Munlock, &["start", "len"]),
        ("mlockall", MmCall::Mlockall, &["flags"]),
        ("munlockall", MmCall::Munlockall, &[]),
    ];
    for (name, call, fields) in calls {
        all.push((format!("syscalls/sys_enter_{name}"), Point::Enter(call), None, fields));
        all.push((format!("syscalls/sys_exit_{name}"), Point::Leave, None, &["ret"]));
    }
    all
}

/// Returns whether a recording needs the tracepoints of a group. Kernels may lack the others.
fn required(p: Point) -> bool {
    !matches!(
        p,
        Point::Locked
            | Point::Refused
            | Point::BadAddress
            | Point::TlbFlush
            | Point::Enter(
                MmCall::Mlock | MmCall::Munlock | MmCall::Mlockall | MmCall::Munlockall | MmCall::Mprotect
            )
            | Point::Leave
    )
}

/// How a record is decoded.
#[derive(Clone, Debug)]
struct Reading {
    point: Point,
    fields: Vec<Field>,
}

/// Decodes ring-buffer records into raw events.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    layout: PageLayout,
    kind: Field,
    pid: Field,
    readings: HashMap<u16, Reading>,
}

impl Decoder {
    fn record(&self, time: u64, cpu: u16, record: &[u8]) -> Option<Raw> {
        let reading = self.readings.get(&(self.kind.get(record)? as u16))?;
        let pid = self.pid.get(record)? as i32;
        let f = |i: usize| reading.fields.get(i).and_then(|f| f.get(record));
        let what = match reading.point {
            // Bit 3 of the error code, a reserved bit in a table, is ours to use.
            Point::Fault => RawKind::Fault { address: f(0)?, code: f(1)? & 0x17 },
            Point::Clone => RawKind::Clone { child: f(0)? as i32, flags: f(1)? },
            Point::ExecStart => RawKind::ExecStart,
            Point::ExecDone => RawKind::ExecDone { old: f(0)? as i32 },
            Point::Exit => RawKind::Exit,
            Point::Enter(call) => {
                let mut args = [0; 5];
                for (i, arg) in args.iter_mut().enumerate() {
                    *arg = f(i).unwrap_or(0);
                }
                RawKind::Enter { call, args }
            }
            Point::Leave => RawKind::Leave { result: f(0)? as i64 },
            Point::Locked => RawKind::Locked,
            Point::Refused => RawKind::Refused,
            Point::BadAddress => RawKind::BadAddress,
            Point::TlbFlush => RawKind::TlbFlush { reason: f(0)? as u8, pages: f(1)? },
            Point::Idle => RawKind::Idle,
        };
        Some(Raw { time, cpu, pid, what })
    }
}

/// A running instance, removed on drop.
pub(super) struct Instance {
    dir: PathBuf,
    decoder: Decoder,
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<std::io::Result<()>>>,

    /// Bytes read from the kernel so far.
    pub(super) bytes: Arc<AtomicU64>,
    cpus: Vec<u16>,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        remove(&self.dir);
    }
}

/// Removes an instance. An open file in it keeps it busy for a moment.
fn remove(dir: &Path) {
    for _ in 0..100 {
        match fs::remove_dir(dir) {
            Err(e) if e.kind() == ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(10)),
            _ => return,
        }
    }
}

/// Removes the instances of recorders that were killed.
fn remove_stale() {
    for entry in fs::read_dir(Path::new(ROOT).join("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| pid == keeper::number() || !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

impl Instance {
    /// Checks that tracefs is usable, and mounts it if necessary.
    pub(super) fn available() -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it needs root".into());
        }
        if !super::proc::in_first_pid_namespace() {
            return Err("tracepoints number processes otherwise than this pid namespace".into());
        }
        if !Path::new(ROOT).join("instances").exists() {
            rustix::mount::mount("tracefs", ROOT, "tracefs", rustix::mount::MountFlags::empty(), None)
                .map_err(|e| format!("tracefs cannot be mounted at {ROOT}: {e}"))?;
        }
        for (event, point, ..) in wanted() {
            if required(point) && !Path::new(ROOT).join("events").join(&event).exists() {
                return Err(format!("this kernel has no tracepoint {event}"));
            }
        }
        Ok(())
    }

    /// Creates an instance that records nothing yet, with readers that write to `spill`.
    pub(super) fn new(spill: &Spill) -> Result<Self, Failure> {
        let dir = Path::new(ROOT).join("instances").join(format!("{PREFIX}{}", keeper::number()));
        remove_stale();
        fs::create_dir(&dir).context("tracefs: a new instance")?;
        let mut instance = Self {
            decoder: decoder(&dir).inspect_err(|_| remove(&dir))?,
            dir,
            stop: Arc::default(),
            readers: Vec::new(),
            bytes: Arc::default(),
            cpus: Vec::new(),
        };
        instance.write("tracing_on", "0")?;
        instance.write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        instance.write("trace_clock", "mono")?;
        instance.write("options/event-fork", "1")?;
        // On overflow, new records are dropped and counted.
        instance.write("options/overwrite", "0")?;
        for (event, point, filter, _) in wanted() {
            if !required(point) && !instance.dir.join("events").join(&event).exists() {
                continue;
            }
            if let Some(filter) = filter {
                instance.write(&format!("events/{event}/filter"), filter)?;
            }
            instance.write(&format!("events/{event}/enable"), "1")?;
        }
        instance.cpus = cpus(&instance.dir);
        for &cpu in &instance.cpus {
            let reader = reader(
                &instance.dir.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw")),
                &spill.path(&format!("cpu{cpu}")),
                instance.decoder.layout.size,
                Arc::clone(&spill.room),
                instance.dir.join("tracing_on"),
                Arc::clone(&instance.stop),
                Arc::clone(&instance.bytes),
            )
            .context("tracefs: a CPU's buffer")?;
            instance.readers.push(reader);
        }
        Ok(instance)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Failure> {
        // `fs::write` would create and truncate the file.
        OpenOptions::new()
            .write(true)
            .open(self.dir.join(file))
            .and_then(|mut f| f.write_all(text.as_bytes()))
            .context(format_args!("tracefs: {file}"))
    }

    /// Starts to record `pid` and all its descendants.
    pub(super) fn start(&self, pid: i32) -> Result<(), Failure> {
        self.write("set_event_pid", &pid.to_string())?;
        self.write("tracing_on", "1")
    }

    /// Returns the number of CPUs; all CPU numbers are below it.
    pub(super) fn cpus(&self) -> u16 {
        self.cpus.last().map_or(1, |c| c.saturating_add(1))
    }

    /// Returns whether TLB flushes are recorded.
    pub(super) fn sees_flushes(&self) -> bool {
        self.decoder.readings.values().any(|r| r.point == Point::TlbFlush)
    }

    /// Returns the tasks that are recorded now.
    pub(super) fn alive(&self) -> Vec<i32> {
        let pids = fs::read_to_string(self.dir.join("set_event_pid")).unwrap_or_default();
        pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Ends the recording and empties the buffers. Returns the events of each CPU, how many were
    /// lost, and why the files end early, if they do.
    pub(super) fn finish(mut self, spill: &Spill) -> Result<Finished, Failure> {
        self.write("tracing_on", "0")?;
        self.stop.store(true, Ordering::SeqCst);
        let mut streams = Vec::new();
        let mut lost = 0;
        let mut failed = None;
        for (&cpu, reader) in self.cpus.iter().zip(self.readers.drain(..)) {
            let Ok(done) = reader.join() else {
                return Err(Failure::new("a reader of the kernel's buffers failed"));
            };
            let cut = done.is_err();
            failed = failed.or(done.err());
            let stats =
                fs::read_to_string(self.dir.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default();
            lost += lost_in(&stats);
            let file = spill::consume(&spill.path(&format!("cpu{cpu}")))
                .context("the temporary files beside the output")?;
            let events = CpuEvents {
                file,
                cpu,
                decoder: self.decoder.clone(),
                page: vec![0; self.decoder.layout.size],
                ready: Vec::new().into_iter(),
                peeked: VecDeque::new(),
            };
            streams.push(Stream { events: Box::new(events), cut });
        }
        Ok(Finished { streams, lost, failed })
    }
}

/// Adds up the losses in a `per_cpu/cpuN/stats` file.
fn lost_in(stats: &str) -> u64 {
    let count = |l: &str| {
        let (key, n) = l.split_once(':')?;
        matches!(key, "overrun" | "commit overrun" | "dropped events")
            .then(|| n.trim().parse::<u64>().ok())?
    };
    stats.lines().filter_map(count).sum()
}

fn cpus(dir: &Path) -> Vec<u16> {
    let mut cpus: Vec<u16> = fs::read_dir(dir.join("per_cpu"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
        .collect();
    cpus.sort_unstable();
    cpus
}

fn decoder(dir: &Path) -> Result<Decoder, Failure> {
    let read = |file: &str| fs::read_to_string(dir.join(file)).context(format_args!("tracefs: {file}"));
    let kib = read("buffer_subbuf_size_kb").ok().and_then(|s| s.trim().parse::<usize>().ok()).unwrap_or(4);
    let unexpected = |what: &str| Failure::new(format!("tracefs: unexpected {what}"));
    let header = read_once(&Path::new(ROOT).join("events/header_page")).context("tracefs: header_page")?;
    let layout = PageLayout::new(&header, kib << 10).ok_or_else(|| unexpected("header_page"))?;
    let (mut kind, mut pid, mut readings) = (None, None, HashMap::new());
    for (event, point, _, fields) in wanted() {
        let Ok(text) = read(&format!("events/{event}/format")) else {
            if required(point) {
                return Err(unexpected(&event));
            }
            continue;
        };
        let format = TracepointFormat::parse(&text);
        kind = kind.or(format.field("common_type"));
        pid = pid.or(format.field("common_pid"));
        let fields: Option<Vec<Field>> = fields.iter().map(|f| format.field(f)).collect();
        let fields = fields.ok_or_else(|| unexpected(&event))?;
        readings.insert(format.id, Reading { point, fields });
    }
    let (Some(kind), Some(pid)) = (kind, pid) else { return Err(unexpected("the format of events")) };
    Ok(Decoder { layout, kind, pid, readings })
}

/// Reads a file with one call. Some files of tracefs give only their beginning to a reader that
/// makes several calls.
fn read_once(path: &Path) -> std::io::Result<String> {
    let mut text = vec![0; 1 << 16];
    let n = File::open(path)?.read(&mut text)?;
    text.truncate(n);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Starts a thread that moves the buffer of one CPU to a file, page by page. Without room for a page
/// it switches the tracing off.
fn reader(
    from: &Path,
    to: &Path,
    size: usize,
    room: Arc<Room>,
    switch: PathBuf,
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
) -> std::io::Result<JoinHandle<std::io::Result<()>>> {
    let mut from = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(from)?;
    let mut to = BufWriter::with_capacity(1 << 18, File::create(to)?);
    std::thread::Builder::new().name("reader".into()).spawn(move || {
        let mut page = vec![0; size];
        let mut on = true;
        loop {
            // Loaded before reading, so everything is read once more after the stop.
            let last = stop.load(Ordering::SeqCst);
            loop {
                match from.read(&mut page) {
                    Ok(0) => break,
                    Ok(n) => {
                        page[n..].fill(0);
                        room.write(&mut to, &page)?;
                        bytes.fetch_add(n as u64, Ordering::Relaxed);
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            if on && room.ended().is_some() {
                on = false;
                // Otherwise the kernel drops and counts what has no room.
                let _ = OpenOptions::new().write(true).open(&switch).and_then(|mut f| f.write_all(b"0"));
            }
            if last {
                return room.flush(&mut to);
            }
            std::thread::sleep(POLL);
        }
    })
}

/// The raw events of one CPU, in order of time.
pub(super) struct CpuEvents {
    file: BufReader<Consumed>,
    cpu: u16,
    decoder: Decoder,
    page: Vec<u8>,
    ready: std::vec::IntoIter<Raw>,
    /// The next events, which have been looked at already.
    peeked: VecDeque<Raw>,
}

impl Iterator for CpuEvents {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        let mut raw = self.peeked.pop_front().or_else(|| self.read())?;
        if let RawKind::Fault { address, code } = raw.what
            && self.is_refused(raw.pid, address, code)
        {
            raw.what = RawKind::Fault { address, code: code | u64::from(FaultFlags::REFUSED) };
        }
        Some(raw)
    }
}

impl CpuEvents {
    /// Whether the fault that has just been read was refused: a signal, or the failure of the system
    /// call, comes next on the same CPU. Between them the lock may be taken to look for a stack, and
    /// the kernel may try again.
    fn is_refused(&mut self, pid: i32, address: u64, code: u64) -> bool {
        let by_kernel = code & u64::from(FaultFlags::USER) == 0;
        for at in 0..6 {
            if at == self.peeked.len() {
                let Some(next) = self.read() else { return false };
                self.peeked.push_back(next);
            }
            let next = &self.peeked[at];
            if next.pid != pid {
                return false;
            }
            match next.what {
                RawKind::Refused => {
                    self.peeked.remove(at);
                    return true;
                }
                RawKind::BadAddress => return by_kernel,
                RawKind::Locked => {}
                RawKind::Fault { address: again, .. } if by_kernel && again >> 12 == address >> 12 => {}
                _ => return false,
            }
        }
        false
    }

    fn read(&mut self) -> Option<Raw> {
        loop {
            if let Some(raw) = self.ready.next() {
                return Some(raw);
            }
            self.file.read_exact(&mut self.page).ok()?;
            let mut found = Vec::new();
            self.decoder.layout.records(&self.page, |time, record| {
                found.extend(self.decoder.record(time, self.cpu, record));
            });
            self.ready = found.into_iter();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn losses_are_summed() {
        let stats = "entries: 5\noverrun: 3\ncommit overrun: 0\nbytes: 9\nnow ts: 1.2\ndropped events: 4\nread events: 7\n";
        assert_eq!(super::lost_in(stats), 7);
        assert_eq!(super::lost_in(""), 0);
    }
}
