//! 32-bit PowerPC with a hash table, and areas packed into its 3 GiB.
use super::{DirectTables, Platform, ReachedTables, room};
use crate::args::ReplayArgs;
use crate::input::relayout::Room;
use ptarmigan::format::Ppc32;
use ptarmigan::params::UserPte;
use ptarmigan::tlb::TlbConfig;
use ptarmigan::tlb::hash::{HashSize, Hashed32, Hashed64};
use ptarmigan_hosted::Host;
use ptarmigan_ptsan::{HashMemory, HashUse, HashedMmu, Interrupting, SoftMmu, hash_size};
use ptarmigan_term::{Bytes, Context, Failure};
use ptsan::{Config, HashLayout};

/// 32-bit PowerPC with a hash table.
pub struct Hashed {
    layout: HashLayout,
    size: HashSize,
}

/// The physical memory of such a machine.
const MOST_MEMORY: u64 = 4 << 30;
/// Contexts, as Linux has them there.
const CONTEXTS: u16 = 32_767;

impl Hashed {
    /// Describes the machine that the arguments ask for.
    ///
    /// # Errors
    /// If there is no such hash table, or more memory than the machine can have.
    pub fn new(args: &ReplayArgs) -> Result<Self, Failure> {
        if args.memory > MOST_MEMORY {
            return Err(Failure::new(format!(
                "--memory {} MiB: ppc32 has at most {} MiB",
                Bytes(args.memory).mib(),
                Bytes(MOST_MEMORY).mib()
            )));
        }
        let layout = args.hash.layout();
        let size = match (args.hash.hash_size, layout) {
            (Some(bytes), _) => hash_size(layout, bytes).context("--hash-size")?,
            (None, HashLayout::Bits32) => HashSize::for_memory::<Hashed32>(args.memory, 512),
            (None, HashLayout::Bits64) => HashSize::for_memory::<Hashed64>(args.memory, 256),
        };
        Ok(Hashed { layout, size })
    }

    fn memory(&self) -> Result<HashMemory, Failure> {
        HashMemory::new(self.size).ok_or_else(|| {
            let bytes = Bytes(self.size.bytes() as u64);
            Failure::new(format!("this host has no {} MiB for the hash table", bytes.mib()))
        })
    }
}

impl Platform for Hashed {
    type Format = Ppc32;
    type Traits = Interrupting;
    type Tables = DirectTables;
    type Mmus<'s> = HashedMmu<'s>;
    type Mmu<'m> = &'m HashedMmu<'m>;

    fn tables(&self, host: &Host<Ppc32>) -> Result<DirectTables, Failure> {
        DirectTables::new(host, UserPte::NoHigh)
    }

    fn mmus<'s>(&self, cpus: usize, soft: Option<&'s SoftMmu<'s, Ppc32>>) -> Result<HashedMmu<'s>, Failure> {
        let memory = match soft {
            Some(soft) => soft.hash_memory(),
            None => Some(self.memory()?),
        };
        let memory = memory.ok_or_else(|| Failure::new("the sanitizer has no hash table"))?;
        let mmu = HashedMmu::new(memory, self.layout, cpus).context("the hash table")?;
        Ok(match soft {
            Some(soft) => mmu.watched_by(soft),
            None => mmu,
        })
    }

    fn mmu<'m>(mmus: &'m HashedMmu<'_>) -> &'m HashedMmu<'m> {
        mmus
    }

    fn sanitizer<'h>(&self, host: &'h Host<Ppc32>, config: Config) -> Result<SoftMmu<'h, Ppc32>, Failure> {
        Ok(SoftMmu::with_hash_table(host, config, self.memory()?))
    }

    fn hash_use(mmus: &HashedMmu<'_>) -> Option<HashUse> {
        Some(mmus.usage())
    }

    fn tlb(&self, config: TlbConfig) -> TlbConfig {
        let asids = if config.asids == 0 { CONTEXTS } else { config.asids };
        TlbConfig { asids, ..config }
    }

    fn room(&self) -> Option<Room> {
        Some(room::<Ppc32>())
    }
}
