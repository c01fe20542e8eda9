//! Describes requests to TLBs: names, scopes, requests and the tickets that stand for them.
use super::id::{Generation, SpaceId};
use super::plan::{Plan, SlotSet};
use super::scope::Scope;
use super::space::SpaceTlb;
use crate::addr::PhysAddr;
use crate::cpu::CpuSet;
use core::ptr::NonNull;

/// The flush that the pages of one gather wait for: that every CPU in it has reached the
/// generation.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// The space.
    pub space: SpaceId,
    /// The generation that the flush raised the space to.
    pub generation: Generation,
    /// CPUs that had the space loaded and active.
    pub active: CpuSet,
    /// CPUs that kept it loaded while running something else. They must be flushed, or moved to a
    /// safe root, when tables were unhooked; otherwise they may catch up when they use the space
    /// again.
    pub lazy: CpuSet,
    /// Of these, the CPUs that have neither been flushed nor moved yet, and the active ones to
    /// which the flush is [left](crate::space::Unmapping::Deferred). The pages of the gather are
    /// parked until they have (REQ-33).
    pub waiting: CpuSet,
}

/// The translations that one CPU must forget, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// The space.
    pub space: SpaceId,
    /// The number under which this CPU's TLB tags the space ([`Root::asid`]).
    pub asid: u16,
    /// Which addresses.
    pub scope: Scope,
    /// Tables were unhooked: paging-structure caches must forget their links too
    /// ([`Mmu::STRUCTURES`](super::Mmu::STRUCTURES); REQ-32). The scope names an address of each of
    /// them if the machine says [`Tagged`](super::Structures::Tagged), and is [`Scope::Full`] if it
    /// says [`WholeSpace`](super::Structures::WholeSpace).
    pub tables_freed: bool,
    /// The root's entries changed on a machine that keeps them in registers (x86 PAE): the root
    /// must be loaded anew.
    pub reload_root: bool,
}

/// Entries of consecutive pages that have become valid, or allow more than they did. Whoever tells
/// an MMU of one answers for it: [`Tlb::entry_became_valid`](super::Tlb::entry_became_valid).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The space; `None` for the kernel's half.
    pub space: Option<SpaceId>,
    /// The number under which the calling CPU's TLB tags the space ([`Root::asid`]): 0 on a machine
    /// without numbers. `None` for the kernel's half, and if the CPU does not have the space
    /// loaded: then it may know the pages under any number that it gave the space before. On a
    /// machine that [broadcasts](super::Mmu::BROADCASTS), a number is the same on all CPUs, and
    /// `None` says that the space never had one.
    pub asid: Option<u16>,
    /// The first address that they map.
    pub va: u64,
    /// Binary logarithm of the bytes that each of them maps.
    pub shift: u32,
    /// How many there are, at least 1.
    pub pages: u64,
    /// The first entry as it was before, as the format writes it; 0 if it was empty. Of several,
    /// either all were valid before, or all were invalid.
    pub was: u64,
    /// The first entry as it is now.
    pub raw: u64,
    /// How many levels of tables on the way to the entries may have been linked since the calling
    /// CPU could walk there last: 0 if none was, and [`ANY_LEVEL`](Self::ANY_LEVEL) if other CPUs
    /// may have. An MMU that caches entries which are not valid may know those from before the
    /// links, and has to forget them too.
    pub linked: u8,
}

impl NewEntry {
    /// Tables of any level may have been linked.
    pub const ANY_LEVEL: u8 = u8::MAX;

    /// Describes the entry of a page of the kernel's half of 2^`shift` bytes, where the entry was
    /// empty.
    pub const fn of_kernel(va: u64, shift: u32, raw: u64) -> Self {
        NewEntry { space: None, asid: None, va, shift, pages: 1, was: 0, raw, linked: 0 }
    }
}

/// A request of one CPU to others.
#[derive(Clone, Copy)]
pub(super) enum Request {
    /// Nothing.
    Nothing,
    /// To bring a space to a generation.
    Flush(FlushRequest),
    /// To drop everything that is known of user space.
    Everything,
    /// To forget a part of the kernel's half.
    Kernel(Scope),
    /// To forget slots of a window in the kernel's half.
    KernelSlots {
        /// The slots. They outlive the request: the CPU that asks borrows them until all have
        /// answered.
        slots: NonNull<SlotSet>,
        /// How.
        plan: Plan,
    },
}

impl Request {
    /// Returns whether CPUs have to load another root, or theirs anew.
    pub fn is_about_root(&self) -> bool {
        match self {
            Request::Flush(request) => request.ends || request.recall || request.what.reload_root,
            _ => false,
        }
    }
}

/// The request of one flush of a space to each CPU.
#[derive(Clone, Copy)]
pub(super) struct FlushRequest {
    /// The space. It outlives the request: the CPU that asks borrows it until all have answered.
    pub space: NonNull<SpaceTlb>,
    /// The scope to forget, under the number of the CPU that asks.
    pub what: Invalidation,
    /// The generation that the flush raised the space to.
    pub generation: Generation,
    /// The space ends: CPUs that have it loaded load the kernel's root.
    pub ends: bool,
    /// CPUs give up the number under which they know the space.
    pub recall: bool,
}

/// A root that holds entries of the kernel alone, or none at all on a machine with two roots. It
/// stays as long as the machine.
///
/// Only the library makes one: see [`Root`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRoot {
    /// Where the table is.
    pub at: PhysAddr,
}

/// A root to be loaded.
///
/// Only the library makes one, of tables that stay until the CPU has left them. So code that
/// reaches an [`Mmu`](super::Mmu) cannot have it load anything else:
///
/// ```compile_fail,E0639
/// use ptarmigan::{addr::PhysAddr, cpu::Pinned, tlb::{Mmu, Root, Shootdown, SpaceId, Tlb}};
/// fn load<S: Shootdown>(tlb: &Tlb<S>, pin: &Pinned<'_>, space: SpaceId, at: PhysAddr) {
///     let root = Root { space, at, asid: 0, keep: true, forget_all: false };
///     tlb.hardware().load(pin, &root);
/// }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The space.
    pub space: SpaceId,
    /// Where its root table is.
    pub at: PhysAddr,
    /// The number that the TLB is to tag its translations with; 0 if tags are not used.
    pub asid: u16,
    /// The TLB's translations under that number are of this space and up to date: it may stay.
    pub keep: bool,
    /// Numbers have been handed out anew: the TLB's translations under all of them go first. Only
    /// on machines that [broadcast](super::Mmu::BROADCASTS).
    pub forget_all: bool,
}
