//! Collects raw events from their sources, and keeps them until the end of the recording.
mod described;
pub(crate) mod execs;
pub(crate) mod mappings;
mod members;
pub(crate) mod merge;
pub(crate) mod perf;
mod ring;
mod rings;
pub(crate) mod samples;
mod sampling;
pub(crate) mod spill;
pub(crate) mod tracefs;

pub(crate) use ring::cpus;

use super::system::pagemap;
use merge::Finished;
use perf::PerfFaults;
use ptarmigan_term::Failure;
use ptarmigan_trace::Unseen;
use spill::Spill;
use std::sync::atomic::Ordering;
use tracefs::Instance;

/// The source of the faults and, with tracefs, of all other events.
pub(crate) enum Source {
    Tracefs(Instance),
    Perf(PerfFaults),
}

impl Source {
    /// Returns the number of CPUs; all CPU numbers are below it.
    pub(crate) fn cpus(&self) -> u16 {
        match self {
            Self::Tracefs(instance) => instance.cpus(),
            Self::Perf(_) => PerfFaults::cpus(),
        }
    }

    /// Returns the events that this source does not have on this machine.
    pub(crate) fn unseen(&self) -> Unseen {
        let present = if pagemap::works() { 0 } else { Unseen::KERNEL_ACCESS };
        Unseen(
            present
                | match self {
                    Self::Tracefs(instance) if instance.sees_flushes() => 0,
                    Self::Tracefs(_) => Unseen::TLB_FLUSHES,
                    Self::Perf(faults) => {
                        let kernel = if faults.kernel { 0 } else { Unseen::KERNEL_FAULTS };
                        kernel | Unseen::FAULT_ACCESS | Unseen::TLB_FLUSHES | Unseen::IDLE
                    }
                },
        )
    }

    /// Returns how many bytes of events have been read from the kernel.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Tracefs(instance) => instance.bytes.load(Ordering::Relaxed),
            Self::Perf(faults) => faults.bytes.load(Ordering::Relaxed),
        }
    }

    /// Returns the tasks that are recorded now, if the kernel keeps a list of them.
    pub(crate) fn alive(&self) -> Vec<i32> {
        match self {
            Self::Tracefs(instance) => instance.alive(),
            Self::Perf(_) => Vec::new(),
        }
    }

    /// Ends the recording.
    pub(crate) fn finish(self, spill: &Spill) -> Result<Finished, Failure> {
        match self {
            Self::Tracefs(instance) => instance.finish(spill),
            Self::Perf(faults) => faults.finish(spill),
        }
    }
}
