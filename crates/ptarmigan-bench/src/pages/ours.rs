//! A policy of the library as a contender: pages for PTE tables from [`PolicyOn::alloc`], back
//! through [`PolicyOn::free_unlinked`].
//!
//! `free_unlinked` is how a page comes back that was never linked, and it is the path of a hit:
//! tables that come back by way of a flush ([`Policy::flushed`]) are put into the same magazine in
//! the same way, once they have been taken off the chain that the flush was for. Chains are made by
//! trees alone, which know the contents of a table's record; their extra cost is in
//! `ptarmigan bench table`, case `fork-shape`.
use std::num::NonZeroU64;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{CheckConfig, Checked, ListsConfig, Policy, PolicyOn, Quicklists};
use ptarmigan::table::KernelMap;
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};
use ptarmigan_hosted::{CpuSlot, Host, HostConfig, HostError};

use super::contender::{PAGE, PageContender, Pages};

/// Creates a machine with two CPUs on one node of 4 GiB. Memory for `pages` tables is touched in
/// advance.
///
/// # Errors
///
/// [`HostError`] for lack of memory.
pub fn host(pages: usize) -> Result<Host<X86_64>, HostError> {
    Host::new(HostConfig { cpus: 2, prefault: pages * PAGE, ..HostConfig::default() })
}

/// Creates the library's lists with their checks for production. Findings go to standard error;
/// such a page is lost, so the benchmark fails at its end.
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

/// A policy and its host.
pub struct LibraryLists<'h, P> {
    name: &'static str,
    host: &'h Host<X86_64>,
    policy: P,
    window: DirectMap,
}

impl<'h, P: Policy> LibraryLists<'h, P> {
    /// Creates a contender called `name`. No other contender uses `host`, for which `policy` is
    /// made.
    pub fn new(name: &'static str, host: &'h Host<X86_64>, policy: P) -> Self {
        LibraryLists { name, host, policy, window: host.window() }
    }
}

const OTHER_HOST: &str = "the policy was made for another host";

/// One of the host's CPUs, for which the policy was made.
pub struct Cpu<'a, P> {
    policy: &'a P,
    window: &'a DirectMap,
    slot: CpuSlot,
}

impl<P: Policy> PageContender for LibraryLists<'_, P> {
    type Cpu<'a>
        = Cpu<'a, P>
    where
        Self: 'a;

    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu(&self, n: usize) -> Result<Cpu<'_, P>, String> {
        let slot = self.host.slot(n).ok_or("the CPU does not exist or is in use")?;
        PolicyOn::new(&self.policy, &slot.pin()).ok_or(OTHER_HOST)?;
        Ok(Cpu { policy: &self.policy, window: &self.window, slot })
    }

    fn finish(&self) -> Result<(), String> {
        let slots = self.host.slots();
        for slot in &slots {
            PolicyOn::new(&self.policy, &slot.pin()).ok_or(OTHER_HOST)?.drain();
        }
        if let Some(slot) = slots.first() {
            PolicyOn::new(&self.policy, &slot.pin()).ok_or(OTHER_HOST)?.reclaim(NodeId(0), u32::MAX);
        }
        self.host.audit().map_err(|e| e.to_string())
    }
}

// SAFETY: 1. a `Clean` page below the root level owns a frame that is all zero, and the window maps
// it. 2. policies take pages back on any CPU.
unsafe impl<P: Policy> Pages for Cpu<'_, P> {
    #[inline(always)]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        let pin = self.slot.pin();
        // SAFETY: 1. `cpu` has compared them.
        let here = unsafe { PolicyOn::new_unchecked(self.policy, &pin) };
        let page = here.alloc(Level::PTE, AllocFlags::NORMAL).ok()?;
        // SAFETY: a host has no frame 0.
        Some(unsafe { NonZeroU64::new_unchecked(page.into_raw().0) })
    }

    #[inline(always)]
    unsafe fn free(&mut self, page: NonZeroU64) {
        // SAFETY: 1. `alloc` took it and the caller gives it away. 2. it is all zero, as the caller
        // says, which is the state of its level. 3. it was never linked.
        let page = unsafe { Clean::from_raw(PhysAddr(page.get()), Level::PTE) };
        let pin = self.slot.pin();
        // SAFETY: 1. `cpu` has compared them.
        let here = unsafe { PolicyOn::new_unchecked(self.policy, &pin) };
        // SAFETY: 1. `alloc` had the page from it.
        unsafe { here.free_unlinked(page) };
    }

    #[inline(always)]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        self.window.open(PhysAddr(page.get())).base().cast()
    }
}
