//! Counts the maps of slots of either kind, and maps frames in them in three ways.
use super::setup::{HighConfig, HighError, Kmap, SlotKind};
use super::{RealSlots, StoreSlots};
use crate::host::Host;
use crate::ipi::Wired;
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{MachineId, Pinned};
use ptarmigan::format::Format;
use ptarmigan::frames::{Frames, NoFrame};
use ptarmigan::highmem::local::LocalMaps;
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolCounts, PoolError};
use ptarmigan::highmem::{Install, MAX_SLOTS, Remove, SlotError, Slots};
use ptarmigan::tlb::{KernelPlans, Mmu, Tlb};
use ptarmigan::window::WindowGuard;
use ptarmigan_linux::{FlushRule, LinuxPool};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The address by which flushes name the first slot of a store: these slots have no addresses of
/// their own.
const STORE_BASE: u64 = 0xffff_c000_0000_0000;

/// Slots of either kind, for the memory of one host. Counts how often each has shown a frame.
///
/// They borrow their host, and a [`HighMachine`](super::HighMachine) takes them for itself: no two
/// can have the same slots.
///
/// ```compile_fail,E0382
/// # use {ptarmigan::{format::X86_64, quicklist::Policy}, ptarmigan_hosted::*};
/// fn twice<P: Policy>(m: &HostMachine<'_, X86_64, P, NoTlb>, slots: HighSlots<'_>, config: &HighConfig) {
///     let one = HighMachine::new(m, slots, config);
///     let two = HighMachine::new(m, slots, config); // `slots` has been moved
/// #   let _ = (one, two);
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use {ptarmigan::format::X86_64, ptarmigan_hosted::*};
/// fn outlive(host: Host<X86_64>, config: &HighConfig) {
///     let slots = HighSlots::new(&host, config);
///     drop(host); // `slots` leads to its memory
///     drop(slots);
/// }
/// ```
pub struct HighSlots<'h> {
    machine: MachineId,
    slots: EitherSlots,
    /// By slot. Written by code that has the slot for itself.
    installs: Vec<AtomicU32>,
    _host: PhantomData<&'h ()>,
}

enum EitherSlots {
    Real(RealSlots),
    Store(StoreSlots),
}

macro_rules! either {
    ($slots:expr, $one:ident => $call:expr) => {
        match $slots {
            EitherSlots::Real($one) => $call,
            EitherSlots::Store($one) => $call,
        }
    };
}

impl<'h> HighSlots<'h> {
    /// Makes the slots of the machine that is to run on `host`.
    ///
    /// # Errors
    ///
    /// [`HighError`] if the host has no such high memory, or for a number of slots that does not
    /// do.
    pub fn new<F: Format>(host: &'h Host<F>, config: &HighConfig) -> Result<Self, HighError> {
        let HighConfig { kmap, slots: kind, pool_slots } = *config;
        if host.low_window().limit() == host.window().limit() {
            return Err(HighError::NoHighMemory);
        }
        let cpus = host.config().cpus;
        let most = if kind == SlotKind::Real { HighConfig::MOST_REAL } else { MAX_SLOTS - 1 };
        let (n, least) = match kmap {
            Kmap::Local => (HighConfig::DEPTH * cpus, 0),
            Kmap::Pool | Kmap::Linux | Kmap::Linux24 => (pool_slots, HighConfig::LEAST * cpus),
        };
        if !(least..=most).contains(&n) {
            return Err(HighError::Slots { slots: n, least, most });
        }
        let slots = match kind {
            SlotKind::Real => {
                let memory = host.high_memory().ok_or(HighError::NoFile)?.clone();
                let slots = RealSlots::new(memory, n).map_err(|e| HighError::Host(e.to_string()))?;
                EitherSlots::Real(slots)
            }
            SlotKind::Store => {
                let mut boot = host.boot(StoreSlots::bytes(n))?;
                // SAFETY: 1. the host's map reaches all its frames.
                EitherSlots::Store(unsafe { StoreSlots::new(&mut boot, n, STORE_BASE, host.window()) }?)
            }
        };
        let installs = (0..n).map(|_| AtomicU32::new(0)).collect();
        Ok(HighSlots { machine: host.frames().machine(), slots, installs, _host: PhantomData })
    }

