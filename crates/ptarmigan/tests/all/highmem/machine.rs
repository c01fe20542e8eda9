//! A machine whose TLBs remember the frames of slots until they are told to forget.
use ptarmigan::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use ptarmigan::cpu::{Pinned, Refused};
use ptarmigan::format::{Formats, X86_64};
use ptarmigan::highmem::pool::{Pool, PoolConfig, PoolSetupError};
use ptarmigan::highmem::{Install, Remove, SlotError, Slots};
use ptarmigan::machine::Machine;
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::{CostModel, Invalidation, Mmu, Root, Scope, SpaceId, Structures, TlbConfig};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig, HostMachine, StoreSlots, Wired};
use ptarmigan_linux::Plain;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where slots are, as flushes name them.
pub const BASE: u64 = 0xffff_c000_0000_0000;
/// The first high frame.
pub const HIGH: u32 = 1024;
/// Frames in all.
pub const FRAMES: u32 = 8192;

type Hook = Box<dyn Fn(&Pinned<'_>) + Send>;

/// TLBs that keep all translations.
pub struct Tlbs {
    known: Mutex<Vec<HashMap<u64, u32>>>,
    /// Pages that were named to be forgotten, and requests to forget everything.
    pub pages: AtomicUsize,
    pub full: AtomicUsize,
    /// Called once in the middle of a flush, before the CPU has forgotten anything.
    pub before: Mutex<Option<Hook>>,
    /// Called once in the middle of a flush, when the CPU has forgotten its part.
    pub hook: Mutex<Option<Hook>>,
}

impl Tlbs {
    pub fn new(cpus: usize) -> Self {
        Tlbs {
            known: Mutex::new(vec![HashMap::new(); cpus]),
            pages: AtomicUsize::new(0),
            full: AtomicUsize::new(0),
            before: Mutex::new(None),
            hook: Mutex::new(None),
        }
    }

    /// CPU `cpu` reads at `va`, where `pfn` is shown now.
    pub fn read(&self, cpu: usize, va: u64, pfn: Pfn) {
        let known = &mut self.known.lock().unwrap()[cpu];
        let held = *known.entry(va).or_insert(pfn.0);
        assert_eq!(held, pfn.0, "CPU {cpu} reads another frame at {va:#x}");
    }

    pub fn knows(&self, cpu: usize, va: u64) -> bool {
        self.known.lock().unwrap()[cpu].contains_key(&va)
    }
}

// SAFETY: 1., 3. and 4. no translation of user space is held. 2. the CPU drops covered
// translations. 5. it reaches one CPU, and walks no tables. 6. it keeps neither. 7. `load` has no
// effect.
unsafe impl Mmu for &Tlbs {
    const FORMATS: Formats = Formats::ANY;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;
    fn invalidate(&self, _: &Pinned<'_>, _: &Invalidation) {}
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        let before = self.before.lock().unwrap().take();
        if let Some(before) = before {
            before(pin);
        }
        self.known.lock().unwrap()[usize::from(pin.cpu().0)].retain(|va, _| !scope.covers(*va));
        self.pages.fetch_add(scope.len() as usize, Ordering::Relaxed);
        self.full.fetch_add(usize::from(scope.is_full()), Ordering::Relaxed);
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook(pin);
        }
    }
    fn load(&self, _: &Pinned<'_>, _: &Root) {}
    fn unload(&self, _: &Pinned<'_>, _: SpaceId) {}
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
