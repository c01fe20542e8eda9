//! Tracepoints, through a private tracefs instance.
//!
//! ```text
//!  new        mkdir instances/ptarmigan-N ── lock (Held) ── clock = mono
//!  record     kernel's buffers, 32 MiB per CPU ── reader of each CPU, every 50 ms ──> spill
//!  drop       stop ──> readers read once more ── join ── rmdir
//!  killed     (nothing) ──> the next recorder: remove_stale: not locked ──> rmdir
//! ```
//!
//! # Why
//!
//! An instance of its own leaves the tracing of others alone: two recordings, or a recording and
//! `trace-cmd`, would otherwise fight for one buffer and one set of events. It is memory of the
//! kernel that stays when its maker is killed, so each recorder removes the instances of recorders
//! that are gone. The lock of the directory tells which are: a process number may be somebody
//! else's by now. A recorder makes the directory before it can lock it, so one without the clock
//! counts as new while its process is alive.
mod decoder;
mod format;
mod points;
mod reader;
mod ring;

use crate::linux::sources::merge::{Finished, Stream};
use crate::linux::sources::spill::{self, Spill};
use crate::linux::system::held::Held;
use crate::linux::watchdog;
use decoder::Decoder;
use points::Point;
use ptarmigan_term::{Context, Failure};
use reader::CpuEvents;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ROOT: &str = "/sys/kernel/tracing";
/// Kernel memory per CPU. It is emptied every 50 ms, so it holds 1.5 million records per second and
/// CPU.
const BUFFER_KIB: u32 = 32 << 10;
/// Prefix of the instances' names; the process number follows.
const PREFIX: &str = "ptarmigan-";
/// The file of an instance's clock, and the clock of all sources.
const CLOCK: &str = "trace_clock";
const OUR_CLOCK: &str = "mono";

/// A running instance, removed on drop.
pub(crate) struct Instance {
    dir: PathBuf,
    _held: Held,
    decoder: Decoder,
    stop: Arc<AtomicBool>,
    readers: Vec<JoinHandle<std::io::Result<()>>>,

