//! Machines that a job can run on.
use crate::error::{Context, Failure};
use ptarmigan::addr::VirtRange;
use ptarmigan::format::Format;
use ptarmigan::frames::NoFrame;
use ptarmigan::hosted::{CpuSlot, HighMachine, Host, HostMachine, KmapCounts};
use ptarmigan::machine::On;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Space, SpaceMachine};
use ptarmigan::tlb::Mmu;

/// A hosted machine, with high memory or without.
pub trait ReplayMachine<F: Format>: SpaceMachine + Sized {
    /// Returns the host.
    fn host(&self) -> &Host<F>;

    /// Takes back what the machine keeps at hand. Returns what was mapped until then, if frames are
    /// mapped.
    ///
    /// # Errors
    /// If a slot is in use.
    fn drain(&self, slots: &[CpuSlot]) -> Result<Option<KmapCounts>, Failure>;

    /// A program has been loaded to `space`, with arguments at `range`, which the kernel writes.
    ///
    /// # Errors
    /// If there is no memory to map them with.
    fn arguments(&self, on: On<'_, Self>, space: &Space<F>, range: VirtRange) -> Result<(), NoFrame>;
}

impl<F: Format, P: Policy, S: Mmu> ReplayMachine<F> for HostMachine<'_, F, P, S> {
    fn host(&self) -> &Host<F> {
        self.host()
    }

    fn drain(&self, slots: &[CpuSlot]) -> Result<Option<KmapCounts>, Failure> {
        self.drain(slots);
        Ok(None)
    }

    #[inline(always)]
    fn arguments(&self, _: On<'_, Self>, _: &Space<F>, _: VirtRange) -> Result<(), NoFrame> {
        Ok(())
    }
}

impl<F: Format, P: Policy, S: Mmu> ReplayMachine<F> for HighMachine<'_, '_, F, P, S> {
    fn host(&self) -> &Host<F> {
        self.inner().host()
    }

    fn drain(&self, slots: &[CpuSlot]) -> Result<Option<KmapCounts>, Failure> {
        self.drain(slots).map(Some).context("after the replay")
    }

    fn arguments(&self, on: On<'_, Self>, space: &Space<F>, range: VirtRange) -> Result<(), NoFrame> {
        let mut mapped = Ok(());
        let walked = space.tree().walk(on, range, |_, frame, _| {
            if mapped.is_ok() {
                // SAFETY: 1. pages of arguments are fresh, and the space has run on no CPU yet.
                mapped = unsafe { self.write_argument(on.pin(), frame) };
            }
        });
        debug_assert!(walked.is_ok(), "the space is of this machine");
        mapped
    }
}
