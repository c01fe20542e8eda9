//! Requests between CPUs, without memory of their own: each CPU has one request at a time, which it keeps until all it
//! asked have answered; who was asked finds a bit for each CPU that asks.
use super::request::{Generation, Invalidation};
use super::space::SpaceTlb;
use crate::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use crate::cpu::{CpuId, CpuMask, CpuSet};
use crate::sync::cell::UnsafeCell;
use core::ptr::NonNull;

/// What a CPU asks of others.
#[derive(Clone, Copy)]
pub(super) enum Request {
    /// Nothing.
    Nothing,
    /// To bring a space to a generation.
    Flush {
        /// The space: outlives the request, as the CPU that asks borrows it until all have answered.
        space: NonNull<SpaceTlb>,
        /// What to forget.
        what: Invalidation,
        /// The generation.
        generation: Generation,
        /// The space ends: CPUs that have it loaded must load another root.
        ends: bool,
        /// CPUs that hold the space under a number of theirs must give it up.
        recall: bool,
    },
    /// To drop everything that is known of user space.
    Everything,
}

/// What CPUs write into each other's.
#[repr(align(128))]
struct Mailbox {
    /// Who asks this CPU.
    asked_by: CpuMask,
    /// Whom this CPU has asked and who has not answered yet.
    unanswered: CpuMask,
    request: UnsafeCell<Request>,
}

/// The mailboxes of all CPUs.
pub(super) struct Mailboxes {
    boxes: BootSlice<Mailbox>,
}

// SAFETY: the request of a box is written by its own CPU while `unanswered` is empty, and read by others only between
// finding themselves asked by it and answering: `ask` and `answer` order these.
unsafe impl Sync for Mailboxes {}
// SAFETY: the pointer in a request is used only while the CPU that asks waits for the answer.
unsafe impl Send for Mailboxes {}

impl Mailboxes {
    pub fn new(boot: &mut BootMemory, cpus: usize) -> Result<Self, BootMemoryShort> {
        let boxes = boot.take(cpus, |_| Mailbox {
            asked_by: CpuMask::new(),
            unanswered: CpuMask::new(),
            request: UnsafeCell::new(Request::Nothing),
        })?;
        Ok(Mailboxes { boxes })
    }

    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes::<Mailbox>(cpus)
    }

    /// Whether somebody asks `me`.
    #[inline(always)]
    pub fn is_asked(&self, me: CpuId) -> bool {
        !self.boxes[me.0 as usize].asked_by.is_empty()
    }

    /// Asks `cpus`.
    ///
    /// # Safety
    ///
    /// 1. The caller runs on `me`, and none of its requests is unanswered.
    /// 2. The space in the request is there until [`unanswered`](Self::unanswered) says that all have answered.
    pub unsafe fn ask(&self, me: CpuId, cpus: &CpuSet, request: Request) {
        let own = &self.boxes[me.0 as usize];
        debug_assert!(own.unanswered.is_empty(), "a flush inside a flush on {me:?}");
        // SAFETY: nobody reads the request: whoever was asked before has answered (point 1).
        own.request.with_mut(|p| unsafe { *p = request });
        own.unanswered.assign(cpus);
        for cpu in cpus.iter() {
            self.boxes[cpu.0 as usize].asked_by.set(me);
        }
    }

    /// Who has not answered `me`.
    #[inline]
    pub fn unanswered(&self, me: CpuId) -> CpuSet {
        self.boxes[me.0 as usize].unanswered.snapshot()
    }

    /// Answers everybody who asks `me`, after `carry_out` has done what they ask for.
    pub fn answer(&self, me: CpuId, mut carry_out: impl FnMut(&Request)) {
        for from in self.boxes[me.0 as usize].asked_by.take().iter() {
            let theirs = &self.boxes[from.0 as usize];
            // SAFETY: `from` wrote it before it set the bit that was found, and does not touch it before this CPU's
            // answer, which comes below.
            theirs.request.with(|p| carry_out(unsafe { &*p }));
            theirs.unanswered.clear(me);
        }
    }
}
