//! The mappings of all tasks, for recordings whose events come from tracepoints, which have no
//! names of files.
//!
//! One perf event on each CPU reports the mappings of every task: an event that each new task
//! inherits would cost at every fork. Mappings of other programs are dropped when the trace is
//! built.
use super::described::{self, Described, MAPPED};
use super::merge::Stream;
use super::ring::{PerfRing, cpus, software, with_mappings};
use super::samples::{self, Samplers};
use super::sampling::{CpuSamples, Sampling};
use super::spill::Spill;
use perf_event_open_sys::bindings as b;
use ptarmigan_replay::terminal::print;
use ptarmigan_replay::{Context, Failure};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a ring: mappings of a tenth of a second on a busy CPU.
const BYTES: usize = 1 << 20;
/// Time between two looks at the rings.
const PAUSE: Duration = Duration::from_millis(20);

/// The running events.
pub(crate) struct PerfMappings {
    reader: Option<JoinHandle<io::Result<u64>>>,
    stop: Arc<AtomicBool>,
    cpus: Vec<u16>,
    sampling: Option<Sampling>,
}

/// Starts to sample the callers of all tasks.
fn sampling(spill: &Spill, cpus: &[u16]) -> Result<Sampling, Failure> {
    let tracepoint = samples::tracepoint().context("the tracepoint of system calls")?;
    let of = |&cpu| {
        let (samplers, ring) = Samplers::of_all(cpu, tracepoint)?;
        Ok(CpuSamples { cpu, samplers, ring })
    };
    Sampling::start(spill, cpus.iter().map(of).collect::<Result<_, Failure>>()?)
}

impl Drop for PerfMappings {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl PerfMappings {
    /// Starts to record the mappings of all tasks, and samples of their callers.
    pub(crate) fn start(spill: &Spill, callers: bool) -> Result<Self, Failure> {
        let (cpus, stop) = (cpus("online"), Arc::<AtomicBool>::default());
        let mut rings = Vec::new();
        for &cpu in &cpus {
            let samples = b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_CPU;
            let mut attr = software(b::PERF_COUNT_SW_DUMMY, samples);
            with_mappings(&mut attr);
            let ring = PerfRing::open(&mut attr, -1, cpu, BYTES)?;
            let described = Described::new(spill, MAPPED, cpu, None);
            let described = described.context("the temporary files beside the output")?;
            rings.push((ring, described));
        }
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut lost = 0;
            loop {
                let last = stopped.load(Ordering::SeqCst);
                for (ring, described) in &mut rings {
                    ring.drain(|kind, record| {
                        if kind == b::PERF_RECORD_LOST {
                            lost += described::lost_in(record);
                        }
                        described.write(kind, record)
                    })?;
                    if last {
                        described.flush()?;
                    }
                }
                if last {
                    return Ok(lost);
                }
                std::thread::sleep(PAUSE);
            }
        };
        let reader = std::thread::Builder::new().name("mappings".into()).spawn(run).context("a thread")?;
        let say = |e: &Failure| print::error(&format!("callers are unknown: {}", e.message()));
        let sampling = if callers { sampling(spill, &cpus).inspect_err(say).ok() } else { None };
        Ok(Self { reader: Some(reader), stop, cpus, sampling })
    }

    /// Ends the recording of mappings, and returns them and the samples by CPU. Says how many were
    /// lost.
    pub(crate) fn finish(mut self, spill: &Spill) -> Result<Vec<Stream<'static>>, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let done = self.reader.take().map_or(Ok(Ok(0)), JoinHandle::join);
        let Ok(done) = done else {
            return Err(Failure::new("the reader of mappings failed"));
        };
        // Without room on the disk the recording has ended, and the readers of events say so.
        let lost = done.unwrap_or(0);
        if lost > 0 {
            print::error(&format!("mappings that are unknown, for lack of room: {lost}"));
        }
        let samples = self.sampling.take().map_or(Ok(Vec::new()), |sampling| sampling.finish(spill))?;
        let mappings = self.cpus.iter().map(|&cpu| described::read(spill, MAPPED, cpu));
        mappings.chain(samples.into_iter().map(Ok)).collect()
    }
}
