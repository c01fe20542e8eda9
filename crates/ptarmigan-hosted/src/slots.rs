//! Gives logical CPUs to the threads that own them.
//!
//! ```text
//!  thread A   take: NOBODY -> A ── slot, pins ── last Held dropped ── give_up: NOBODY
//!  thread B   act: NOBODY -> B with ACTS ── answers a request for the CPU ── NOBODY
//!  thread A   claim: owned with ACTS ── waits, at most 2 s ──────────────────> take
//! ```
//!
//! # Why
//!
//! A CPU is owned by one thread, because the library's per-CPU lists take no lock. But a CPU
//! without a thread must answer flushes, or the thread that asks would wait for ever. So another
//! thread acts for it, for as long as an interrupt takes. Owners do not count as actors: one that
//! wants its CPU back waits, and not for ever, because the actor may be waiting for it. While it
//! waits, no other thread begins to act. Otherwise the owner could starve.
use core::marker::PhantomData;
use ptarmigan::cpu::{CpuId, MachineId, NodeId, Pinned, WithPin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Which thread owns each CPU of a machine.
#[derive(Clone)]
pub(super) struct Owners {
    machine: MachineId,
    cpus: Arc<[Owner]>,
}

/// The thread that owns a CPU.
struct Owner {
    /// [`NOBODY`] if no thread does.
    thread: AtomicUsize,
    /// How many [`Held`] the thread has. Only the thread that owns the CPU reads and writes it.
    held: AtomicUsize,
    /// Threads that wait for one that acts for the CPU. Meanwhile no other begins to.
    claimed: AtomicUsize,
}

const NOBODY: usize = 0;
/// With the number of a thread: it acts for the CPU, for as long as an interrupt takes, and has no
/// slot.
const ACTS: usize = 1 << (usize::BITS - 1);
/// How long a thread waits for one that acts for the CPU that it wants.
const CLAIM_WAIT: Duration = Duration::from_secs(2);

/// A thread wants a CPU that another one acts for; as long as this is there.
struct Wanted<'a> {
    claimed: &'a AtomicUsize,
    since: Instant,
}

impl<'a> Wanted<'a> {
    fn new(claimed: &'a AtomicUsize) -> Self {
        claimed.fetch_add(1, Ordering::Relaxed);
        Wanted { claimed, since: Instant::now() }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Owner {
    /// Takes the CPU if no thread owns it, for `thread`: the calling one's number, or with
    /// [`ACTS`].
    fn take(&self, thread: usize) -> Result<Held<'_>, usize> {
        self.thread.compare_exchange(NOBODY, thread, Ordering::Acquire, Ordering::Relaxed)?;
        self.held.store(1, Ordering::Relaxed);
        Ok(Held(self))
    }

    /// Takes the CPU for the calling thread if no thread owns it. Waits while another thread acts
    /// for it, but not for ever: that one may be waiting for this one.
    fn claim(&self) -> Option<Held<'_>> {
        let me = this_thread();
        let acts = |owner: usize| owner & ACTS != 0 && owner != me | ACTS;
        let mut wanted = None;
        loop {
            match self.take(me) {
                Ok(held) => return Some(held),
                Err(owner) if !acts(owner) => return None,
                Err(_) => {}
            }
            let wanted = wanted.get_or_insert_with(|| Wanted::new(&self.claimed));
            if wanted.since.elapsed() >= CLAIM_WAIT {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// Takes the CPU to act for it if no thread owns it, or waits for it.
    fn act(&self) -> Option<Held<'_>> {
        if self.claimed.load(Ordering::Relaxed) > 0 {
            return None;
        }
        self.take(this_thread() | ACTS).ok()
    }

    /// Keeps the CPU for the calling thread if that owns it.
    fn keep(&self) -> Option<Held<'_>> {
        if self.thread.load(Ordering::Relaxed) & !ACTS != this_thread() {
            return None;
        }
        self.held.store(self.held.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(Held(self))
    }

    /// Gives up one of the [`Held`] of the calling thread. With the last of them the CPU is
    /// nobody's.
    fn give_up(&self) {
        let left = self.held.load(Ordering::Relaxed) - 1;
        self.held.store(left, Ordering::Relaxed);
        if left == 0 {
            self.thread.store(NOBODY, Ordering::Release);
        }
    }
}

/// A CPU that the calling thread owns at least as long as this is there. A slot has one, and so has
/// code that acts for the CPU: it may drop the slot in the middle.
struct Held<'a>(&'a Owner);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// A number for the calling thread, never 0.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(NOBODY + 1);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|n| *n)
}

