//! A machine whose TLBs remember the frames of slots until they are told to forget.
use ptarmigan::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use ptarmigan::cpu::{CpuId, Pinned, Refused};
use ptarmigan::format::X86_64;
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolSetupError};
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use ptarmigan::machine::Machine;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{CostModel, Scope, TlbConfig};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use ptarmigan_hosted::test::{Call, Method, TestMmu};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig, HostMachine, StoreSlots, Wired};
use ptarmigan_linux::Plain;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where slots are, as flushes name them.
pub const BASE: u64 = 0xffff_c000_0000_0000;
/// The first high frame.
pub const HIGH: u32 = 1024;
/// Frames in all.
pub const FRAMES: u32 = 8192;

/// TLBs that keep all translations.
pub type Tlbs = TestMmu<'static>;

/// CPU `cpu` reads at `va`, where `pfn` is shown now.
pub fn read(tlbs: &Tlbs, cpu: usize, va: u64, pfn: Pfn) {
    let found = tlbs.access_kernel(CpuId(cpu as u16), va, Some(pfn));
    assert_eq!(found, Some(pfn), "CPU {cpu} reads another frame at {va:#x}");
}

pub fn knows(tlbs: &Tlbs, cpu: usize, va: u64) -> bool {
    tlbs.knows(CpuId(cpu as u16), va).is_some()
}

/// Whether the CPU is told to forget pages of the kernel's half.
pub fn is_flush(call: &Call) -> bool {
    call.method() == Method::InvalidateKernel
}

/// Returns the number of pages that were named to be forgotten, and of requests to forget
/// everything.
pub fn flushed(tlbs: &Tlbs) -> (usize, usize) {
    let scopes: Vec<_> = tlbs.calls().iter().filter(|call| is_flush(call)).filter_map(Call::scope).collect();
    (
        scopes.iter().map(Scope::len).sum::<u64>() as usize,
        scopes.iter().filter(|scope| scope.is_full()).count(),
    )
}

pub type Wires<'t> = Wired<X86_64, &'t Tlbs>;
pub type HostM<'h, 't> =
    HostMachine<'h, X86_64, Plain<'h, DirectMap, &'h KernelMap<X86_64, DirectMap>>, &'t Tlbs>;

pub fn host(cpus: usize) -> Host<X86_64> {
    let bytes = u64::from(FRAMES) << FRAME_SHIFT;
    Host::new(HostConfig { cpus, bytes, prefault: 0, ..HostConfig::default() }).unwrap()
}

/// Every page is forgotten by name.
pub fn machine<'h, 't>(host: &'h Host<X86_64>, tlbs: &'t Tlbs) -> HostM<'h, 't> {
    let config = TlbConfig { costs: CostModel::ALWAYS_PAGE, ..TlbConfig::new(host.config().cpus) };
    HostMachine::with_tlb(host, host.plain().unwrap(), tlbs, config, Default::default()).unwrap()
}

/// The frames below [`HIGH`].
pub fn low(host: &Host<X86_64>) -> DirectMap {
    let zero = host.window().open(PhysAddr(0)).base();
    // SAFETY: 1. and 2. as the host's own map, of which it is the lower part.
    unsafe { DirectMap::new(zero, u64::from(HIGH) << FRAME_SHIFT) }.unwrap()
}

pub fn store(host: &Host<X86_64>, n: usize) -> StoreSlots {
    let mut boot = host.boot(StoreSlots::bytes(n)).unwrap();
    // SAFETY: 1. it reaches all frames of the host.
    unsafe { StoreSlots::new(&mut boot, n, BASE, host.window()) }.unwrap()
}

pub fn pool<'m, L: Slots>(
    host: &'m Host<X86_64>,
    machine: &'m HostM<'_, '_>,
    config: PoolConfig,
    slots: L,
) -> Result<Pool<'m, impl ptarmigan::tlb::Shootdown, L>, PoolSetupError> {
    let bytes = Pool::<Wires<'_>, L>::bytes(&host.frames().size(), &config, slots.len());
    let mut boot = host.boot(bytes).unwrap();
    let left = boot.left();
    // SAFETY: 1. and 2. callers make the slots for this call, of the host's memory.
    let pool = unsafe { Pool::new(&mut boot, config, machine.tlb(), host.frames(), low(host), slots, &()) };
    assert!(left - boot.left() <= bytes, "{} of {bytes} bytes", left - boot.left());
    pool
}

pub fn pins(slots: &[CpuSlot]) -> Vec<Pinned<'_>> {
    slots.iter().map(CpuSlot::pin).collect()
}

/// Slots that cannot be changed now and then.
pub struct Failing<L> {
    pub slots: L,
    /// Calls until one fails; 0: no failure.
    pub install: AtomicUsize,
    pub remove: AtomicUsize,
}

impl<L: Slots> Failing<L> {
    pub fn new(slots: L) -> Self {
        Failing { slots, install: AtomicUsize::new(0), remove: AtomicUsize::new(0) }
    }

    fn fails(count: &AtomicUsize) -> bool {
        let left = count.load(Ordering::Relaxed);
        count.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 1
    }
}

// SAFETY: 1. to 5. by the slots beneath; a call that fails has no effect. 6. they are those slots,
// by the same numbers.
unsafe impl<L: Slots> Slots for Failing<L> {
    fn len(&self) -> usize {
        self.slots.len()
    }
    fn install(&self, install: Install) -> Result<u64, SlotError> {
        if Self::fails(&self.install) {
            return Err(SlotError { index: install.index(), code: 12 });
        }
        self.slots.install(install)
    }
    fn remove(&self, remove: Remove) -> Result<(), SlotError> {
        if Self::fails(&self.remove) {
            return Err(SlotError { index: remove.index(), code: 12 });
        }
        self.slots.remove(remove)
    }
    fn address(&self, index: usize) -> *mut u8 {
        self.slots.address(index)
    }
    fn page(&self, index: usize) -> u64 {
        self.slots.page(index)
    }
    fn shift(&self) -> u32 {
        self.slots.shift()
    }
}

/// The error of a call that gives its argument back.
pub fn error<T, V, E>(result: Result<T, Refused<V, E>>) -> E {
    match result {
        Ok(_) => panic!("the call was not refused"),
        Err(refused) => refused.error,
    }
}
