//! Makes a machine that reaches its high data frames through slots.
use super::kmap::{HighSlots, KmapCounts, Maps};
use super::setup::{HighConfig, HighError};
use crate::ipi::Wired;
use crate::machine::{HostMachine, TableReach};
use crate::slots::CpuSlot;
use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::cpu::{Counter, Pinned};
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use ptarmigan::highmem::Slots;
use ptarmigan::machine::{Machine, On};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{SpaceMachine, ZeroBlock};
use ptarmigan::tlb::{Mmu, Tlb};
use ptarmigan::window::DirectMap;

/// A [`HostMachine`] whose kernel maps data frames to clear and to copy them. Low frames are
/// reached through the direct map, and tables as the machine beneath reaches them.
///
/// Slots are filled and flushed whether or not data frames have
/// [memory](crate::HostConfig::touch_data) behind them.
pub struct HighMachine<'m, 'h, F: Format, P: Policy, S: Mmu, W: TableReach = DirectMap> {
    inner: &'m HostMachine<'h, F, P, S, W>,
    maps: Maps<'m, F, S>,
    /// By CPU.
    tallies: Vec<Tally>,
}

/// Maps that a CPU has made.
#[derive(Default)]
#[repr(align(128))]
struct Tally {
    cleared: Counter,
    copied: Counter,
    arguments: Counter,
}

impl<'m, 'h, F: Format, P: Policy, S: Mmu, W: TableReach> HighMachine<'m, 'h, F, P, S, W> {
    /// Puts a machine and the slots that were made for its host together.
    ///
    /// # Errors
    ///
    /// [`HighError`]; the slots have gone then. [`HighError::WrongMachine`] for the slots of
    /// another host.
    pub fn new(
        inner: &'m HostMachine<'h, F, P, S, W>,
        slots: HighSlots<'m>,
        config: &HighConfig,
    ) -> Result<Self, HighError> {
        let maps = Maps::new(inner.host(), inner.tlb(), slots, config.kmap)?;
        let tallies = (0..inner.host().config().cpus).map(|_| Tally::default()).collect();
        Ok(HighMachine { inner, maps, tallies })
    }

    /// Returns the machine without high memory.
    pub fn inner(&self) -> &'m HostMachine<'h, F, P, S, W> {
        self.inner
    }

    /// Returns the counts of the maps made so far.
    pub fn counts(&self) -> KmapCounts {
        let sum = |of: fn(&Tally) -> &Counter| self.tallies.iter().map(|tally| of(tally).get()).sum();
        let (installs, used) = self.maps.slots().counts();
        KmapCounts {
            cleared: sum(|tally| &tally.cleared),
            copied: sum(|tally| &tally.copied),
            arguments: sum(|tally| &tally.arguments),
            installs,
            slots: self.maps.slots().len(),
            used,
            sweeps: self.maps.sweeps(),
            plans: self.inner.tlb().counts().kernel_plans,
        }
    }

    /// Takes all slots back, and empties every list: of the given CPUs, and of the nodes. Returns
    /// the counts of the maps made until then.
    ///
    /// # Errors
    ///
    /// [`HighError`] if slots are in use.
    pub fn drain(&self, cpus: &[CpuSlot]) -> Result<KmapCounts, HighError> {
        let counts = self.counts();
        let pins: Vec<_> = cpus.iter().map(CpuSlot::pin).collect();
        let slots = self.maps.end(&pins).map_err(HighError::Sweep)?;
        self.inner.drain(cpus);
        if slots == 0 { Ok(counts) } else { Err(HighError::InUse { slots }) }
    }

    /// Maps a frame to write a program's arguments to it.
    ///
    /// # Errors
    ///
    /// [`NoFrame`] if the host had no memory for a slot.
    ///
    /// # Safety
    ///
    /// 1. `frame` must be a data frame of the machine's, and no other code may reach it now.
    pub unsafe fn write_argument(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        self.tally(pin, |tally| tally.arguments.add(1));
        self.with(pin, frame, |base| {
            if self.has_memory() {
                // SAFETY: the frame is mapped there, and no other code reaches it (contract, 1.).
                unsafe { base.write_volatile(1) };
            }
        })
    }