impl Owners {
    pub fn new(machine: MachineId, cpus: usize) -> Self {
        let nobody = |_| Owner {
            thread: AtomicUsize::new(NOBODY),
            held: AtomicUsize::new(0),
            claimed: AtomicUsize::new(0),
        };
        Owners { machine, cpus: (0..cpus).map(nobody).collect() }
    }

    /// Runs `f` with the pin of `cpu` if the calling thread owns that CPU, or no thread does nor is
    /// about to.
    pub fn act_for(&self, cpu: CpuId, node: NodeId, f: impl FnOnce(&Pinned<'_>)) {
        let Some(owner) = self.cpus.get(cpu.0 as usize) else { return };
        // Given up after `f`, also if that panics.
        let Some(_held) = owner.keep().or_else(|| owner.act()) else { return };
        // SAFETY: 1. this thread owns the CPU until `f` has returned, whatever slot is dropped in
        // it, and goes on with whatever it was doing as that CPU afterwards: as if interrupted. 2.
        // there is an owner for each CPU of the host, this one included, and the host says which
        // node it is on.
        f(&unsafe { Pinned::assume(self.machine, cpu, node) });
    }
}

/// A logical CPU. The thread that owns the slot is that CPU; the slot cannot leave its thread.
///
/// ```compile_fail,E0277
/// use ptarmigan_hosted::CpuSlot;
/// fn elsewhere(slot: CpuSlot) {
///     std::thread::spawn(move || drop(slot)); // a slot is not `Send`
/// }
/// ```
pub struct CpuSlot {
    cpu: CpuId,
    node: NodeId,
    owners: Owners,
    _stay: PhantomData<*const ()>,
}

impl CpuSlot {
    pub(super) fn take(owners: &Owners, cpu: u16, node: u8) -> Option<Self> {
        // Given up when the slot is dropped.
        core::mem::forget(owners.cpus.get(cpu as usize)?.claim()?);
        Some(CpuSlot { cpu: CpuId(cpu), node: NodeId(node), owners: owners.clone(), _stay: PhantomData })
    }

    /// Returns the number of the CPU.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// Returns the node that it is on.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Makes the proof of being on this CPU.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        // SAFETY: 1. the slot is the only one with its number (`take` marked it), and it cannot
        // leave this thread, which runs one thing at a time. 2. `take` found the CPU among the
        // host's, which says which node it is on.
        unsafe { Pinned::assume(self.owners.machine, self.cpu, self.node) }
    }
}

impl WithPin for CpuSlot {
    #[inline]
    fn with_pin<R>(&self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        f(&self.pin())
    }
}

impl Drop for CpuSlot {
    fn drop(&mut self) {
        if let Some(owner) = self.owners.cpus.get(self.cpu.0 as usize) {
            owner.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_cpu_that_another_thread_acts_for_can_be_claimed() {
        let owners = Owners::new(MachineId::new(), 1);
        let (done, acted) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    owners.act_for(CpuId(0), NodeId(0), |_| {
                        acted.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                    });
                }
            });
            while acted.load(Ordering::Relaxed) < 100 {
                let slot = CpuSlot::take(&owners, 0, 0);
                done.store(slot.is_none(), Ordering::Relaxed);
                assert!(slot.is_some(), "no thread has the CPU's slot");
                drop(slot);
                std::thread::yield_now();
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_cpu_whose_slot_another_thread_has_is_refused() {
        let owners = Owners::new(MachineId::new(), 1);
        let _slot = CpuSlot::take(&owners, 0, 0).expect("a CPU");
        let other = std::thread::scope(|s| s.spawn(|| CpuSlot::take(&owners, 0, 0).is_none()).join());
        assert_eq!(other.ok(), Some(true));
        assert!(CpuSlot::take(&owners, 0, 0).is_none());
        owners.act_for(CpuId(0), NodeId(0), |_| assert!(CpuSlot::take(&owners, 0, 0).is_none()));
    }
}
