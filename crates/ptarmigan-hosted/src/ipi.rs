//! Delivers interrupts between logical CPUs: messages that their threads look for between two
//! operations.
use super::slots::Owners;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{CpuId, CpuSet, NodeId, Pinned};
use ptarmigan::format::{Format, Formats};
use ptarmigan::tlb::{
    Invalidation, Ipi, KernelRoot, Mmu, NewEntry, Root, Scope, SpaceId, Structures, WrongMode,
};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// To CPUs of the same thread, and to those that no thread owns, at once, in order of their
    /// numbers.
    #[default]
    AtOnce,
    /// The same, but late, one by one and in any order, by this seed: whatever can go on in
    /// between, does.
    Adverse(u64),
}

/// Turns of a wait before the thread gives its processor away.
const PATIENCE: u32 = 100;

/// Interrupts of a hosted machine.
///
/// A CPU whose thread is busy is served when that thread next calls
/// [`Tlb::serve`](ptarmigan::tlb::Tlb::serve), between two things it does or while it waits for
/// something; so every thread that owns a CPU has to do one or the other until it gives its slot
/// back.
pub struct Messages {
    owners: Owners,
    /// Where each CPU is.
    nodes: Vec<NodeId>,
    delivery: Delivery,
    random: AtomicU64,
    abandoned: Arc<AtomicBool>,
}

impl Messages {
    pub(super) fn new(owners: Owners, nodes: Vec<NodeId>, delivery: Delivery) -> Self {
        let seed = match delivery {
            Delivery::AtOnce => 0,
            Delivery::Adverse(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        Messages { owners, nodes, delivery, random: AtomicU64::new(seed), abandoned: Arc::default() }
    }

    /// Returns the flag to set when a thread has failed that others may be waiting for: their waits
    /// then panic instead of lasting for ever.
    pub fn abandoned(&self) -> &Arc<AtomicBool> {
        &self.abandoned
    }

    /// Returns a random number below `n`.
    fn below(&self, n: usize) -> usize {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.store(x, Ordering::Relaxed);
        (x >> 33) as usize % n
    }

    fn deliver(&self, cpu: CpuId, serve: &dyn Fn(&Pinned<'_>)) {
        let node = self.nodes.get(usize::from(cpu.0)).copied().unwrap_or(NodeId(0));
        self.owners.act_for(cpu, node, serve);
    }
}

impl Ipi for Messages {
    fn send(&self, _: &Pinned<'_>, cpus: &CpuSet, serve: &dyn Fn(&Pinned<'_>)) {
        if self.delivery == Delivery::AtOnce {
            for cpu in cpus.iter() {
                self.deliver(cpu, serve);
            }
            return;
        }
        let mut left: Vec<CpuId> = cpus.iter().collect();
        while !left.is_empty() {
            let cpu = left.swap_remove(self.below(left.len()));
            // A message that is not delivered now is delivered when it is sent again.
            if self.below(4) > 0 {
                self.deliver(cpu, serve);
            }
        }
    }

    fn wait(&self, _: &Pinned<'_>, turn: u32) {
        if turn < PATIENCE {
            std::hint::spin_loop();
            return;
        }
        assert!(!self.abandoned.load(Ordering::Relaxed), "a thread that was waited for has failed");
        std::thread::yield_now();
    }
}

/// MMUs, and the interrupts between them, of a host whose memory is laid out for the format `F`:
/// machines of it have no trees of another one, whatever its MMUs read.
pub struct Wired<F, S> {
    host: PhantomData<fn() -> F>,
    mmu: S,
    messages: Messages,
}

impl<F: Format, S> Wired<F, S> {
    pub(super) fn new(mmu: S, messages: Messages) -> Self {
        Wired { host: PhantomData, mmu, messages }
    }

    /// Returns the MMUs.
    pub fn mmu(&self) -> &S {
        &self.mmu
    }

    /// Returns the interrupts.
    pub fn messages(&self) -> &Messages {
        &self.messages
    }
}

// SAFETY: all promises are those of `S`; of the formats that it reads, some may be missing.
unsafe impl<F: Format, S: Mmu> Mmu for Wired<F, S> {
    const FORMATS: Formats = S::FORMATS.only::<F>();
    const BROADCASTS: bool = S::BROADCASTS;
    const WALKS_TABLES: bool = S::WALKS_TABLES;
    const STRUCTURES: Structures = S::STRUCTURES;
    const NEEDS_ENTRY_VALID: bool = S::NEEDS_ENTRY_VALID;

    #[inline]
    fn invalidate(&self, pin: &Pinned<'_>, what: &Invalidation) {
        self.mmu.invalidate(pin, what);
    }
    #[inline]
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.mmu.invalidate_kernel(pin, scope);
    }
    #[inline]
    fn entry_became_valid(&self, pin: &Pinned<'_>, entry: &NewEntry) {
        self.mmu.entry_became_valid(pin, entry);
    }
    #[inline]
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        self.mmu.load(pin, root);
    }
    #[inline]
    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.mmu.lazy(pin, space);
    }
    #[inline]
    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.mmu.resume(pin, space);
    }
    #[inline]
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.mmu.unload(pin, space);
    }
    fn check_mode(&self, pin: &Pinned<'_>) -> Result<(), WrongMode> {
        self.mmu.check_mode(pin)
    }
    fn may_show(&self, pin: &Pinned<'_>, at: *const u8, phys: PhysAddr) -> bool {
        self.mmu.may_show(pin, at, phys)
    }
    fn set_kernel_root(&self, root: KernelRoot) {
        self.mmu.set_kernel_root(root);
    }
    unsafe fn clean_code(&self, pin: &Pinned<'_>, at: *const u8, bytes: usize) {
        // SAFETY: 1. of the caller's.
        unsafe { self.mmu.clean_code(pin, at, bytes) };
    }
    fn invalidate_code(&self, pin: &Pinned<'_>) {
        self.mmu.invalidate_code(pin);
    }
}

impl<F: Format, S: Sync> Ipi for Wired<F, S> {
    #[inline]
    fn send(&self, pin: &Pinned<'_>, cpus: &CpuSet, serve: &dyn Fn(&Pinned<'_>)) {
        self.messages.send(pin, cpus, serve);
    }
    #[inline]
    fn wait(&self, pin: &Pinned<'_>, turn: u32) {
        self.messages.wait(pin, turn);
    }
}
