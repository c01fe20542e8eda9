//! The options of high memory.
use crate::memory;
use ptarmigan_hosted::{HighConfig, Kmap, SlotKind};
use ptarmigan_term::{Bytes, Failure};

/// Default number of slots of a pool, as on Linux.
const SLOTS: usize = 1024;

/// High memory, and how the kernel of the machine reaches it.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "High memory")]
pub struct HighArgs {
    /// Low memory of the machine. The rest is high memory, from which data frames come first: the
    /// kernel maps them to clear and to copy them. Tables are in low memory, but for leaf tables of
    /// i386 and i386-pae: see userpte in --params [default: all; 768M on i386 and i386-pae].
    #[arg(long, value_parser = memory::parse, value_name = "SIZE")]
    pub(crate) low: Option<u64>,
    /// What slots of high memory are [default: store].
    #[arg(long, value_enum, requires = "low", value_name = "KIND")]
    window: Option<WindowName>,
    /// What the kernel maps high frames with [default: pool].
    #[arg(long, value_enum, requires = "low", value_name = "KIND")]
    kmap: Option<KmapName>,
    /// Slots of the pool, 16 or more for each CPU [default: 1024].
    #[arg(long, requires = "low", value_name = "N")]
    pool_slots: Option<usize>,
}

impl HighArgs {
    /// Returns whether the machine has the library's pool: it must have high memory, which `usual`
    /// says that it has by default.
    pub fn has_pool(&self, usual: bool) -> bool {
        (usual || self.low.is_some()) && matches!(self.kmap, None | Some(KmapName::Pool))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WindowName {
    /// Mappings of this host: a system call for each
    Real,
    /// Entries of an array: a store for each
    Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum KmapName {
    /// A stack of slots for each CPU
    Local,
    /// Slots that all CPUs share
    Pool,
    /// The pool as Linux has it: one lock, and one flush of the whole window
    Linux,
    /// The same as in Linux 2.4, which flushes each round even if nothing is stale
    #[value(name = "linux-2.4")]
    Linux24,
}

/// The high memory of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct High {
    /// Bytes of low memory.
    pub low: u64,
    /// How the rest is reached.
    pub config: HighConfig,
}

impl HighArgs {
    /// Returns the high memory of a machine with `memory` bytes, if there is any. `usual_low` is
    /// the default low memory of such machines.
    ///
    /// # Errors
    /// If options contradict each other or the rest of the machine.
    pub fn high(
        &self,
        memory: u64,
        nodes: usize,
        idle_zero: u32,
        usual_low: Option<u64>,
    ) -> Result<Option<High>, Failure> {
        let Some(low) = self.low.or(usual_low.filter(|low| *low < memory)) else { return Ok(None) };
        let refuse = |why: String| Err(Failure::new(why));
        if low >= memory {
            return refuse(format!(
                "--low {} MiB of --memory {} MiB leaves no high memory: give less --low, or none",
                Bytes(low).mib(),
                Bytes(memory).mib()
            ));
        }
        if nodes > 1 {
            return refuse(format!("--low with --nodes {nodes}: high memory is on one node"));
        }
        if idle_zero > 0 {
            return refuse(
                "--low with --idle-zero: idle CPUs clear through the direct map, which high \
                           memory is not in"
                    .to_owned(),
            );
        }
        let kmap = match self.kmap {
            Some(KmapName::Local) if self.pool_slots.is_some() => {
                return refuse("--pool-slots with --kmap local: local maps have no pool".to_owned());
            }
            Some(KmapName::Local) => Kmap::Local,
            Some(KmapName::Linux) => Kmap::Linux,
            Some(KmapName::Linux24) => Kmap::Linux24,
            Some(KmapName::Pool) | None => Kmap::Pool,
        };
        let slots = match self.window {
            Some(WindowName::Real) => SlotKind::Real,
            Some(WindowName::Store) | None => SlotKind::Store,
        };
        let pool_slots = self.pool_slots.unwrap_or(SLOTS);
        Ok(Some(High { low, config: HighConfig { kmap, slots, pool_slots } }))
    }
}
