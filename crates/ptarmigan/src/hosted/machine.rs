//! A host with a policy and a TLB.
use super::host::{Host, HostError};
use super::ipi::{Delivery, Messages, Wired};
use super::slots::CpuSlot;
use crate::addr::{FRAME_SIZE, Pfn};
use crate::cpu::{CpuId, NodeId, Pinned};
use crate::format::Format;
use crate::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use crate::quicklist::Policy;
use crate::space::SpaceMachine;
use crate::table::{Machine, parts};
use crate::tlb::{Invalidation, Mmu, Root, Scope, SpaceId, Tlb, TlbConfig};
use crate::window::{DirectMap, Window, WindowGuard};

/// Nobody walks a hosted machine's tables: nothing to invalidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTlb;

// SAFETY: without an MMU nothing is ever cached, so all promises hold at once.
unsafe impl Mmu for NoTlb {
    const NEEDS_ENTRY_VALID: bool = false;

    #[inline(always)]
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    #[inline(always)]
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    #[inline(always)]
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    #[inline(always)]
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
}

/// Everything that operations run on.
pub struct HostMachine<'h, F: Format, P, S> {
    host: &'h Host<F>,
    window: DirectMap,
    policy: P,
    tlb: Tlb<Wired<S>>,
}

impl<'h, F: Format, P: Policy, S: Mmu> HostMachine<'h, F, P, S> {
    /// Puts a policy made for `host` and MMUs together.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn new(host: &'h Host<F>, policy: P, mmu: S) -> Result<Self, HostError> {
        Self::with_tlb(host, policy, mmu, TlbConfig::new(host.config().cpus), Delivery::AtOnce)
    }

    /// The same with TLBs of another shape (`config.cpus` is the host's), and interrupts delivered otherwise.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory.
    pub fn with_tlb(
        host: &'h Host<F>,
        policy: P,
        mmu: S,
        config: TlbConfig,
        delivery: Delivery,
    ) -> Result<Self, HostError> {
        let config = TlbConfig { cpus: host.config().cpus, ..config };
        let nodes = (0..config.cpus).map(|cpu| host.node_of(CpuId(cpu as u16))).collect();
        let wired = Wired::new(mmu, Messages::new(host.owners().clone(), nodes, delivery));
        let mut boot = host.boot(Tlb::<Wired<S>>::bytes(&config))?;
        Ok(HostMachine {
            host,
            window: host.window(),
            policy,
            tlb: Tlb::new(&mut boot, host.machine(), config, wired)?,
        })
    }

    /// The host beneath.
    pub fn host(&self) -> &'h Host<F> {
        self.host
    }

    /// Empties every list: of the given CPUs, and of the nodes.
    pub fn drain(&self, slots: &[CpuSlot]) {
        for slot in slots {
            let pin = slot.pin();
            self.tlb.unpark(parts(self, &pin));
            self.policy.drain(&pin);
            self.host.data().drain(self.host.frames(), &pin);
        }
        if let Some(slot) = slots.first() {
            for node in 0..self.host.frames().nodes() {
                self.policy.reclaim(&slot.pin(), NodeId(node), u32::MAX);
            }
        }
    }
}

impl<F: Format, P: Policy, S: Mmu> Machine for HostMachine<'_, F, P, S> {
    type Window = DirectMap;
    type Policy = P;
    type Shootdown = Wired<S>;

    #[inline(always)]
    fn frames(&self) -> &Frames {
        self.host.frames()
    }
    #[inline(always)]
    fn data(&self) -> &DataFrames {
        self.host.data()
    }
    #[inline(always)]
    fn window(&self) -> &DirectMap {
        &self.window
    }
    #[inline(always)]
    fn policy(&self) -> &P {
        &self.policy
    }
    #[inline(always)]
    fn tlb(&self) -> &Tlb<Wired<S>> {
        &self.tlb
    }

    #[inline]
    fn clear_data(&self, frame: Pfn) {
        if self.host.config().touch_data {
            let guard = self.window.map(frame.addr());
            // SAFETY: a data frame that has just been taken: ours alone; the guard is valid for all of it.
            unsafe { guard.base().as_ptr().write_bytes(0, FRAME_SIZE) };
        }
    }

    #[inline(always)]
    fn take_zeroed(&self, pin: &Pinned<'_>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        if self.host.config().touch_data {
            self.take_with_memory(pin, flags)
        } else {
            self.host.data().take(self.host.frames(), pin, flags)
        }
    }

    #[inline]
    fn copy_data(&self, from: Pfn, to: Pfn) {
        if self.host.config().touch_data {
            let (source, target) = (self.window.map(from.addr()), self.window.map(to.addr()));
            // SAFETY: `to` has just been taken and is ours alone; `from` is a different frame, which nobody writes
            // while it is shared; both guards are valid for the frame.
            unsafe {
                core::ptr::copy_nonoverlapping(source.base().as_ptr(), target.base().as_ptr(), FRAME_SIZE);
            }
            self.use_data(to);
        }
    }
}

impl<F: Format, P: Policy, S: Mmu> HostMachine<'_, F, P, S> {
    /// A data frame whose memory is zero. Not inlined: most machines have no memory behind data frames, and faults on them
    /// are not to pay for it.
    #[inline(never)]
    fn take_with_memory(&self, pin: &Pinned<'_>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        let taken = self.host.data().take_zero(self.host.frames(), pin, flags)?;
        if !taken.is_zero {
            self.clear_data(taken.pfn);
        }
        debug_assert!(self.is_zero(taken.pfn), "{} is handed out as zero and is not", taken.pfn);
        self.use_data(taken.pfn);
        Ok(taken.pfn)
    }

    /// Writes to a fresh data frame what its program writes there at once.
    #[inline(never)]
    fn use_data(&self, frame: Pfn) {
        let guard = self.window.map(frame.addr());
        for line in 0..self.host.config().use_lines.min(FRAME_SIZE / LINE) {
            // SAFETY: a data frame that has just been taken: ours alone; the guard is valid for all of it.
            unsafe { guard.base().as_ptr().add(line * LINE).write_volatile(1) };
        }
    }

    /// Whether every byte of a data frame that has just been taken is zero.
    fn is_zero(&self, frame: Pfn) -> bool {
        let guard = self.window.map(frame.addr());
        // SAFETY: the frame is ours alone and the guard is valid for all of it, as aligned as a frame.
        let words =
            unsafe { core::slice::from_raw_parts(guard.base().cast::<u64>().as_ptr(), FRAME_SIZE / 8) };
        words.iter().all(|word| *word == 0)
    }
}

/// Bytes in a cache line.
const LINE: usize = 64;

impl<F: Format, P: Policy, S: Mmu> SpaceMachine for HostMachine<'_, F, P, S> {
    #[inline(always)]
    fn zero_frame(&self) -> Pfn {
        self.host.zero_frame()
    }
    #[inline(always)]
    fn backing_frame(&self, _object: u32, _page: u64) -> Option<Pfn> {
        Some(self.host.backing_frame())
    }
}
