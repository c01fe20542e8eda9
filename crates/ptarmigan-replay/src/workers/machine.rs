//! The machine that a job runs on.
use crate::linux::has_page;
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use ptarmigan::machine::{Machine, On};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, Space, SpaceMachine};
use ptarmigan::tlb::hash::Refill;
use ptarmigan::tlb::{Mmu, Tlb};
use ptarmigan_hosted::{CpuSlot, HighMachine, Host, HostMachine, KmapCounts, TableReach};
use ptarmigan_ptsan::HashedMmu;
use ptarmigan_term::{Context, Failure};

/// Requirements of a job on its machine.
pub trait ReplayMachine<F: Format>: SpaceMachine + Sized {
    /// Returns the host.
    fn host(&self) -> &Host<F>;

    /// Takes back the pages and slots that the machine caches. Returns the counts of maps until
    /// then, if frames are mapped.
    ///
    /// # Errors
    /// If a slot is in use.
    fn drain(&self, slots: &[CpuSlot]) -> Result<Option<KmapCounts>, Failure>;

    /// The MMUs of its CPUs.
    type Mmu: ReplayMmu;

    /// Returns them.
    fn mmu(&self) -> &Self::Mmu;

    /// A program has been loaded to `space`, with arguments at `range`, which the kernel writes.
    ///
    /// # Errors
    /// If there is no memory to map them with.
    fn arguments(&self, on: On<'_, Self>, space: &Space<F>, range: VirtRange) -> Result<(), NoFrame>;
}

/// The MMUs of a machine that a job runs on.
pub trait ReplayMmu: Mmu {
    /// CPUs look a page up in a hash table after its fault was served.
    const REFILLS: bool = false;

    /// Such a CPU looks the page at `va` up, and puts it in if it is missed: `entry` is the
    /// software's entry then, or `None` for a fault.
    #[inline]
    fn refill(&self, _cpu: usize, _va: u64, _access: Access, _entry: &dyn Fn() -> Option<Refill<u64>>) {}
}

impl ReplayMmu for &HashedMmu<'_> {
    const REFILLS: bool = true;

    fn refill(&self, cpu: usize, va: u64, access: Access, entry: &dyn Fn() -> Option<Refill<u64>>) {
        self.access(cpu, va, access, entry);
    }
}

/// A hosted machine, with high memory or without.
///
/// Which of the two is looked at when data frames are cleared or copied, not while compiling: the
/// engine is large, and made for each format, policy and observer already.
pub struct EitherMachine<'m, 'h, F: Format, P: Policy, S: Mmu, W: TableReach> {
    inner: &'m HostMachine<'h, F, P, S, W>,
    high: Option<HighMachine<'m, 'h, F, P, S, W>>,
}

impl<'m, 'h, F: Format, P: Policy, S: Mmu, W: TableReach> EitherMachine<'m, 'h, F, P, S, W> {
    /// Takes a machine without high memory.
    pub fn low(inner: &'m HostMachine<'h, F, P, S, W>) -> Self {
        EitherMachine { inner, high: None }
    }

    /// Takes a machine with high memory.
    pub fn high(high: HighMachine<'m, 'h, F, P, S, W>) -> Self {
        EitherMachine { inner: high.inner(), high: Some(high) }
    }

    #[cold]
    fn write_arguments(
        high: &HighMachine<'m, 'h, F, P, S, W>,
        on: On<'_, Self>,
        space: &Space<F>,
        range: VirtRange,
    ) -> Result<(), NoFrame> {
        let mut mapped = Ok(());
        let walked = space.tree().walk(on, range, |_, frame, _| {
            if mapped.is_ok() {
                // SAFETY: 1. pages of arguments are fresh, and the space has run on no CPU yet.
                mapped = unsafe { high.write_argument(on.pin(), frame) };
            }
        });
        debug_assert!(walked.is_ok(), "the space is of this machine");
        mapped
    }
}

impl<F: Format, P: Policy, S: ReplayMmu, W: TableReach> ReplayMachine<F>
    for EitherMachine<'_, '_, F, P, S, W>
{
    type Mmu = S;

    #[inline]
    fn mmu(&self) -> &S {
        self.inner.tlb().hardware().mmu()
    }

    fn host(&self) -> &Host<F> {
        self.inner.host()
    }

    fn drain(&self, slots: &[CpuSlot]) -> Result<Option<KmapCounts>, Failure> {
        match &self.high {
            Some(high) => high.drain(slots).map(Some).context("after the replay"),
            None => {
                self.inner.drain(slots);
                Ok(None)
            }
        }
    }

    #[inline]
    fn arguments(&self, on: On<'_, Self>, space: &Space<F>, range: VirtRange) -> Result<(), NoFrame> {
        match &self.high {
            Some(high) => Self::write_arguments(high, on, space, range),
            None => Ok(()),
        }
    }
}

// SAFETY: 1. to 4. the parts are those of the machine within, and data frames are left to it, or to
// the machine with high memory that was made of it.
unsafe impl<'h, F: Format, P: Policy, S: Mmu, W: TableReach> Machine for EitherMachine<'_, 'h, F, P, S, W> {
    type Window = W;
    type Policy = P;
    type Shootdown = <HostMachine<'h, F, P, S, W> as Machine>::Shootdown;
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
    fn window(&self) -> &Self::Window {
        self.inner.window()
    }
    #[inline]
    fn policy(&self) -> &P {
        self.inner.policy()
    }
    #[inline]
    fn tlb(&self) -> &Tlb<Self::Shootdown> {
        self.inner.tlb()
    }
    #[inline]
    fn parking(&self) -> &Parking {
        self.inner.parking()
    }

    #[inline]
    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        match &self.high {
            // SAFETY: 1. by the caller's point 1.
            Some(high) => unsafe { high.clear_data(pin, frame) },
            // SAFETY: as above.
            None => unsafe { self.inner.clear_data(pin, frame) },
        }
    }

    #[inline]
    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        match &self.high {
            // SAFETY: 1. and 2. by the caller's points 1 and 2.
            Some(high) => unsafe { high.copy_data(pin, from, to) },
            // SAFETY: as above.
            None => unsafe { self.inner.copy_data(pin, from, to) },
        }
    }

    #[inline]
    fn take_anonymous(on: On<'_, Self>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        let m = on.machine();
        if m.high.is_none() && !m.inner.host().config().touch_data {
            // SAFETY: 1. the parts are this machine's, and `on` has checked the pin.
            return unsafe { on.data().take_raw(on.frames(), on.pin(), flags) };
        }
        // SAFETY: 1. the machine has the frames of the one within.
        unsafe { m.inner.take_zero(on, flags) }
    }
}

// SAFETY: 1. and 2. both frames are those of the machine within, or of the one with high memory.
unsafe impl<F: Format, P: Policy, S: Mmu, W: TableReach> SpaceMachine for EitherMachine<'_, '_, F, P, S, W> {
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;

    #[inline]
    fn zero_frame(&self) -> Pfn {
        self.inner.zero_frame()
    }
    #[inline]
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        if !has_page(object, page) {
            return None;
        }
        match &self.high {
            Some(high) => high.backing_frame(object, page),
            None => self.inner.backing_frame(object, page),
        }
    }
}
