//! 32-bit PowerPC with a hash table, and areas packed into its 3 GiB.
use super::{Platform, room};
use crate::error::{Context, Failure};
use crate::replay::args::ReplayArgs;
use crate::replay::input::relayout::Room;
use crate::replay::workers::watch::Watch;
use ptarmigan::format::Ppc32;
use ptarmigan::quicklist::Source;
use ptarmigan::space::Access;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::TlbConfig;
use ptarmigan::tlb::hash::{HashSize, Hashed32, Hashed64, Refill};
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::Host;
use ptarmigan_rig::{HashMemory, HashUse, HashedMmu, SoftMmu, hash_size};
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
                args.memory >> 20,
                MOST_MEMORY >> 20
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
        let mib = self.size.bytes() >> 20;
        HashMemory::new(self.size)
            .ok_or_else(|| Failure::new(format!("this host has no {mib} MiB for the hash table")))
    }
}

impl Platform for Hashed {
    type Format = Ppc32;
    type Mmus = HashedMmu<'static>;
    type Mmu<'m> = &'m HashedMmu<'static>;
    type Checked<'s> = (&'s SoftMmu<'s, Ppc32>, HashedMmu<'s>);
    type CheckedMmu<'m> = &'m HashedMmu<'m>;
    type Tables = ();
    type Reach<'h> = DirectMap;
    type Watched<'m, W: Watch + Send> = Refilling<'m, W>;

    fn mmus(&self, cpus: usize) -> Result<Self::Mmus, Failure> {
        HashedMmu::new(self.memory()?, self.layout, cpus).context("the hash table")
    }

    fn mmu(mmus: &Self::Mmus) -> Self::Mmu<'_> {
        mmus
    }

    fn tables(&self, _: &Host<Ppc32>) -> Result<(), Failure> {
        Ok(())
    }

    fn reach<'h>((): &'h (), host: &'h Host<Ppc32>) -> DirectMap {
        host.window()
    }

    unsafe fn source<'h>(
        (): &'h (),
        host: &'h Host<Ppc32>,
    ) -> Source<'h, DirectMap, &'h KernelMap<Ppc32, DirectMap>> {
        host.source()
    }

    fn watch<W: Watch + Send>(mmus: &Self::Mmus, watch: W) -> Refilling<'_, W> {
        Refilling { mmu: mmus, watch }
    }

    fn unwatch<W: Watch + Send>(watched: Refilling<'_, W>) -> W {
        watched.watch
    }

    fn sanitizer<'h>(&self, host: &'h Host<Ppc32>, config: Config) -> Result<SoftMmu<'h, Ppc32>, Failure> {
        Ok(SoftMmu::with_hash_table(host, config, self.memory()?))
    }

    fn checked<'s>(&self, soft: &'s SoftMmu<'s, Ppc32>, cpus: usize) -> Result<Self::Checked<'s>, Failure> {
        let memory = soft.hash_memory().ok_or_else(|| Failure::new("the sanitizer has no hash table"))?;
        let mmu = HashedMmu::new(memory, self.layout, cpus).context("the hash table")?;
        Ok((soft, mmu.watched_by(soft)))
    }

    fn checked_mmu<'m, 's: 'm>(checked: &'m Self::Checked<'s>) -> Self::CheckedMmu<'m> {
        &checked.1
    }

    fn checked_watch<'m, 's: 'm, W: Watch + Send>(
        checked: &'m Self::Checked<'s>,
        watch: W,
    ) -> Refilling<'m, W> {
        Refilling { mmu: &checked.1, watch }
    }

    fn hash_use(mmus: &Self::Mmus) -> Option<HashUse> {
        Some(mmus.usage())
    }

    fn checked_hash_use(checked: &Self::Checked<'_>) -> Option<HashUse> {
        checked.0.with(|sanitizer, memory| sanitizer.check_hash_table(memory));
        Some(checked.1.usage())
    }

    fn tlb(&self, config: TlbConfig) -> TlbConfig {
        let asids = if config.asids == 0 { CONTEXTS } else { config.asids };
        TlbConfig { asids, ..config }
    }

    fn room(&self) -> Option<Room> {
        Some(room::<Ppc32>())
    }
}

/// An observer, on a machine whose CPUs look a page up again after its fault was served.
pub struct Refilling<'m, W> {
    mmu: &'m HashedMmu<'m>,
    watch: W,
}

impl<W: Watch> Watch for Refilling<'_, W> {
    const REFILLS: bool = true;

    fn begins(&mut self) {
        self.watch.begins();
    }

    fn refill(&mut self, cpu: usize, va: u64, access: Access, entry: &dyn Fn() -> Option<Refill<u64>>) {
        self.mmu.access(cpu, va, access, entry);
    }

    fn served(&mut self, cpu: usize, va: u64, access: Access) {
        self.watch.served(cpu, va, access);
    }

    fn done(&mut self, at: usize) {
        self.watch.done(at);
    }
}
