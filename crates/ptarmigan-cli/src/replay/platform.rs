//! The machines that traces are replayed on: a format, and how its MMUs find pages.
use super::args::ReplayArgs;
use super::input::relayout::Room;
use super::workers::watch::Watch;
use crate::error::{Context, Failure};
use ptarmigan::format::{Format, FormatExt, Ppc32, X86_64};
use ptarmigan::hosted::{Host, NoTlb};
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::Access;
use ptarmigan::tlb::hash::{HashSize, Hashed32, Hashed64};
use ptarmigan::tlb::{Mmu, TlbConfig};
use ptarmigan_rig::{HashMemory, HashUse, HashedMmu, SoftMmu, Watchable, hash_size};
use ptsan::{Config, HashLayout};

/// A machine that traces are replayed on.
pub(super) trait Platform: Sized + Sync {
    /// What its tables look like.
    type Format: Watchable;
    /// What its CPUs find translations in.
    type Mmus: Sync;
    /// The MMU of a CPU.
    type Mmu<'m>: Mmu
    where
        Self: 'm;
    /// As [`Mmus`](Self::Mmus), under the sanitizer.
    type Checked<'s>: Sync
    where
        Self: 's;
    /// As [`Mmu`](Self::Mmu), under the sanitizer.
    type CheckedMmu<'m>: Mmu
    where
        Self: 'm;
    /// A policy, as the machine takes it where speed is measured.
    type Policy<'q, Q: Policy + 'q>: Policy;
    /// An observer, and what CPUs do after a fault.
    type Watched<'m, W: Watch + Send>: Watch + Send
    where
        Self: 'm;

    /// Makes the MMUs of `cpus` CPUs.
    fn mmus(&self, cpus: usize) -> Result<Self::Mmus, Failure>;
    /// Returns the MMU as the machine takes it.
    fn mmu(mmus: &Self::Mmus) -> Self::Mmu<'_>;
    /// Returns a policy as the machine takes it where speed is measured.
    fn policy<'q, Q: Policy>(policy: &'q Q) -> Self::Policy<'q, Q>;
    /// Adds to an observer what CPUs do after a fault.
    fn watch<W: Watch + Send>(mmus: &Self::Mmus, watch: W) -> Self::Watched<'_, W>;
    /// Returns the observer alone.
    fn unwatch<W: Watch + Send>(watched: Self::Watched<'_, W>) -> W;
    /// Makes the sanitizer of a host.
    fn sanitizer<'h>(
        &self,
        host: &'h Host<Self::Format>,
        config: Config,
    ) -> Result<SoftMmu<'h, Self::Format>, Failure>;
    /// Makes MMUs that a sanitizer watches.
    fn checked<'s>(
        &self,
        soft: &'s SoftMmu<'s, Self::Format>,
        cpus: usize,
    ) -> Result<Self::Checked<'s>, Failure>;
    /// As [`mmu`](Self::mmu).
    fn checked_mmu<'m, 's: 'm>(checked: &'m Self::Checked<'s>) -> Self::CheckedMmu<'m>;
    /// As [`watch`](Self::watch).
    fn checked_watch<'m, 's: 'm, W: Watch + Send>(
        checked: &'m Self::Checked<'s>,
        watch: W,
    ) -> Self::Watched<'m, W>;
    /// Returns what was done with the hash table, if there is one.
    fn hash_use(_mmus: &Self::Mmus) -> Option<HashUse> {
        None
    }
    /// As [`hash_use`](Self::hash_use). Checks all that the table has.
    fn checked_hash_use(_checked: &Self::Checked<'_>) -> Option<HashUse> {
        None
    }
    /// Returns the shape of the TLBs, where the arguments leave it open.
    fn tlb(&self, config: TlbConfig) -> TlbConfig {
        config
    }
    /// Returns what a recording has to be moved to, if addresses are not as recorded.
    fn room(&self) -> Option<Room> {
        None
    }
}

/// x86-64, with the recorded addresses.
pub(super) struct Recorded;

impl Platform for Recorded {
    type Format = X86_64;
    type Mmus = ();
    type Mmu<'m> = NoTlb;
    type Checked<'s> = &'s SoftMmu<'s, X86_64>;
    type CheckedMmu<'m> = &'m SoftMmu<'m, X86_64>;
    type Policy<'q, Q: Policy + 'q> = &'q Q;
    type Watched<'m, W: Watch + Send> = W;

    fn mmus(&self, _cpus: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn mmu((): &()) -> NoTlb {
        NoTlb
    }

    fn policy<Q: Policy>(policy: &Q) -> &Q {
        policy
    }

    fn watch<W: Watch + Send>((): &(), watch: W) -> W {
        watch
    }

    fn unwatch<W: Watch + Send>(watched: W) -> W {
        watched
    }

    fn sanitizer<'h>(&self, host: &'h Host<X86_64>, config: Config) -> Result<SoftMmu<'h, X86_64>, Failure> {
        Ok(SoftMmu::new(host, config))
    }

    fn checked<'s>(&self, soft: &'s SoftMmu<'s, X86_64>, _cpus: usize) -> Result<Self::Checked<'s>, Failure> {
        Ok(soft)
    }

    fn checked_mmu<'m, 's: 'm>(checked: &'m Self::Checked<'s>) -> Self::CheckedMmu<'m> {
        checked
    }

    fn checked_watch<'m, 's: 'm, W: Watch + Send>(_: &'m Self::Checked<'s>, watch: W) -> W {
        watch
    }
}

/// 32-bit PowerPC with a hash table.
pub(super) struct Hashed {
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
    pub(super) fn new(args: &ReplayArgs) -> Result<Self, Failure> {
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
    // Found by address: the engine is made once for all of them.
    type Policy<'q, Q: Policy + 'q> = &'q dyn Policy;
    type Watched<'m, W: Watch + Send> = Refilling<'m, W>;

    fn mmus(&self, cpus: usize) -> Result<Self::Mmus, Failure> {
        HashedMmu::new(self.memory()?, self.layout, cpus).context("the hash table")
    }

    fn mmu(mmus: &Self::Mmus) -> Self::Mmu<'_> {
        mmus
    }

    fn policy<Q: Policy>(policy: &Q) -> &dyn Policy {
        policy
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
        let shift = Ppc32::shift(Level(1));
        Some(Room {
            format: Ppc32::NAME,
            shift: shift - Ppc32::PAGE_SHIFT,
            regions: Ppc32::USER_END >> shift,
        })
    }
}

/// An observer, on a machine whose CPUs look a page up again after its fault was served.
pub(super) struct Refilling<'m, W> {
    mmu: &'m HashedMmu<'m>,
    watch: W,
}

impl<W: Watch> Watch for Refilling<'_, W> {
    const REFILLS: bool = true;

    fn begins(&mut self) {
        self.watch.begins();
    }

    fn refill(&mut self, cpu: usize, va: u64, access: Access, entry: &dyn Fn() -> Option<u64>) {
        self.mmu.access(cpu, va, access, entry);
    }

    fn served(&mut self, cpu: usize, va: u64, access: Access) {
        self.watch.served(cpu, va, access);
    }

    fn done(&mut self, at: usize) {
        self.watch.done(at);
    }
}
