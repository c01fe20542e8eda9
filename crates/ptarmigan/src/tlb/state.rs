//! Holds the state of a machine's TLBs: the fields of each CPU, and the names of spaces.
use super::asid::machine_wide::MachineWideAsids;
use super::asid::per_cpu::PerCpuAsids;
use super::config::TlbConfig;
use super::counts::{CpuTally, FlushCounts};
use super::error::{TlbError, TlbRefusal};
use super::hardware::Shootdown;
use super::id::{Generation, SpaceId};
use super::mailbox::Mailboxes;
use super::readers::Readers;
use super::space::SpaceTlb;
use crate::bootmem::{BootArray, BootMemory};
use crate::cpu::{Guard, MAX_CPUS, MachineId, PerCpu, Pinned};
use crate::sync::SpinLock;
use crate::sync::atomic::Ordering;

/// The root that a CPU has loaded.
#[derive(Clone, Copy)]
pub(super) struct Loaded {
    pub space: Option<SpaceId>,
    pub generation: Generation,
    pub asid: u16,
    pub lazy: bool,
}

/// The kernel's own root.
pub(super) const KERNEL: Loaded = Loaded { space: None, generation: Generation(0), asid: 0, lazy: false };

/// The name of a machine's first space.
pub const FIRST_NAME: u64 = 1;

/// The machine's TLBs. See the [module](super) for the protocol.
///
/// No call needs interrupts to be masked. A handler of an interrupt may call [`serve`](Self::serve)
/// at any moment. All other calls it may make as well, but while the code that it interrupted is in
/// a flush or in one of [`activate`](Self::activate), [`rest`](Self::rest) and
/// [`deactivate`](Self::deactivate), they are [refused](TlbRefusal::Busy).
pub struct Tlb<S> {
    pub(super) machine: MachineId,
    pub(super) hardware: S,
    pub(super) config: TlbConfig,
    /// The name of the next space.
    next_space: SpinLock<u64>,
    pub(super) loaded: PerCpu<Loaded>,
    /// Absent on machines that broadcast.
    pub(super) asids: PerCpuAsids,
    /// Absent on others.
    pub(super) common_asids: MachineWideAsids,
    pub(super) mailboxes: Mailboxes,
    pub(super) readers: Readers,
    tallies: BootArray<CpuTally>,
}

