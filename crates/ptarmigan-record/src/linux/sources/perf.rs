//! Page faults from a perf event of tasks, through one ring buffer per CPU. Faults of the kernel
//! are among them if the user may see them.
//!
//! ```text
//!  task ── fault ──> ring of its CPU ──> reader thread ──> temporary file of the CPU
//!                     other tasks of the CPU ──┘ (take_from)
//!  end      stop = true ──────────────────> reads once more ──> join
//! ```
//!
//! The reader looks at `stop` before it reads, so that events from before the end are read.
//!
//! # Why
//!
//! One event for each CPU and task would need a ring for each task: locked memory is limited, 516
//! KiB for each CPU. So all tasks write into the ring of the CPU they run on, and events that tasks
//! inherit need no call for a new task. The threads write to files and do not decode, because a
//! ring that is not emptied in time loses events. Dropping the recording stops the threads and
//! waits for them. A thread that outlives it would write into a directory that is being removed.
use super::described::{self, Described, MAPPED};
use super::merge::{Finished, Stream};
use super::ring::{
    EVENTS, PerfRing, Record, SAMPLES, cpus, is_of_kernel, on_all, open_event, software, with_mappings,
};
use super::samples::Samplers;
use super::sampling::{CpuSamples, Sampling};
use super::spill::{self, Consumed, Spill};
use crate::linux::allowed;
use crate::linux::raw::{Raw, RawKind};
use perf_event_open_sys::bindings as b;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::FaultFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes of a fault in the temporary file: time, address, task, CPU and who made it.
const NOTE: usize = 24;

/// Who made a fault, or that an execve has made a new address space.
const BY_TASK: u16 = 0;
const BY_KERNEL: u16 = 1;
const EXEC: u16 = 2;

/// Starts to sample the callers of faults.
fn sampling(pids: &[i32], spill: &Spill, cpus: &[u16]) -> Result<Sampling, Failure> {
    let samples = on_all(cpus, SAMPLES, |cpu, bytes| {
        let (samplers, ring) = Samplers::of_tasks(pids, cpu, bytes)?;
        Ok(CpuSamples { cpu, samplers, ring })
    })?;
    Sampling::start(spill, samples)
}

/// Returns the event of faults: of the tasks alone, or of the kernel, too.
fn faults_of_tasks(kernel: bool) -> b::perf_event_attr {
    let samples = b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_ADDR | b::PERF_SAMPLE_CPU;
    let mut attr = software(b::PERF_COUNT_SW_PAGE_FAULTS, samples);
    attr.__bindgen_anon_1.sample_period = 1;
    attr.set_inherit(1);
    attr.set_exclude_kernel((!kernel).into());
    // Tells of execves.
    attr.set_comm(1);
    attr.set_comm_exec(1);
    with_mappings(&mut attr);
    attr
}

