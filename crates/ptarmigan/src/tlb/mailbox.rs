//! Passes requests between CPUs without allocating memory.
//!
//! # Protocol
//!
//! Each CPU has one request at a time, in its own mailbox. A CPU that is asked finds a bit for each
//! CPU that asks.
//!
//! 1. *Ask*: the CPU writes its request, notes which CPUs have not answered, and sets its bit at
//!    each of them.
//! 2. *Answer*: a CPU takes a bit, carries the request out, and takes itself out of those that have
//!    not answered. A bit that it cannot serve now it leaves where it is.
//! 3. *End*: the CPU that asks keeps its request, and the data that it points to, until all have
//!    answered. If it stops waiting before that, by unwinding, it *withdraws*: it takes its bits
//!    back from those that have not taken them, and waits for those that have. Of a bit, only one
//!    of both takes it.
//!
//! A CPU that unwinds while it carries a request out puts the bit back: the request is as
//! unanswered as before.
//!
//! ```text
//!  CPU 0                                  CPU 1
//!  request = flush
//!  unanswered = {1}
//!  set bit 0 in asked_by of CPU 1 ─────>  remove bit 0 from asked_by
//!                                         carry out the request of CPU 0
//!  unanswered is empty            <─────  clear bit 1 in unanswered of CPU 0
//!  request may be overwritten
//! ```
//!
//! # Why
//!
//! A flush asks all its CPUs for the same thing, so one request is enough, however many are asked.
//! A queue at each CPU would need room for a request of every other CPU, or a sender would have to
//! wait for room. Setting a bit never waits. The request must be written before the bit, and the
//! bit of `unanswered` before the one of `asked_by`, because the answer may come at once.
use super::request::Request;
use crate::bootmem::{BootArray, BootMemory, BootMemoryShort};
use crate::cpu::{CpuId, CpuMask, CpuSet};
use crate::sync;
use crate::sync::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// The fields that other CPUs write.
#[repr(align(128))]
struct Mailbox {
    /// The CPUs that ask this one.
    asked_by: CpuMask,
    /// The CPUs that this one has asked and that have not answered yet.
    unanswered: CpuMask,
    /// Others have left a flush to this CPU, for when it has time
    /// ([`Tlb::catch_up`](super::Tlb::catch_up)).
    owes: sync::atomic::AtomicBool,
    /// There is an [`Asked`] of this CPU. Only the CPU itself looks: models need not know.
    asking: AtomicBool,
    request: UnsafeCell<Request>,
}

/// The mailboxes of all CPUs.
pub(super) struct Mailboxes {
    boxes: BootArray<Mailbox>,
}

// SAFETY: the request of a box is written by its own CPU while `unanswered` is empty, and read by
// others only between taking its bit and answering: `ask` and `answer` order these.
unsafe impl Sync for Mailboxes {}
// SAFETY: the pointer in a request is used only while the CPU that asks waits for the answer.
unsafe impl Send for Mailboxes {}

impl Mailboxes {
    pub fn new(boot: &mut BootMemory, cpus: usize) -> Result<Self, BootMemoryShort> {
        let boxes = boot.take_each(cpus, |_| Mailbox {
            asked_by: CpuMask::default(),
            unanswered: CpuMask::default(),
            owes: sync::atomic::AtomicBool::new(false),
            asking: AtomicBool::new(false),
            request: UnsafeCell::new(Request::Nothing),
        })?;
        Ok(Mailboxes { boxes })
    }

    pub const fn bytes(cpus: usize) -> usize {
        BootMemory::bytes_each::<Mailbox>(cpus)
    }

    fn of(&self, cpu: CpuId) -> &Mailbox {
        self.boxes.of(usize::from(cpu.0))
    }

    /// Leaves a flush to `cpu`, for when it has time.
    pub fn leave_to(&self, cpu: CpuId) {
        self.of(cpu).owes.store(true, Ordering::SeqCst);
    }

    /// Returns whether a flush is left to `me`.
    #[inline]
    pub fn owes(&self, me: CpuId) -> bool {
        self.boxes.get(me.0 as usize).is_some_and(|own| own.owes.load(Ordering::Relaxed))
    }

    /// Notes that `me` is about to make up for all flushes that were left to it so far.
    pub fn settles(&self, me: CpuId) {
        self.of(me).owes.swap(false, Ordering::SeqCst);
    }

    /// Returns whether some CPU asks `me`.
    #[inline]
    pub fn is_asked(&self, me: CpuId) -> bool {
        self.boxes.get(me.0 as usize).is_some_and(|own| !own.asked_by.is_empty())
    }

    /// Returns whether `me` waits for answers.
    #[inline]
    pub fn is_asking(&self, me: CpuId) -> bool {
        self.of(me).asking.load(Ordering::Relaxed)
    }

    /// Asks `cpus`; `None` if `me` waits for answers already.
    ///
    /// # Safety
    ///
    /// 1. The caller must run on `me`.
    /// 2. The data that `request` points to must stay there until the result has been dropped.
    /// 3. The result must be dropped.
    pub unsafe fn ask(&self, me: CpuId, cpus: &CpuSet, request: &Request) -> Option<Asked<'_>> {
        let own = self.of(me);
        // The flag first, then the request: a handler that comes in between finds the box in use.
        if own.asking.swap(true, Ordering::Relaxed) {
            return None;
        }
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        // SAFETY: no CPU reads the request: all that were asked before have answered, or had their
        // bits taken back, before the flag was cleared (`Asked::drop`).
        own.request.with_mut(|p| unsafe { *p = *request });
        own.unanswered.assign(cpus);
        let asked = Asked { boxes: self, me };
        for cpu in cpus.iter() {
            self.of(cpu).asked_by.set(me);
        }
        Some(asked)
    }

    /// Answers every CPU that asks `me`, after `carry_out` has carried out its request.
    pub fn answer(&self, me: CpuId, mut carry_out: impl FnMut(&Request)) {
        let own = self.of(me);
        for from in own.asked_by.snapshot().iter() {
            if !own.asked_by.remove(from) {
                continue; // withdrawn
            }
            let taken = TakenBit { own, from };
            let theirs = self.of(from);
            // SAFETY: `from` wrote it before it set the bit that was taken, and does not touch it
            // before this CPU's answer, which comes below.
            theirs.request.with(|p| carry_out(unsafe { &*p }));
            core::mem::forget(taken);
            theirs.unanswered.clear(me);
        }
    }
}

/// A bit that was taken. Dropping it, while unwinding, puts it back.
struct TakenBit<'a> {
    own: &'a Mailbox,
    from: CpuId,
}

impl Drop for TakenBit<'_> {
    fn drop(&mut self) {
        self.own.asked_by.set(self.from);
    }
}

/// The request of a CPU that waits for answers. Dropping it withdraws the request from the CPUs
/// that have not answered.
pub(super) struct Asked<'a> {
    boxes: &'a Mailboxes,
    me: CpuId,
}

impl Asked<'_> {
    /// Returns the CPUs that have not answered.
    #[inline]
    pub fn unanswered(&self) -> CpuSet {
        self.boxes.of(self.me).unanswered.snapshot()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let own = self.boxes.of(self.me);
        let mut turns = 0;
        loop {
            let left = own.unanswered.snapshot();
            if left.is_empty() {
                break;
            }
            for cpu in left.iter() {
                if self.boxes.of(cpu).asked_by.remove(self.me) {
                    own.unanswered.clear(cpu);
                }
            }
            // The others have taken theirs, and answer or put them back.
            sync::spin();
            turns += 1;
            sync::relent(turns);
        }
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        own.asking.store(false, Ordering::Relaxed);
    }
}
