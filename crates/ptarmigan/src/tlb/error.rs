//! Says why the TLB state refuses a call.
use crate::bootmem::BootMemoryShort;
use crate::cpu::{CpuId, MAX_CPUS, WrongMachine};
use crate::error::error;
use core::fmt;

/// Why the state of a machine's TLBs cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbError {
    /// There are more CPUs than a [`CpuMask`](crate::cpu::CpuMask) can name.
    TooManyCpus {
        /// CPUs asked for.
        cpus: usize,
    },
    /// The machine broadcasts invalidations, and has no number for each CPU and one more.
    TooFewAsids {
        /// Numbers there are.
        asids: u16,
        /// CPUs there are.
        cpus: usize,
    },
    /// The per-CPU state does not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for TlbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlbError::TooManyCpus { cpus } => {
                write!(f, "{cpus} CPUs: sets of CPUs can name {MAX_CPUS}")
            }
            TlbError::TooFewAsids { asids, cpus } => {
                write!(f, "{asids} ASIDs: {cpus} CPUs that share them keep one each, and one is handed out")
            }
            TlbError::Boot(e) => e.fmt(f),
        }
    }
}

error!(TlbError: BootMemoryShort => Boot);

/// CPUs are in another mode than the one in which they read tables of
/// [`Mmu::FORMATS`](super::Mmu::FORMATS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongMode {
    /// The register's field that says so.
    pub field: &'static str,
    /// Its value.
    pub is: u64,
    /// The value that goes with the format.
    pub wanted: u64,
}

impl WrongMode {
    /// Compares the value of a field with the one that goes with the format.
    ///
    /// # Errors
    ///
    /// [`WrongMode`] if they differ.
    pub fn unless(field: &'static str, is: u64, wanted: u64) -> Result<(), Self> {
        if is == wanted { Ok(()) } else { Err(WrongMode { field, is, wanted }) }
    }
}

impl fmt::Display for WrongMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongMode { field, is, wanted } = self;
        write!(
            f,
            "{field} is {is}, and the MMUs' format goes with {wanted}; set it so, or name another format"
        )
    }
}

impl core::error::Error for WrongMode {}

/// The reason for which a call was refused, without any effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbRefusal {
    /// The pin or the space is of another machine.
    WrongMachine(WrongMachine),
    /// The state was set up for fewer CPUs than this one's number wants.
    NoSuchCpu(CpuId),
    /// The CPU is in a switch of its root or in a flush already: the caller interrupted it, or is
    /// called by it.
    Busy(CpuId),
}

impl fmt::Display for TlbRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlbRefusal::WrongMachine(e) => e.fmt(f),
            TlbRefusal::NoSuchCpu(cpu) => write!(f, "no TLB state was set up for CPU {}", cpu.0),
            TlbRefusal::Busy(cpu) => write!(f, "CPU {} is switching its root or flushing already", cpu.0),
        }
    }
}

error!(TlbRefusal: WrongMachine => WrongMachine);