/// Returns whether this user may see the kernel's faults (`kernel.perf_event_paranoid`).
fn sees_kernel(cpu: u16) -> bool {
    open_event(&mut faults_of_tasks(true), 0, cpu).is_ok()
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
    sampling: Option<Sampling>,
    /// Whether faults of the kernel are recorded.
    pub(crate) kernel: bool,
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
    /// Starts to record tasks and all their later descendants, with samples of callers if they are
    /// wanted. Without a task, nothing is recorded.
    pub(crate) fn start(pids: &[i32], spill: &Spill, callers: bool) -> Result<Self, Failure> {
        let online = cpus("online");
        let (stop, bytes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let kernel = online.first().is_some_and(|&cpu| sees_kernel(cpu));
        let mut faults = Self {
            readers: Vec::new(),
            others: Vec::new(),
            stop,
            online: online.clone(),
            sampling: None,
            kernel,
            bytes,
        };
        let Some((&first, others)) = pids.split_first() else { return Ok(faults) };
        allow_files();
        let open = |cpu, bytes| PerfRing::open(&mut faults_of_tasks(kernel), first, cpu, bytes);
        let rings = on_all(&online, EVENTS, open)?;
        // Events have their rings before samples have some: room is limited.
        let say = |e: &Failure| print::error(&format!("callers of faults are unknown: {}", e.message()));
        if callers {
            faults.sampling = sampling(pids, spill, &online).inspect_err(say).ok();
        }
        for (cpu, mut ring) in online.into_iter().zip(rings) {
            let mut attr = faults_of_tasks(kernel);
            for &pid in others {
                let event = open_event(&mut attr, pid, cpu).map_err(|e| allowed::no_perf_events(&e))?;
                ring.take_from(&event).context("perf: the event of another task")?;
                faults.others.push(event);
            }
            let file = File::create(spill.path(&format!("cpu{cpu}")))
                .context("the temporary files beside the output")?;
            let described = Described::new(spill, MAPPED, cpu, None);
            let mut described = described.context("the temporary files beside the output")?;
            let (stop, bytes) = (Arc::clone(&faults.stop), Arc::clone(&faults.bytes));
            let (room, strange) = (Arc::clone(&spill.room), spill.strange.clone());
            let run = move || {
                let mut out = BufWriter::with_capacity(1 << 18, file);
                let mut lost = 0;
                loop {
                    let last = stop.load(Ordering::SeqCst);
                    let taken = ring.drain(|record| {
                        let note = match record {
                            Record::Sample(r) => note_of(r),
                            Record::Exec(r) => note_of_exec(r),
                            other => return described.write(other, &mut lost),
                        };
                        match note {
                            Some(note) if room.keeps(time_of(&note)) => return room.write(&mut out, &note),
                            Some(_) => {}
                            None => strange.add(),
                        }
                        Ok(())
                    })?;
                    bytes.fetch_add(taken, Ordering::Relaxed);
                    if last {
                        described.flush()?;
                        room.flush(&mut out)?;
                        return Ok(lost);
                    }
                    let mut fds = [PollFd::from_borrowed_fd(ring.as_fd(), PollFlags::IN)];
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
            streams.push(described::read(spill, MAPPED, *cpu)?);
            match done {
                Ok(missed) => lost += missed,
                Err(e) => failed = Some(e),
            }
        }
        if let Some(sampling) = self.sampling.take() {
            streams.extend(sampling.finish(spill)?);
        }
        Ok(Finished { streams, lost, failed })
    }
}

/// Returns a fault as it is kept. `None` if the record is too short to be one: header, process,
/// task, time, address, CPU. It may be longer.
fn note_of(r: &[u8]) -> Option<[u8; NOTE]> {
    let by = if is_of_kernel(r) { BY_KERNEL } else { BY_TASK };
    let r = r.get(..40)?;
    Some(note(&r[16..24], &r[24..32], &r[12..16], &r[32..36], by))
}

/// Returns the note of a new address space. `None` if the record is too short to be of one: header,
/// process, task, name; at its end process, task, time, CPU.
fn note_of_exec(r: &[u8]) -> Option<[u8; NOTE]> {
    let (_, last) = r.get(16..)?.split_last_chunk::<24>()?;
    Some(note(&last[8..16], &[0; 8], &last[4..8], &last[16..20], EXEC))
}

fn note(time: &[u8], address: &[u8], task: &[u8], cpu: &[u8], what: u16) -> [u8; NOTE] {
    let mut note = [0; NOTE];
    note[..8].copy_from_slice(time);
    note[8..16].copy_from_slice(address);
    note[16..20].copy_from_slice(task);
    note[20..22].copy_from_slice(&cpu[..2]);
    note[22..].copy_from_slice(&what.to_le_bytes());
    note
}

/// The time of a fault, as it is kept.
fn time_of(note: &[u8; NOTE]) -> u64 {
    u64::from_le_bytes([note[0], note[1], note[2], note[3], note[4], note[5], note[6], note[7]])
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
        let code = |by: u16| if by == BY_KERNEL { 0 } else { FaultFlags::USER.into() };
        let what = match (word(20) >> 16) as u16 {
            EXEC => RawKind::ExecMade,
            by => RawKind::Fault { address: long(8), code: code(by) },
        };
        Some(Raw { time: time_of(&note), cpu: word(20) as u16, pid: word(16) as i32, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_from_a_record_of_sufficient_length() {
        let mut record: Vec<u8> = (0..40).collect();
        let note = note_of(&record).expect("a fault");
        assert_eq!((note[0], note[8], note[16], note[20], note[22]), (16, 24, 12, 32, 0));
        record[4] = 1;
        assert_eq!(note_of(&record).expect("one of the kernel")[22], 1);
        record[4] = 4;
        record.resize(8280, 0xee);
        assert_eq!(note_of(&record), Some(note), "with the stack of another event");
        assert_eq!(note_of(&record[..39]), None);
        let exec = note_of_exec(&(0..48).collect::<Vec<u8>>()).expect("an execve");
        assert_eq!((exec[0], exec[8], exec[16], exec[20], exec[22]), (32, 0, 28, 40, 2));
        assert_eq!(note_of_exec(&record[..39]), None);
    }
}
