//! Makes a machine of a host, a policy and a TLB.
use super::host::{Host, HostError};
use super::ipi::{Delivery, Messages, Wired};
use super::slots::CpuSlot;
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::{CpuId, CpuSet, NodeId, Pinned, WrongMachine};
use ptarmigan::format::{Format, Formats};
use ptarmigan::frames::{AllocFlags, DataFrames, Frames, NoFrame};
use ptarmigan::machine::{Machine, On};
use ptarmigan::parking::Parking;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{SpaceMachine, ZeroBlock};
use ptarmigan::tlb::{Invalidation, Ipi, Mmu, Root, Scope, SpaceId, Structures, Tlb, TlbConfig};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

/// The absent MMU of a hosted machine: no hardware walks its tables, so there is no translation to
/// invalidate. As an [`Ipi`] it sends no interrupt, for a machine of one CPU that is put together
/// without a [`HostMachine`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTlb;

// SAFETY: without an MMU no translation is ever cached, so all promises hold at once.
unsafe impl Mmu for NoTlb {
    const FORMATS: Formats = Formats::ANY;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    #[inline]
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    #[inline]
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    #[inline]
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    #[inline]
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
}

impl Ipi for NoTlb {
    fn send(&self, _: &Pinned<'_>, _: &CpuSet, _: &dyn Fn(&Pinned<'_>)) {}
}

/// A way for a hosted machine to reach its tables.
pub trait TableReach: OpenWindow {
    /// Whether it reaches tables in high memory.
    const HIGH: bool;

    /// Returns how many leaf tables a space may have before it prefers high memory for more.
    fn share(&self) -> u32;
}

impl TableReach for DirectMap {
    const HIGH: bool = false;

    fn share(&self) -> u32 {
        u32::MAX
    }
}

/// Everything that operations run on. `W` is how tables are reached: by the host's direct map, or
/// by [`HostTables`](super::HostTables) where they may be in high memory.
///
/// ```
/// use ptarmigan::format::X86_64;
/// use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
/// use ptarmigan::machine::Machine;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
/// // The same host under another policy would be another machine: `host.plain()?`.
/// let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
/// let cpus = host.slots();
/// let pin = cpus[0].pin();
/// let on = machine.on(&pin)?;
/// assert_eq!(on.cpu().0, 0);
/// # Ok(())
/// # }
/// ```
pub struct HostMachine<'h, F: Format, P, S, W = DirectMap> {
    host: &'h Host<F>,
    window: W,
    policy: P,
    tlb: Tlb<Wired<F, S>>,
    parking: Parking,
}

impl<'h, F: Format, P: Policy, S: Mmu> HostMachine<'h, F, P, S> {
    /// Puts a policy made for `host` and MMUs together.
    ///
    /// A host has one machine at a time. The next one can be made when this one has been dropped,
    /// provided that all its spaces and trees had ended, and its ranges of the kernel's half been
    /// released. Where the MMUs broadcast invalidations and `config` gives them ASIDs, it must have
    /// had no space or tree at all: TLBs may remember one under a number that the next machine
    /// hands out again. Frames that CPUs still hold or have parked then are lost to the host:
    /// [`drain`](Self::drain) gives them back.
    ///
    /// # Errors
    ///
    /// [`HostError`] for lack of memory, if the host has a machine, or if the policy was made for
    /// another host or for fewer CPUs.
    pub fn new(host: &'h Host<F>, policy: P, mmu: S) -> Result<Self, HostError> {
        Self::with_tlb(host, policy, mmu, TlbConfig::new(host.config().cpus), Delivery::AtOnce)
    }

    /// The same with TLBs of another shape (`config.cpus` is the host's), and interrupts delivered
    /// otherwise.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_tlb(
        host: &'h Host<F>,
        policy: P,
        mmu: S,
        config: TlbConfig,
        delivery: Delivery,
    ) -> Result<Self, HostError> {
        // SAFETY: 1. the host's own map reaches all that it has.
        unsafe { Self::with_window(host, policy, mmu, config, delivery, host.window()) }
    }
}

