//! Replays recordings on a machine of 512 + 512 MiB and counts the frames that the kernel maps
//! there. No time is measured.
use super::high::KmapReport;
use super::platform::RecordedX86;
use super::setup::{Setup, SoloTrace};
use super::workers::machine::ReplayMmu;
use ptarmigan::quicklist::Policy;
use ptarmigan::tlb::{CostModel, TlbConfig};
use ptarmigan_hosted::{Delivery, HighConfig, HostConfig};
use ptarmigan_term::Failure;

const MEMORY: u64 = 1 << 30;
const LOW: u64 = 512 << 20;

impl SoloTrace {
    /// Replays it on the library's policy. `costs` say how slots are flushed.
    ///
    /// # Errors
    /// If the machine cannot be set up, or memory runs out.
    pub fn map(&self, config: &HighConfig, costs: CostModel) -> Result<KmapReport, Failure> {
        self.map_on(config, costs, RecordedX86::NO_MMU)
    }

    /// As [`map`](Self::map), with the MMU `mmu`: another one than `map` has is another engine to
    /// compile, in the crate of the caller.
    ///
    /// # Errors
    /// As for [`map`](Self::map).
    pub fn map_on<S: ReplayMmu>(
        &self,
        config: &HighConfig,
        costs: CostModel,
        mmu: S,
    ) -> Result<KmapReport, Failure> {
        let setup = self.on(MEMORY);
        let host = HostConfig { low: LOW, ..setup.host };
        let setup = Setup { host, high: Some(*config), tlb: TlbConfig { costs, ..setup.tlb }, ..setup };
        let fresh = setup.fresh()?;
        let lists = fresh.quicklists()?;
        let machine = fresh.machine(&lists as &dyn Policy, mmu, Delivery::AtOnce)?;
        let outcome = fresh.run(&machine, Vec::new(), None)?.outcome;
        if let Some((event, _, reason)) = outcome.first_out_of_memory {
            return Err(Failure::new(format!(
                "{}: no memory at event {event} ({reason})",
                self.trace().name
            )));
        }
        let counts = outcome.kmap.ok_or_else(|| Failure::new("nothing was mapped"))?;
        Ok(KmapReport::new(config, &counts))
    }
}