    /// Bytes read from the kernel so far.
    pub(crate) bytes: Arc<AtomicU64>,
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

/// Removes the instances of recorders that are gone.
pub(crate) fn remove_stale() {
    for entry in fs::read_dir(Path::new(ROOT).join("instances")).into_iter().flatten().flatten() {
        let (name, dir) = (entry.file_name(), entry.path());
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let Some(number) = number else { continue };
        // A recorder that is about to lock its instance has not set the clock yet.
        let clock = || fs::read_to_string(dir.join(CLOCK)).unwrap_or_default();
        let is_begun = || clock().contains(&format!("[{OUR_CLOCK}]"));
        let is_alive = || Path::new(&format!("/proc/{number}")).exists();
        if let Some(_held) = Held::of_none(&dir)
            && (is_begun() || !is_alive())
        {
            remove(&dir);
        }
    }
}

impl Instance {
    /// Checks that tracefs is usable, and mounts it if necessary.
    pub(crate) fn available() -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("it needs root".into());
        }
        if !crate::linux::system::proc::in_first_pid_namespace() {
            return Err("tracepoints number processes otherwise than this pid namespace".into());
        }
        if !Path::new(ROOT).join("instances").exists() {
            rustix::mount::mount("tracefs", ROOT, "tracefs", rustix::mount::MountFlags::empty(), None)
                .map_err(|e| format!("tracefs cannot be mounted at {ROOT}: {e}"))?;
        }
        Decoder::new(read_event, LEAST_SUB_BUFFER).map(drop)
    }

    /// Creates an instance that does not record yet, with readers that write to `spill`.
    pub(crate) fn new(spill: &Spill) -> Result<Self, Failure> {
        let dir = Path::new(ROOT).join("instances").join(format!("{PREFIX}{}", watchdog::number()));
        let held = fs::create_dir(&dir)
            .and_then(|()| Held::new(&dir))
            .map_err(|e| Failure::new(format!("tracefs: a new instance: {e}; use --method perf")))?;
        let mut instance = Self {
            _held: held,
            decoder: decoder(&dir)
                .map_err(|why| Failure::new(format!("tracefs: {why}; use --method perf")))
                .inspect_err(|_| remove(&dir))?,
            dir,
            stop: Arc::default(),
            readers: Vec::new(),
            bytes: Arc::default(),
            cpus: Vec::new(),
        };
        instance.write("tracing_on", "0")?;
        instance.write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        instance.write(CLOCK, OUR_CLOCK)?;
        instance.write("options/event-fork", "1")?;
        // On overflow, new records are dropped and counted.
        instance.write("options/overwrite", "0")?;
        for (event, point, filter, _) in points::wanted() {
            if !instance.decoder.reads(&event) {
                continue;
            }
            match instance.enable(&event, filter) {
                // The filter may name fields that this kernel does not have.
                Err(_) if !points::required(point) => instance.decoder.forget(&event),
                other => other?,
            }
        }
        instance.cpus = cpus(&instance.dir);
        for &cpu in &instance.cpus {
            let reader = reader::start(
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

    fn enable(&self, event: &str, filter: Option<&str>) -> Result<(), Failure> {
        if let Some(filter) = filter {
            self.write(&format!("events/{event}/filter"), filter)?;
        }
        self.write(&format!("events/{event}/enable"), "1")
    }

    /// Starts to record `pid` and all its descendants.
    pub(crate) fn start(&self, pid: i32) -> Result<(), Failure> {
        self.add(&[pid])?;
        self.switch_on()
    }

    /// Adds tasks and their later descendants to those that are recorded.
    pub(crate) fn add(&self, pids: &[i32]) -> Result<(), Failure> {
        // The kernel reads at most a page at once, and adds to the list.
        for part in pids.chunks(256) {
            let list: Vec<String> = part.iter().map(i32::to_string).collect();
            self.write("set_event_pid", &list.join(" "))?;
        }
        Ok(())
    }

    /// Lets events come from now on.
    pub(crate) fn switch_on(&self) -> Result<(), Failure> {
        self.write("tracing_on", "1")
    }

    /// Returns the number of CPUs; all CPU numbers are below it.
    pub(crate) fn cpus(&self) -> u16 {
        self.cpus.last().map_or(1, |c| c.saturating_add(1))
    }

    /// Returns whether TLB flushes are recorded.
    pub(crate) fn sees_flushes(&self) -> bool {
        self.decoder.has(Point::TlbFlush)
    }

    /// Returns the tasks that are recorded now.
    pub(crate) fn alive(&self) -> Vec<i32> {
        let pids = fs::read_to_string(self.dir.join("set_event_pid")).unwrap_or_default();
        pids.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Waits until the kernel has forgotten the tasks that have ended. The last switch of a task
    /// comes after its parent knows of its end.
    fn settle(&self) {
        let end = Instant::now() + TO_SETTLE;
        let gone = |pid: &i32| !Path::new(&format!("/proc/{pid}")).exists();
        while self.alive().iter().any(gone) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the recording and empties the buffers. Returns the events of each CPU, how many were
    /// lost, and why the files end early, if they do.
    pub(crate) fn finish(mut self, spill: &Spill) -> Result<Finished, Failure> {
        self.settle();
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
            let events = CpuEvents::new(file, cpu, self.decoder.clone(), spill.strange.clone());
            streams.push(Stream { events: Box::new(events), cut });
        }
        Ok(Finished { streams, lost, failed })
    }
}

/// How long the kernel may take to forget tasks, at most. It takes some milliseconds.
const TO_SETTLE: Duration = Duration::from_millis(200);

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

/// The least size of a page of the buffers, in bytes.
const LEAST_SUB_BUFFER: usize = 4096;

/// Reads a file below `events`.
fn read_event(file: &str) -> std::io::Result<String> {
    read_once(&Path::new(ROOT).join("events").join(file))
}

/// Reads how records of the instance `dir` are decoded.
fn decoder(dir: &Path) -> Result<Decoder, String> {
    let kib = fs::read_to_string(dir.join("buffer_subbuf_size_kb"));
    let kib = kib.ok().and_then(|kib| kib.trim().parse::<usize>().ok());
    Decoder::new(read_event, kib.map_or(LEAST_SUB_BUFFER, |kib| kib << 10))
}

/// Reads a file with one call. Some files of tracefs give only their beginning to a reader that
/// makes several calls.
fn read_once(path: &Path) -> std::io::Result<String> {
    let mut text = vec![0; 1 << 16];
    let n = File::open(path)?.read(&mut text)?;
    text.truncate(n);
    Ok(String::from_utf8_lossy(&text).into_owned())
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