impl<'h, F: Format, P: Policy, S: Mmu, W: TableReach> HostMachine<'h, F, P, S, W> {
    /// The same with another way to reach tables.
    ///
    /// # Errors
    ///
    /// As [`new`](HostMachine::new).
    ///
    /// # Safety
    ///
    /// 1. `window` must have been made for `host`, and reach the tables that the policy hands out.
    pub unsafe fn with_window(
        host: &'h Host<F>,
        policy: P,
        mmu: S,
        config: TlbConfig,
        delivery: Delivery,
        window: W,
    ) -> Result<Self, HostError> {
        let config = TlbConfig { cpus: host.config().cpus, ..config };
        let nodes = (0..config.cpus).map(|cpu| host.node_of(CpuId(cpu as u16))).collect();
        let wired = Wired::new(mmu, Messages::new(host.owners().clone(), nodes, delivery));
        let id = host.frames().machine();
        if !policy.machine().matches(id) {
            return Err(HostError::WrongMachine(WrongMachine { called: id, given: policy.machine() }));
        }
        if policy.cpus() < config.cpus {
            let (made, all) = (policy.cpus(), config.cpus);
            return Err(HostError::OutOfRange(format!("a policy for {made} CPUs, the host has {all}")));
        }
        let mut boot = host.boot(Tlb::<Wired<F, S>>::bytes(&config) + Parking::bytes(config.cpus))?;
        let parking = Parking::new(&mut boot, id, config.cpus, config.park)?;
        let first = host.take().ok_or(HostError::InUse)?;
        // SAFETY: 1. the host has just given itself to this machine, and takes itself back in
        // `drop`, with the name that `next_name` returns. If this call's error ends the machine, no
        // space was named.
        match unsafe { Tlb::after(&mut boot, id, config, wired, first) } {
            Ok(tlb) => Ok(HostMachine { host, window, policy, tlb, parking }),
            Err(e) => {
                host.give_back(first);
                Err(e.into())
            }
        }
    }

    /// Returns the host beneath.
    pub fn host(&self) -> &'h Host<F> {
        self.host
    }

    /// Empties every list: of the given CPUs, and of the nodes. Slots of another host are left
    /// alone.
    pub fn drain(&self, slots: &[CpuSlot]) {
        for slot in slots {
            let pin = slot.pin();
            let Ok(on) = self.on(&pin) else { continue };
            on.drain();
            for node in 0..self.host.frames().nodes() {
                on.policy().reclaim(NodeId(node), u32::MAX);
            }
        }
    }

    /// Takes a data frame that is zero, for a page of anonymous memory. If data frames have memory,
    /// it is written to as its program would:
    /// [`HostConfig::use_lines`](super::HostConfig::use_lines).
    ///
    /// # Errors
    ///
    /// [`NoFrame`]; no frame has been taken then.
    ///
    /// # Safety
    ///
    /// 1. `on` must be this machine, or one that has its frames.
    #[inline]
    pub unsafe fn take_zero<M: Machine>(&self, on: On<'_, M>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        let frame = on.take_zeroed(flags)?;
        if self.host.config().touch_data {
            debug_assert!(
                // SAFETY: 1. taken just now, of this host's frames (contract, 1.), with memory.
                unsafe { is_zero::<F>(&self.host.window(), frame) },
                "{frame} is handed out as zero and is not"
            );
            // SAFETY: 1. as above.
            unsafe { self.use_data(frame) };
        }
        Ok(frame)
    }

    /// Not inlined: faults on machines without memory behind data frames are not to pay for it.
    #[inline(never)]
    fn take_with_memory(on: On<'_, Self>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        // SAFETY: 1. it is this machine.
        unsafe { on.machine().take_zero(on, flags) }
    }

    /// Writes to those cache lines of a fresh data frame that its program writes to at once.
    ///
    /// # Safety
    ///
    /// 1. The caller must own `frame`, and no other code may reach it.
    #[inline(never)]
    pub(super) unsafe fn use_data(&self, frame: Pfn) {
        let memory = self.host.window();
        let guard = memory.open(frame.addr());
        for line in 0..self.host.config().use_lines.min(bytes::<F>() / LINE) {
            // SAFETY: a data frame that is the caller's alone (contract, 1.); the guard is valid
            // for all of it.
            unsafe { guard.base().add(line * LINE).write_volatile(1) };
        }
    }
}

impl<F: Format, P, S, W> Drop for HostMachine<'_, F, P, S, W> {
    /// Gives the host back. If a space, a tree or a range of the kernel's half is left, the host
    /// stays without a machine: the policy of the next one would be given tables of this one's.
    fn drop(&mut self) {
        if let Some(next) = self.tlb.next_name() {
            self.host.give_back(next);
        }
    }
}

