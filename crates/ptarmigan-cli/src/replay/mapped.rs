//! Replays recordings on a machine of 512 + 512 MiB and counts the frames that the kernel maps
//! there. No time is measured.
use super::hashed_slots::HashedSlots;
use super::high::KmapReport;
use super::input::schedule::{CpuMap, Schedule};
use super::input::trace::Trace;
use super::workers::job::Job;
use super::workers::machine::EitherMachine;
use super::workers::watch::Unwatched;
use crate::error::{Context, Failure};
use crate::shipped::SHIPPED;
use ptarmigan::format::X86_64;
use ptarmigan::tlb::{CostModel, Mmu, TlbConfig};
use ptarmigan_hosted::{Delivery, HighConfig, HighMachine, HighSlots, Host, HostConfig, HostMachine, NoTlb};

const MEMORY: u64 = 1 << 30;
const LOW: u64 = 512 << 20;

/// A recording, ready to be replayed by one worker.
pub(crate) struct MappedTrace {
    trace: Trace,
    schedule: Schedule,
}

impl MappedTrace {
    /// The shipped recordings with their names, the compile first.
    pub const SHIPPED: [(&str, &[u8]); 4] = SHIPPED;

    /// Reads a recording.
    ///
    /// # Errors
    /// If the bytes are not a recording.
    pub fn new(bytes: &[u8], name: &str) -> Result<Self, Failure> {
        let trace = Trace::from_bytes(bytes, name)?;
        let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, trace.cpus), true);
        Ok(MappedTrace { trace, schedule })
    }

    /// Replays it on the library's policy. `costs` say how slots are flushed.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn map(&self, config: &HighConfig, costs: CostModel) -> Result<KmapReport, Failure> {
        self.map_on(config, costs, NoTlb)
    }

    /// As [`map`](Self::map). Returns also the mean number of slots that a sweep's flush finds in a
    /// hash table, if there was a sweep.
    ///
    /// # Errors
    /// As for [`map`](Self::map).
    pub fn map_hashed(
        &self,
        config: &HighConfig,
        costs: CostModel,
    ) -> Result<(KmapReport, Option<f64>), Failure> {
        let slots = HashedSlots::default();
        let report = self.map_on(config, costs, &slots)?;
        let found = slots.found();
        // Flushes after the last sweep are of the machine's end.
        let found = found.get(..report.sweeps as usize).unwrap_or(&found);
        let mean = found.iter().sum::<usize>() as f64 / found.len() as f64;
        Ok((report, (!found.is_empty()).then_some(mean)))
    }

    fn map_on<S: Mmu>(&self, config: &HighConfig, costs: CostModel, mmu: S) -> Result<KmapReport, Failure> {
        let job =
            Job { trace: &self.trace, schedule: &self.schedule, copies: 1, keep_going: false, idle_zero: 0 };
        let host = HostConfig { cpus: job.cpus(), bytes: MEMORY, low: LOW, ..HostConfig::default() };
        let host = Host::<X86_64>::new(host).context("the machine cannot be set up")?;
        let tlb = TlbConfig { costs, ..TlbConfig::new(job.cpus()) };
        let lists = host.quicklists().context("lists")?;
        let machine = HostMachine::with_tlb(&host, lists, mmu, tlb, Delivery::AtOnce).context("machine")?;
        let slots = HighSlots::new(&host, config).context("high memory")?;
        let machine = HighMachine::new(&machine, slots, config).context("high memory")?;
        let machine = EitherMachine::high(machine);
        let (outcome, _, _) = job.run(&machine, &|| Unwatched, &|_| {})?;
        if let Some((event, _, reason)) = outcome.first_out_of_memory {
            return Err(Failure::new(format!("{}: no memory at event {event} ({reason})", self.trace.name)));
        }
        let counts = outcome.kmap.ok_or_else(|| Failure::new("nothing was mapped"))?;
        Ok(KmapReport::new(config, &counts))
    }
}