    /// Returns how often slots have shown a frame, and how many have shown one.
    pub(super) fn counts(&self) -> (usize, usize) {
        let each = self.installs.iter().map(|count| count.load(Relaxed) as usize);
        each.fold((0, 0), |(all, used), n| (all + n, used + usize::from(n > 0)))
    }
}

// SAFETY: 1. to 5. by the slots within. 6. they are those slots, by the same numbers.
unsafe impl Slots for HighSlots<'_> {
    #[inline]
    fn len(&self) -> usize {
        either!(&self.slots, slots => slots.len())
    }
    #[inline]
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        if let Some(count) = self.installs.get(install.index()) {
            count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
        }
        either!(&self.slots, slots => slots.install(install))
    }
    #[inline]
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        either!(&self.slots, slots => slots.remove(remove))
    }
    #[inline]
    fn address(&self, index: usize) -> *mut u8 {
        either!(&self.slots, slots => slots.address(index))
    }
    #[inline]
    fn page(&self, index: usize) -> u64 {
        either!(&self.slots, slots => slots.page(index))
    }
    #[inline]
    fn shift(&self) -> u32 {
        either!(&self.slots, slots => slots.shift())
    }
}

/// Counts of the frames mapped in slots, of the slots, and of their sweeps and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KmapCounts {
    /// Frames mapped to be cleared.
    pub cleared: usize,
    /// Frames mapped to be copied, from and to counted each.
    pub copied: usize,
    /// Frames mapped to write arguments of programs.
    pub arguments: usize,
    /// Of these maps, those that a slot had to be filled for.
    pub installs: usize,
    /// Slots.
    pub slots: usize,
    /// Slots that have shown a frame.
    pub used: usize,
    /// The counts of the pool's sweeps; all zero for local maps.
    pub sweeps: PoolCounts,
    /// Flushes of the kernel's half, by plan.
    pub plans: KernelPlans,
}

/// The ways to map frames.
pub(super) enum Maps<'m, F: Format, S: Mmu> {
    Local(LocalMaps<'m, Wired<F, S>, HighSlots<'m>>),
    Pool(Pool<'m, Wired<F, S>, HighSlots<'m>>),
    Linux(LinuxPool<'m, Wired<F, S>, HighSlots<'m>>),
}

impl<'m, F: Format, S: Mmu> Maps<'m, F, S> {
    pub fn new(
        host: &'m Host<F>,
        tlb: &'m Tlb<Wired<F, S>>,
        slots: HighSlots<'m>,
        kmap: Kmap,
    ) -> Result<Self, HighError> {
        tlb.machine().accept(slots.machine).map_err(HighError::WrongMachine)?;
        let (cpus, frames, low) = (host.config().cpus, host.frames(), host.low_window());
        Ok(match kmap {
            Kmap::Local => {
                let mut boot = host.boot(LocalMaps::<'m, Wired<F, S>, HighSlots<'m>>::bytes(cpus))?;
                // SAFETY: 1. the slots were made for the host, whose machine is that of the TLBs;
                // the map is the host's. 2. they are passed on; only the counts look at them.
                let maps = unsafe { LocalMaps::new(&mut boot, HighConfig::DEPTH, tlb, frames, low, slots) };
                Maps::Local(maps?)
            }
            Kmap::Pool => {
                let config = PoolConfig::new(cpus, slots.len());
                let bytes =
                    Pool::<'m, Wired<F, S>, HighSlots<'m>>::bytes(&frames.size(), &config, slots.len());
                let mut boot = host.boot(bytes)?;
                // SAFETY: 1. and 2. as above.
                Maps::Pool(unsafe { Pool::new(&mut boot, config, tlb, frames, low, slots, &()) }?)
            }
            Kmap::Linux | Kmap::Linux24 => {
                let mut boot = host.boot(LinuxPool::<'m, Wired<F, S>, HighSlots<'m>>::bytes(slots.len()))?;
                // SAFETY: 1. and 2. as above.
                let pool = unsafe { LinuxPool::new(&mut boot, tlb, frames, low, slots) }?;
                let every = kmap == Kmap::Linux24;
                Maps::Linux(pool.with_rule(if every { FlushRule::EveryRound } else { FlushRule::Stale }))
            }
        })
    }