// SAFETY: 1. `with_tlb` compares the policy's machine and number of CPUs with the host's, and makes
// the TLBs and the parking for them; the host gives itself to one machine at a time, and to the
// next one by leave of `next_name`. 2. they are fields. 3. the window reaches the host's tables
// (contract of `with_window`), and both functions write to the frame that is named. 4. it is taken
// for the caller.
unsafe impl<F: Format, P: Policy, S: Mmu, W: TableReach> Machine for HostMachine<'_, F, P, S, W> {
    type Window = W;
    type Policy = P;
    type Shootdown = Wired<F, S>;

    #[inline]
    fn frames(&self) -> &Frames {
        self.host.frames()
    }
    #[inline]
    fn data(&self) -> &DataFrames {
        self.host.data()
    }
    const HIGH_TABLES: bool = W::HIGH;

    fn table_share(&self) -> u32 {
        self.window.share()
    }
    #[inline]
    fn window(&self) -> &W {
        &self.window
    }
    #[inline]
    fn policy(&self) -> &P {
        &self.policy
    }
    #[inline]
    fn tlb(&self) -> &Tlb<Wired<F, S>> {
        &self.tlb
    }
    #[inline]
    fn parking(&self) -> &Parking {
        &self.parking
    }

    #[inline]
    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        if self.host.config().touch_data {
            let memory = self.host.window();
            let guard = memory.open(frame.addr());
            // SAFETY: a data frame that is the caller's alone (contract, 1.); the guard is valid
            // for all of it.
            unsafe { guard.base().write_bytes(0, bytes::<F>()) };
        }
        Ok(())
    }

    #[inline]
    unsafe fn copy_data(&self, _: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        if self.host.config().touch_data {
            let memory = self.host.window();
            let (source, target) = (memory.open(from.addr()), memory.open(to.addr()));
            // SAFETY: `to` is the caller's alone (contract, 1.); `from` is a different frame (2.),
            // which no code writes while it is shared; both guards are valid for the page.
            unsafe {
                core::ptr::copy_nonoverlapping(source.base(), target.base(), bytes::<F>());
            }
            // SAFETY: 1. by the caller's point 1.
            unsafe { self.use_data(to) };
        }
        Ok(())
    }

    #[inline]
    fn take_anonymous(on: On<'_, Self>, flags: AllocFlags) -> Result<Pfn, NoFrame> {
        if !on.machine().host.config().touch_data {
            // SAFETY: 1. the parts are this machine's, and `on` has checked the pin.
            return unsafe { on.data().take_raw(on.frames(), on.pin(), flags) };
        }
        Self::take_with_memory(on, flags)
    }
}

/// Returns whether every byte of a data frame that has just been taken is zero.
///
/// # Safety
///
/// 1. The caller must own `frame`, and no other code may reach it.
unsafe fn is_zero<F: Format>(window: &DirectMap, frame: Pfn) -> bool {
    let guard = window.open(frame.addr());
    // SAFETY: the frame is the caller's alone (contract, 1.), and the guard is valid for all of it,
    // as aligned as a frame.
    let words = unsafe { core::slice::from_raw_parts(guard.base().cast::<u64>(), bytes::<F>() / 8) };
    words.iter().all(|word| *word == 0)
}

/// Bytes in a page.
const fn bytes<F: Format>() -> usize {
    1 << F::PAGE_SHIFT
}

/// Bytes in a cache line.
const LINE: usize = 64;

// SAFETY: 1. and 2. both pages are the host's own for as long as it is there; no code writes to the
// page of zeroes. 3. the host makes all of them of the format's order.
unsafe impl<F: Format, P: Policy, S: Mmu, W: TableReach> SpaceMachine for HostMachine<'_, F, P, S, W> {
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;

    #[inline]
    fn zero_frame(&self) -> Pfn {
        self.host.zero_frame()
    }
    #[inline]
    fn zero_block(&self) -> Option<&ZeroBlock> {
        self.host.zero_block()
    }
    #[inline]
    fn backing_frame(&self, _object: u32, _page: u64) -> Option<Pfn> {
        Some(self.host.backing_frame())
    }
}