impl<S: Shootdown> Tlb<S> {
    /// Sets the state up for `machine`: over its `hardware`, in the shape `config`.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::{bootmem::BootMemory, cpu::MachineId, tlb::{Shootdown, Tlb, TlbConfig}};
    /// fn another<S: Shootdown>(boot: &mut BootMemory, first: &Tlb<S>, hardware: S) {
    ///     // A flush of one would not know what CPUs have loaded through the other.
    ///     let _ = Tlb::new(boot, first.machine(), TlbConfig::new(1), hardware);
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TlbError`] if there are too many CPUs or too few ASIDs, or the state does not fit into
    /// `boot`.
    ///
    /// # Safety
    ///
    /// 1. `machine` must have no other state of its TLBs, now or later.
    pub unsafe fn new(
        boot: &mut BootMemory,
        machine: MachineId,
        config: TlbConfig,
        hardware: S,
    ) -> Result<Self, TlbError> {
        // SAFETY: 1. there is no earlier state, by the caller's point 1, and no later one.
        unsafe { Self::after(boot, machine, config, hardware, FIRST_NAME) }
    }

    /// As [`new`](Self::new), for a machine whose earlier state has been dropped: spaces are named
    /// from `first` on.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// # Safety
    ///
    /// 1. `machine` must have no other state of its TLBs while this one is there. If it had one
    ///    before, `first` must be the result of [`next_name`](Self::next_name) as that was dropped,
    ///    else [`FIRST_NAME`].
    pub unsafe fn after(
        boot: &mut BootMemory,
        machine: MachineId,
        config: TlbConfig,
        hardware: S,
        first: u64,
    ) -> Result<Self, TlbError> {
        Self::check(&config)?;
        let cpus = config.cpus;
        Ok(Tlb {
            machine,
            hardware,
            config,
            next_space: SpinLock::new(first),
            loaded: PerCpu::new(boot, machine, cpus, |_| KERNEL)?,
            asids: PerCpuAsids::new(boot, cpus, Self::asids(&config, false))?,
            common_asids: MachineWideAsids::new(boot, cpus, Self::asids(&config, true))?,
            mailboxes: Mailboxes::new(boot, cpus)?,
            readers: Readers::new(boot, machine, cpus)?,
            tallies: boot.take_each(cpus, |_| CpuTally::default())?,
        })
    }

    /// Looks at the shape as [`new`](Self::new) does.
    pub(crate) fn check(config: &TlbConfig) -> Result<(), TlbError> {
        let TlbConfig { cpus, asids, .. } = *config;
        if cpus > MAX_CPUS {
            return Err(TlbError::TooManyCpus { cpus });
        }
        if S::BROADCASTS && asids != 0 && usize::from(asids) <= cpus {
            return Err(TlbError::TooFewAsids { asids, cpus });
        }
        Ok(())
    }

    /// Numbers that are the same on all CPUs, or else those that each CPU has to itself.
    const fn asids(config: &TlbConfig, common: bool) -> u16 {
        if S::HAS_ASIDS && S::BROADCASTS == common { config.asids } else { 0 }
    }

    /// Returns the boot memory that the state takes.
    pub const fn bytes(config: &TlbConfig) -> usize {
        let cpus = config.cpus;
        PerCpu::<Loaded>::bytes(cpus)
            + PerCpuAsids::bytes(cpus, Self::asids(config, false))
            + MachineWideAsids::bytes(cpus, Self::asids(config, true))
            + Mailboxes::bytes(cpus)
            + Readers::bytes(cpus)
            + BootMemory::bytes_each::<CpuTally>(cpus)
    }

    /// Returns the machine whose TLBs these are.
    #[inline]
    pub fn machine(&self) -> MachineId {
        self.machine
    }

    /// Returns the hardware beneath. It can be asked to forget more; only this state knows the root
    /// to load ([`Root`](super::Root)).
    pub fn hardware(&self) -> &S {
        &self.hardware
    }

    /// Returns the shape that the state was set up in.
    pub fn config(&self) -> &TlbConfig {
        &self.config
    }

    /// Returns the cells in which CPUs note that they read tables.
    #[inline]
    pub fn readers(&self) -> &Readers {
        const { assert!(S::HAS_READERS, "the machine says that it has no readers") };
        &self.readers
    }

    /// As [`readers`](Self::readers), for code that is left out on machines without readers.
    #[inline]
    pub(crate) fn cells(&self) -> &Readers {
        &self.readers
    }

    /// Names a new space, which no CPU has loaded yet. No two spaces of a machine ever have the
    /// same name.
    pub fn new_space(&self) -> SpaceTlb {
        self.new_space_at(Generation(0))
    }

    /// Names a new space whose generations begin at `first`: for tests of their wrap.
    pub fn new_space_at(&self, first: Generation) -> SpaceTlb {
        let mut next = self.next_space.lock();
        let id = SpaceId(*next);
        *next += 1;
        SpaceTlb::named(self.machine, id, first)
    }

    /// Accepts a pin of this machine, of a CPU that there is state for.
    #[inline]
    pub(super) fn accept(&self, pin: &Pinned<'_>) -> Result<(), TlbRefusal> {
        self.machine.accept(pin.machine())?;
        if usize::from(pin.cpu().0) < self.config.cpus {
            Ok(())
        } else {
            Err(TlbRefusal::NoSuchCpu(pin.cpu()))
        }
    }

    /// Takes the state of the CPU's root, for a pin that was [accepted](Self::accept).
    #[inline]
    pub(super) fn own<'a>(&'a self, pin: &'a Pinned<'_>) -> Result<Guard<'a, Loaded>, TlbRefusal> {
        self.loaded.enter(pin).ok_or(TlbRefusal::Busy(pin.cpu()))
    }

    /// Notes that something owns tables of the machine's policy from now on: a tree, or a range of
    /// the kernel's half.
    #[inline]
    pub(crate) fn owner_begins(&self, pin: &Pinned<'_>) {
        self.tally(pin).owners.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an [owner](Self::owner_begins) has given all its tables back.
    #[inline]
    pub(crate) fn owner_ends(&self, pin: &Pinned<'_>) {
        self.tally(pin).owners.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a chain that was parked.
    pub(crate) fn count_parked(&self, pin: &Pinned<'_>) {
        self.tally(pin).parked.add(1);
    }

    /// Counts a chain that was flushed by force.
    pub(crate) fn count_forced(&self, pin: &Pinned<'_>) {
        self.tally(pin).forced.add(1);
    }

    #[inline]
    pub(super) fn tally(&self, pin: &Pinned<'_>) -> &CpuTally {
        self.tallies.of(usize::from(pin.cpu().0))
    }

    /// Returns the number of flushes so far, of all CPUs together.
    pub fn counts(&self) -> FlushCounts {
        self.tallies.iter().fold(FlushCounts::default(), |c, t| c.plus(t))
    }
}

impl<S> Tlb<S> {
    /// Returns the name that no space has yet, if another state can come after this one, of a
    /// machine with another policy:
    ///
    /// - no space, tree or range of the kernel's half is left, whose tables came from this
    ///   machine's policy;
    /// - every CPU has the kernel's root loaded;
    /// - no number that all CPUs know a space by has been handed out, as they may hold translations
    ///   under it.
    pub fn next_name(&mut self) -> Option<u64> {
        let next = *self.next_space.lock();
        let unused = next == FIRST_NAME || self.common_asids.is_empty();
        let left = self.loaded.each_mut().all(|loaded| loaded.space.is_none());
        let owners = self.tallies.iter().map(|tally| tally.owners.load(Ordering::Relaxed));
        (unused && left && owners.fold(0, usize::wrapping_add) == 0).then_some(next)
    }
}