    fn has_memory(&self) -> bool {
        self.inner.host().config().touch_data
    }

    fn tally(&self, pin: &Pinned<'_>, add: impl FnOnce(&Tally)) {
        if let Some(tally) = self.tallies.get(usize::from(pin.cpu().0)) {
            add(tally);
        }
    }

    #[inline]
    fn with<R>(&self, pin: &Pinned<'_>, frame: Pfn, f: impl FnOnce(*mut u8) -> R) -> Result<R, NoFrame> {
        self.maps.with(self.inner.tlb(), self.inner.frames(), pin, frame, f)
    }
}

// SAFETY: 1. and 2. the parts are those of the machine within. 3. slots show the frame that is
// named, and no other memory is written. 4. it is taken for the caller.
unsafe impl<'h, F: Format, P: Policy, S: Mmu, W: TableReach> Machine for HighMachine<'_, 'h, F, P, S, W> {
    type Window = W;
    type Policy = P;
    type Shootdown = Wired<F, S>;
    const HIGH_TABLES: bool = W::HIGH;

    fn table_share(&self) -> u32 {
        self.inner.table_share()
    }

    #[inline]
    fn frames(&self) -> &Frames {
        self.inner.frames()
    }
    #[inline]
    fn data(&self) -> &DataFrames {
        self.inner.data()
    }
    #[inline]
    fn window(&self) -> &W {
        self.inner.window()
    }
    #[inline]
    fn policy(&self) -> &P {
        self.inner.policy()
    }
    #[inline]
    fn tlb(&self) -> &Tlb<Wired<F, S>> {
        self.inner.tlb()
    }
    #[inline]
    fn parking(&self) -> &Parking {
        self.inner.parking()
    }

    #[inline]
    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        self.tally(pin, |tally| tally.cleared.add(1));
        // A slot shows one frame.
        frame.block(F::PAGE_ORDER).try_for_each(|frame| {
            self.with(pin, frame, |base| {
                if self.has_memory() {
                    // SAFETY: the frame is mapped there, and is the caller's alone (contract, 1.).
                    unsafe { base.write_bytes(0, FRAME_SIZE) };
                }
            })
        })
    }

    #[inline]
    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        self.tally(pin, |tally| tally.copied.add(2));
        from.block(F::PAGE_ORDER).zip(to.block(F::PAGE_ORDER)).try_for_each(|(from, to)| {
            self.with(pin, from, |source| {
                self.with(pin, to, |target| {
                    if self.has_memory() {
                        // SAFETY: `to` is the caller's alone (contract, 1.); `from` is a different
                        // frame (2.), which no code writes while it is shared; both are mapped.
                        unsafe { core::ptr::copy_nonoverlapping(source, target, FRAME_SIZE) };
                    }
                })
            })?
        })?;
        if self.has_memory() {
            // SAFETY: 1. by the caller's point 1.
            unsafe { self.inner.use_data(to) };
        }
        Ok(())
    }

    /// Anonymous pages are cleared, in memory or not: that takes a slot.
    #[inline]
    fn take_anonymous(on: On<'_, Self>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        // SAFETY: 1. the machine has the frames of the one within.
        unsafe { on.machine().inner.take_zero(on, flags) }
    }
}

// SAFETY: 1. the zero frame is the host's own, and no code writes to it. 2. frames of files are the
// host's own too. 3. as for the machine within.
unsafe impl<F: Format, P: Policy, S: Mmu, W: TableReach> SpaceMachine for HighMachine<'_, '_, F, P, S, W> {
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;

    #[inline]
    fn zero_frame(&self) -> Pfn {
        self.inner.zero_frame()
    }
    #[inline]
    fn zero_block(&self) -> Option<&ZeroBlock> {
        self.inner.host().zero_block()
    }
    #[inline]
    fn backing_frame(&self, _object: u32, page: u64) -> Option<Pfn> {
        Some(self.inner.host().file_frame(page))
    }
}
