//! A policy of the library as a contender: pages for PTE tables from [`Policy::alloc`], back through [`Policy::unused`].
//!
//! `unused` is how a page comes back that was never linked, and it is the path of a hit: tables that come back by way of a
//! flush ([`Policy::flushed`]) are put into the same magazine in the same way, once they have been taken off the chain that
//! the flush was for. Chains are made by trees alone, which know what a table's record has to say; what they add is in
//! `ptarmigan bench table`, case `fork-shape`.
use std::num::NonZeroU64;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::hosted::{CpuSlot, Host, HostConfig, HostError};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{CheckConfig, Checked, ListsConfig, Policy, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::{DirectMap, Window, WindowGuard};

use super::PAGE;
use super::contender::{Contender, Pages};

/// The machine that a contender runs on: two CPUs on one node of 4 GiB, memory for `pages` tables touched in advance.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn host(pages: usize) -> Result<Host<X86_64>, HostError> {
    Host::new(HostConfig { cpus: 2, prefault: pages * PAGE, ..HostConfig::default() })
}

/// The library's lists as they look after their pages in production. What they find they say on standard error; such a page
/// is lost, so the benchmark fails at its end.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn checked(host: &Host<X86_64>) -> Result<CheckedLists<'_>, HostError> {
    host.quicklists_checked(
        ListsConfig::new(host.config().cpus),
        CheckConfig::new(|misuse| eprintln!("{misuse}")),
    )
}

/// The type of [`checked`].
pub type CheckedLists<'h> = Quicklists<'h, DirectMap, &'h KernelMap<X86_64, DirectMap>, Checked>;

/// A policy, and the host that it is made for.
pub struct Ours<'h, P> {
    name: &'static str,
    host: &'h Host<X86_64>,
    policy: P,
    window: DirectMap,
}

impl<'h, P: Policy> Ours<'h, P> {
    /// A contender called `name` with a policy made for `host`, which nobody else uses.
    pub fn new(name: &'static str, host: &'h Host<X86_64>, policy: P) -> Self {
        Ours { name, host, policy, window: host.window() }
    }
}

/// One of the host's CPUs.
pub struct Cpu<'a, P> {
    policy: &'a P,
    window: &'a DirectMap,
    slot: CpuSlot,
}

impl<P: Policy> Contender for Ours<'_, P> {
    type Cpu<'a>
        = Cpu<'a, P>
    where
        Self: 'a;

    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu(&self, n: usize) -> Result<Cpu<'_, P>, String> {
        let slot = self.host.slot(n).ok_or("a CPU is taken, or there is none")?;
        Ok(Cpu { policy: &self.policy, window: &self.window, slot })
    }

    fn finish(&self) -> Result<(), String> {
        let slots = self.host.slots();
        for slot in &slots {
            self.policy.drain(&slot.pin());
        }
        if let Some(slot) = slots.first() {
            self.policy.reclaim(&slot.pin(), NodeId(0), u32::MAX);
        }
        self.host.audit().map_err(|e| e.to_string())
    }
}

// SAFETY: 1. a `Clean` page that is not for a top owns a frame that is all zero, and the window shows it. 2. policies take
// pages back on any CPU.
unsafe impl<P: Policy> Pages for Cpu<'_, P> {
    #[inline(always)]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        let page = self.policy.alloc(&self.slot.pin(), Level::PTE, AllocFlags::NORMAL).ok()?;
        NonZeroU64::new(page.into_raw().0)
    }

    #[inline(always)]
    unsafe fn free(&mut self, page: NonZeroU64) {
        // SAFETY: 1. `alloc` took it and the caller gives it away. 2. it is all zero, as the caller says, which is the
        // state of its level. 3. it was never linked.
        let page = unsafe { Clean::from_raw(PhysAddr(page.get())) };
        self.policy.unused(&self.slot.pin(), Level::PTE, page);
    }

    #[inline(always)]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        self.window.map(PhysAddr(page.get())).base().as_ptr().cast()
    }
}