    /// Calls `f` with the address of `frame`, which is mapped meanwhile.
    ///
    /// Waits while slots are in use on other CPUs, whose code holds them for one frame's copy. It
    /// never waits for itself: a CPU holds two slots at most.
    pub fn with<R>(
        &self,
        tlb: &Tlb<Wired<F, S>>,
        frames: &Frames,
        pin: &Pinned<'_>,
        frame: Pfn,
        f: impl FnOnce(*mut u8) -> R,
    ) -> Result<R, NoFrame> {
        let none = || NoFrame::new(0, pin.node(), frames.node_free(pin.node()));
        let mut turn = 0;
        let mut wait = |e: PoolError| {
            turn += 1;
            tlb.pause(pin, turn);
            if matches!(e, PoolError::Exhausted { .. }) { Ok(()) } else { Err(none()) }
        };
        match self {
            Maps::Local(maps) => {
                let mapped = maps.scope(pin, |scope| scope.map(frame).map(|page| f(page.base())));
                mapped.ok().and_then(Result::ok).ok_or_else(none)
            }
            Maps::Pool(pool) => {
                let page = loop {
                    match pool.try_map(pin, frame) {
                        Ok(page) => break page,
                        Err(e) => wait(e)?,
                    }
                };
                Ok(f(page.base()))
            }
            Maps::Linux(pool) => {
                let base = loop {
                    match pool.try_map(pin, frame) {
                        Ok(base) => break base,
                        Err(e) => wait(e)?,
                    }
                };
                let result = f(base);
                // SAFETY: 1. it was mapped above, and `f` has returned.
                let unmapped = unsafe { pool.unmap(pin, frame) };
                debug_assert_eq!(unmapped, Ok(true), "{frame} was mapped a moment ago");
                Ok(result)
            }
        }
    }

    /// Returns the slots.
    pub fn slots(&self) -> &HighSlots<'m> {
        match self {
            Maps::Local(maps) => maps.slots(),
            Maps::Pool(pool) => pool.all_slots(),
            Maps::Linux(pool) => pool.all_slots(),
        }
    }

    /// Returns the counts of the pool's sweeps.
    pub fn sweeps(&self) -> PoolCounts {
        match self {
            Maps::Local(_) => PoolCounts::default(),
            Maps::Pool(pool) => pool.counts(),
            Maps::Linux(pool) => pool.counts(),
        }
    }

    /// Has the slots forgotten that nobody uses, and returns how many are in use.
    pub fn end(&self, pins: &[Pinned<'_>]) -> Result<usize, PoolError> {
        let Some(pin) = pins.first() else { return Ok(0) };
        let slots = self.slots().len();
        match self {
            Maps::Local(maps) => Ok(pins.iter().map(|pin| maps.depth(pin)).sum()),
            Maps::Pool(pool) => {
                pool.flush_unused(pin)?;
                Ok((0..slots).filter(|slot| pool.state(*slot) != 0).count())
            }
            Maps::Linux(pool) => {
                pool.flush_unused(pin)?;
                Ok((0..slots).filter(|slot| pool.state(*slot) != 0).count())
            }
        }
    }
}
