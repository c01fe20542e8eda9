//! Reaches tables in high memory on a hosted machine.
use super::StoreSlots;
use super::setup::HighError;
use crate::host::Host;
use crate::machine::TableReach;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::CpuId;
use ptarmigan::format::Format;
use ptarmigan::highmem::tables::{DEPTH, OwnCpu, TableWindow};
use ptarmigan::highmem::window::{MixedGuard, MixedWindow};
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::{AutoCosts, AutoPlacement, Placement, Source};
use ptarmigan::table::KernelMap;
use ptarmigan::window::{DirectMap, OpenWindow, Window};
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The address by which flushes name the first slot of tables: these slots have no addresses of
/// their own.
const SLOT_BASE: u64 = 0xffff_d000_0000_0000;

/// Threads that may have tables open at once.
const THREADS: usize = 1024;

/// The numbers of threads that have opened tables, a bit each. Process-wide: a thread keeps its
/// number on whatever host it works.
static NUMBERS: Mutex<[u64; THREADS / 64]> = Mutex::new([0; THREADS / 64]);

/// The number of a thread; given back when the thread ends.
struct ThreadNumber(u16);

impl ThreadNumber {
    fn take() -> Self {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let free = numbers.iter().position(|word| *word != u64::MAX);
        let word = free.unwrap_or_else(|| panic!("more than {THREADS} threads have tables open"));
        let bit = numbers[word].trailing_ones();
        numbers[word] |= 1 << bit;
        ThreadNumber((word * 64) as u16 + bit as u16)
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        numbers[usize::from(self.0) / 64] &= !(1 << (self.0 % 64));
    }
}

std::thread_local! {
    static NUMBER: ThreadNumber = ThreadNumber::take();
}

/// Each thread stands for one CPU, the same until the thread ends.
pub struct Threads;

// SAFETY: 1. a number is one thread's until the thread ends, and guards cannot leave their thread.
// 2. no MMU translates the slots' addresses.
unsafe impl OwnCpu for Threads {
    type Stay = ();

    #[inline]
    fn stay(&self) -> ((), CpuId) {
        ((), CpuId(NUMBER.with(|number| number.0)))
    }

    #[inline]
    fn forget(&self, _: u64) {}
}

/// How a hosted machine reaches tables that may be in high memory, and where they are placed.
///
/// Low frames are reached through the direct map, others through slots that are a
/// [store](StoreSlots) each.
pub struct HostTables {
    window: MixedWindow<TableWindow<StoreSlots, Threads>>,
    placement: UserPte,
    auto: AutoPlacement,
    /// Windows that were opened to measure the cost of opening one.
    measured: usize,
}

impl HostTables {
    /// Makes the window of a host where tables are placed as `placement` says. Without high memory
    /// all of them are in low memory.
    ///
    /// # Errors
    ///
    /// [`HighError`] if this process has no memory.
    pub fn new<F: Format>(host: &Host<F>, placement: UserPte) -> Result<Self, HighError> {
        let n = THREADS * DEPTH;
        let mut boot =
            host.boot(StoreSlots::bytes(n) + TableWindow::<StoreSlots, Threads>::bytes(THREADS))?;
        // SAFETY: 1. the host's map reaches all its frames.
        let slots = unsafe { StoreSlots::new(&mut boot, n, SLOT_BASE, host.window()) }?;
        // SAFETY: 1. they were made just now, for all frames of the host, and are passed on. 2.
        // they are stores. 3. numbers are below `THREADS`.
        let high = unsafe { TableWindow::new(&mut boot, THREADS, slots, Threads) };
        let high = high.map_err(|e| HighError::Host(e.to_string()))?;
        // SAFETY: 1. the limit of the low map decides. 2. the host makes high memory of the frames
        // above it.
        let window = unsafe { MixedWindow::new(host.low_window(), high) };
        let map_ns = if host.frames().has_high() { open_ns(&window, host) } else { 1 };
        let costs = AutoCosts { map_ns, ..AutoCosts::default() };
        let params = if let UserPte::Auto(params) = placement { params } else { Default::default() };
        let auto = AutoPlacement::new(host.frames(), &params, costs);
        let measured = window.high().opened();
        Ok(HostTables { window, placement, auto, measured })
    }

    /// Makes a source of pages for a policy, which places tables.
    ///
    /// # Safety
    ///
    /// 1. `host` must be the one that this was made for.
    pub unsafe fn source<'h, F: Format>(
        &'h self,
        host: &'h Host<F>,
    ) -> Source<'h, &'h HostTables, &'h KernelMap<F, DirectMap>> {
        let placement = match self.placement {
            UserPte::NoHigh => Placement::Low,
            UserPte::High => Placement::High,
            UserPte::Auto(_) => Placement::Auto(&self.auto),
        };
        // SAFETY: 1. the window reaches all memory of the host (1.). 2. the map was made for these
        // frames and this format. 3. and 4. the host has checked the format (`KernelMap::new`).
        let source = unsafe { Source::new(host.frames(), self, host.kernel(), F::LAYOUT) };
        // SAFETY: 1. the window reaches all memory of the host (1.).
        unsafe { source.with_placement(placement) }
    }

    /// Returns how often tables in high memory were opened.
    pub fn opened(&self) -> usize {
        self.window.high().opened() - self.measured
    }

    /// Returns how many tables in high memory are open now.
    pub fn open_now(&self) -> u32 {
        self.window.high().open_now()
    }

    /// Returns the controller, which decides if the placement is `auto`.
    pub fn auto(&self) -> &AutoPlacement {
        &self.auto
    }
}

/// Measures how long it takes to open a frame of high memory and to close it again, in nanoseconds:
/// the fastest of some rounds.
fn open_ns<F: Format>(window: &impl OpenWindow, host: &Host<F>) -> u32 {
    const OPENS: u32 = 256;
    let at = PhysAddr(host.low_window().limit());
    let round = |_| {
        let start = Instant::now();
        for _ in 0..OPENS {
            std::hint::black_box(window.open(at));
        }
        start.elapsed().as_nanos() as u32 / OPENS
    };
    (0..8).map(round).min().map_or(1, |ns| ns.max(1))
}

// SAFETY: 1. to 3. by the window within.
unsafe impl Window for HostTables {
    type Guard<'a> = MixedGuard<<TableWindow<StoreSlots, Threads> as Window>::Guard<'a>>;
    type Error = Infallible;

    #[inline]
    fn map(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Infallible> {
        self.window.map(at)
    }

    #[inline]
    fn map_low(&self, at: PhysAddr) -> Result<Self::Guard<'_>, Infallible> {
        self.window.map_low(at)
    }
}

impl TableReach for &HostTables {
    const HIGH: bool = true;

    fn share(&self) -> u32 {
        if matches!(self.placement, UserPte::Auto(_)) { self.auto.share() } else { u32::MAX }
    }
}
