//! The mappings of all tasks, for recordings whose events come from tracepoints, which have no
//! names of files.
//!
//! One perf event on each CPU reports the mappings of every task: an event that each new task
//! inherits would cost at every fork. Mappings of other programs are dropped when the trace is
//! built, and samples of them when they are read ([`members`](super::members)).
use super::described::{self, Described, MAPPED};
use super::members::Members;
use super::merge::Stream;
use super::ring::{PerfRing, cpus, software, with_mappings};
use super::rings::RingReader;
use super::samples::{self, Samplers};
use super::sampling::{CpuSamples, Sampling};
use super::spill::Spill;
use crate::linux::system::sys;
use perf_event_open_sys::bindings as b;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure};

/// Bytes of a ring: mappings of a tenth of a second on a busy CPU.
const BYTES: usize = 1 << 20;

/// The running events.
pub(crate) struct PerfMappings {
    reader: RingReader,
    cpus: Vec<u16>,
    sampling: Option<Sampling>,
    /// The processes whose callers are sampled.
    members: Members,
}

/// Starts to sample the callers of all tasks, and keeps the samples of `members`.
fn sampling(spill: &Spill, cpus: &[u16], members: &Members) -> Result<Sampling, Failure> {
    let tracepoint = samples::tracepoint().context("the tracepoint of system calls")?;
    let of = |&cpu| {
        let (samplers, ring) = Samplers::of_all(cpu, tracepoint, members.clone())?;
        Ok(CpuSamples { cpu, samplers, ring })
    };
    Sampling::start(spill, cpus.iter().map(of).collect::<Result<_, Failure>>()?)
}

impl PerfMappings {
    /// Starts to record the mappings of all tasks, and samples of their callers.
    pub(crate) fn start(spill: &Spill, callers: bool) -> Result<Self, Failure> {
        let cpus = cpus("online");
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
        let reader = RingReader::start("mappings", rings)?;
        let say = |e: &Failure| print::error(&format!("callers are unknown: {}", e.message()));
        let members = Members::default();
        let sampling = if callers { sampling(spill, &cpus, &members).inspect_err(say).ok() } else { None };
        Ok(Self { reader, cpus, sampling, members })
    }

    /// Keeps the samples of these processes, which are there, and of their descendants.
    pub(crate) fn begin(&self, processes: &[i32]) {
        self.members.begin(processes, sys::now());
    }

    /// Ends the recording of mappings, and returns them and the samples by CPU. Says how many were
    /// lost.
    pub(crate) fn finish(mut self, spill: &Spill) -> Result<Vec<Stream<'static>>, Failure> {
        let lost = self.reader.end()?;
        if lost > 0 {
            print::error(&format!("mappings that are unknown, for lack of room: {lost}"));
        }
        let samples = self.sampling.take().map_or(Ok(Vec::new()), |sampling| sampling.finish(spill))?;
        let mappings = self.cpus.iter().map(|&cpu| described::read(spill, MAPPED, cpu));
        mappings.chain(samples.into_iter().map(Ok)).collect()
    }
}
