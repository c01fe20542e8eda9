//! A policy, and all that a tree which is not the library's needs beside it.
//!
//! ```text
//!  alloc    policy ──> Clean ──> ForeignTable ──> the crate's tree
//!  take     the crate's tree ── unlinked ── clear_touched ──> waiting: Unhooked
//!  flush    the user flushes its TLBs ── FlushProof ──> flushed ──> policy
//! ```
//!
//! # Why
//!
//! Hooks of released crates give a table back when it is unlinked, mostly before the flush. The
//! crate's user knows when the flush is, and the hook does not. So tables must wait in a chain,
//! under a lock, until the user gives the proof. The caller of `at_once` promises that no MMU walks
//! the tables, and then nobody waits.
use core::fmt;
use core::ops::Range;
use ptarmigan::addr::{FRAME_SIZE, PhysAddr};
use ptarmigan::cpu::WithPin;
use ptarmigan::frames::{AllocFlags, Frames};
use ptarmigan::page::{ClearedTable, Construct, FlushProof, ForeignTable, Level, Unhooked};
use ptarmigan::quicklist::{Check, Policy, PolicyOn, Quicklists, Source};
use ptarmigan::sync::SpinLock;
use ptarmigan::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use ptarmigan::window::{DirectMap, OpenWindow, WindowGuard};

/// Page-table crates cannot take the tables of a policy: a frame of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfitTables {
    /// Bytes of a table that holds pages.
    pub bytes: u64,
}

impl fmt::Display for UnfitTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "tables of this policy have {} bytes, and those of other crates {FRAME_SIZE}; \
             make lists of a layout with more than one level and 4 KiB tables",
            self.bytes
        )
    }
}

impl core::error::Error for UnfitTables {}

/// Table pages for trees that are not the library's.
///
/// All tables are handed out as tables of the lowest level, roots too, as hooks do not tell levels
/// apart. They are low memory, which the direct map reaches.
pub struct Pages<'m, P, N> {
    policy: P,
    pin: N,
    frames: &'m Frames,
    window: DirectMap,
    at_once: bool,
    waiting: SpinLock<Unhooked>,
}

impl<'a, 'm, C: Construct, K: Check, N: WithPin> Pages<'m, &'a Quicklists<'m, DirectMap, C, K>, N> {
    /// Makes them of lists. No page is handed out if `pin` is of another machine than the lists.
    ///
    /// # Errors
    ///
    /// [`UnfitTables`] if tables are no frames.
    pub fn new(lists: &'a Quicklists<'m, DirectMap, C, K>, pin: N) -> Result<Self, UnfitTables> {
        // SAFETY: 1. it is the lists' own.
        unsafe { Pages::with_policy(lists, lists.source(), pin) }
    }
}

impl<'m, P: Policy, N: WithPin> Pages<'m, P, N> {
    /// Makes them of any policy. No page is handed out if `pin` is of another machine than the
    /// policy.
    ///
    /// # Errors
    ///
    /// [`UnfitTables`] if tables are no frames.
    ///
    /// # Safety
    ///
    /// 1. The policy must make its pages by `source`, or by another source of the same frames and
    ///    layout, whose tables the window of `source` reaches.
    pub unsafe fn with_policy<C: Construct>(
        policy: P,
        source: &Source<'m, DirectMap, C>,
        pin: N,
    ) -> Result<Self, UnfitTables> {
        let layout = source.layout();
        let bytes = layout.table_bytes(Level::PTE);
        if bytes != FRAME_SIZE as u64 || layout.root() == Level::PTE {
            return Err(UnfitTables { bytes });
        }
        let (frames, window) = (source.frames(), *source.window());
        let waiting = SpinLock::new(Unhooked::new());
        Ok(Pages { policy, pin, frames, window, at_once: false, waiting })
    }

    /// Gives tables back to the policy as soon as they come, without a flush. A table for which the
    /// way to a pin unwinds [waits](Self::take_waiting).
    ///
    /// # Safety
    ///
    /// 1. When a table comes back, no MMU can reach it any more. No CPU walks the trees (a program
    ///    on a hosted machine, tables built for another one), or the code that gives tables back
    ///    flushes before.
    #[must_use]
    pub unsafe fn at_once(self) -> Self {
        Pages { at_once: true, ..self }
    }

    /// Returns the policy.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    /// Hands out a table, all zero, or `None` if there is no memory. An address that is dropped is
    /// a table lost.
    #[inline]
    pub fn alloc(&self) -> Option<PhysAddr> {
        self.pin.with_pin(|pin| {
            let here = PolicyOn::new(&self.policy, pin)?;
            let page = here.alloc(Level::PTE, AllocFlags::NORMAL).ok()?;
            // SAFETY: 1. the policy makes such tables of these frames (contract of `with_policy`).
            // 2. `with_policy` has seen to it.
            Some(unsafe { page.into_frame(self.frames) }.into_raw())
        })
    }

    /// Returns where the byte at `at` is in the direct map. For an address that is no memory of the
    /// machine, it may be any pointer.
    #[inline]
    pub fn pointer(&self, at: PhysAddr) -> *mut u8 {
        self.window.open(at).base()
    }

    /// Returns the physical address of the byte to which `pointer` points in the direct map.
    #[inline]
    pub fn phys(&self, pointer: *const u8) -> PhysAddr {
        PhysAddr(pointer.addr().wrapping_sub(self.pointer(PhysAddr(0)).addr()) as u64)
    }

    /// # Safety
    ///
    /// 1. [`alloc`](Self::alloc) handed out the table at `at`, and it has not come back.
    /// 2. While the result exists, no other code may give it back.
    #[inline]
    pub(super) unsafe fn open(&self, at: PhysAddr) -> ForeignTable<'m> {
        // SAFETY: 1. `alloc` made it of a page of this level and these frames, and it has not come
        // back (1.). 2. by the caller (2.). 3. `with_policy` has seen to it.
        unsafe { ForeignTable::from_frame(self.frames, Level::PTE, at) }
    }

    /// Notes that these bytes of a table are written.
    ///
    /// # Safety
    ///
    /// 1. [`alloc`](Self::alloc) handed out the table at `at`. It has not come back, and does not
    ///    while this runs.
    #[inline]
    pub unsafe fn note(&self, at: PhysAddr, bytes: Range<usize>) {
        // SAFETY: 1. and 2. by the caller.
        unsafe { self.open(at) }.touched_range(bytes);
    }

    /// Takes a table back of which all that was written is [noted](Self::note): clears these lines,
    /// and no others.
    ///
    /// # Safety
    ///
    /// 1. [`alloc`](Self::alloc) handed out the table at `at`, and it has not come back.
    /// 2. Every byte of it that is not zero lies in a line that was noted.
    /// 3. No entry leads to the table any more, except entries of tables that are given back too.
    ///    No code may write to it.
    #[inline]
    pub unsafe fn give_back(&self, at: PhysAddr) {
        // SAFETY: 1. by the caller. 2. only this gives it back.
        let table = unsafe { self.open(at) };
        // SAFETY: 1. to 3. by the caller (3., 2. and 3.); every byte was zero when it came. 4. the
        // window reaches the tables (contract of `with_policy`).
        let table = unsafe { table.clear_touched(&self.window) };
        let mut waits = Waits { table: Some(table), on: &self.waiting };
        if !self.at_once {
            return;
        }
        self.pin.with_pin(|pin| {
            if let Some(here) = PolicyOn::new(&self.policy, pin)
                && let Some(table) = waits.table.take()
            {
                // SAFETY: 1. by the contract of `at_once`.
                let page = unsafe { table.never_walked() };
                // SAFETY: 1. `alloc` had it from this policy.
                unsafe { here.free_unlinked(page) };
            }
        });
    }

    /// Takes a table back whose content is unknown: clears it as a whole.
    ///
    /// # Safety
    ///
    /// 1. and 3. As for [`give_back`](Self::give_back).
    pub unsafe fn give_back_full(&self, at: PhysAddr) {
        // SAFETY: 1. by the caller. The table is one frame.
        let words = unsafe { &*self.pointer(at).cast::<[AtomicUsize; FRAME_SIZE / size_of::<usize>()]>() };
        // Word by word, as a walker may still read it.
        words.iter().for_each(|word| word.store(0, Relaxed));
        // SAFETY: 1. and 3. by the caller. 2. it is zero.
        unsafe { self.give_back(at) };
    }

    /// Takes all tables that have come back and wait for a flush.
    ///
    /// Tables that come back later wait for the next one. So the flush follows this call:
    ///
    /// ```
    /// # use ptarmigan_adapters::Pages;
    /// # use ptarmigan::{cpu::WithPin, page::FlushProof, quicklist::Policy};
    /// # fn flush_everywhere() {}
    /// fn after_unmapping(pages: &Pages<'_, impl Policy, impl WithPin>) {
    ///     let waiting = pages.take_waiting();
    ///     flush_everywhere();
    ///     // SAFETY: 1. every CPU has just invalidated what it had cached.
    ///     waiting.flushed(unsafe { FlushProof::claim() });
    /// }
    /// ```
    pub fn take_waiting(&self) -> Waiting<'_, 'm, P, N> {
        let chain = core::mem::take(&mut *self.waiting.lock());
        let mut waiting = Waiting { pages: self, chain };
        self.pin.with_pin(|pin| {
            if let Some(here) = PolicyOn::new(&self.policy, pin) {
                // SAFETY: 1. `alloc` had them from this policy.
                unsafe { here.unhooked(&mut waiting.chain) };
            }
        });
        waiting
    }
}

/// A table that has come back. If it is dropped, as tables wait, or the way to a pin unwinds, it
/// waits for the next flush.
struct Waits<'a, 'm> {
    table: Option<ClearedTable<'m>>,
    on: &'a SpinLock<Unhooked>,
}

impl Drop for Waits<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(table) = self.table.take() {
            // Only a root is ever refused, and these are no roots.
            let _ = table.unhook(&mut self.on.lock());
        }
    }
}

/// Tables that have come back, and that TLBs may still know. If it is dropped, because the flush
/// unwinds, they wait for the next one.
#[must_use = "tables that are dropped wait again: flush, and give them back"]
pub struct Waiting<'a, 'm, P: Policy, N: WithPin> {
    pages: &'a Pages<'m, P, N>,
    chain: Unhooked,
}

impl<P: Policy, N: WithPin> Waiting<'_, '_, P, N> {
    /// Returns how many there are.
    pub fn len(&self) -> u32 {
        self.chain.len()
    }

    /// Returns whether it is empty: then no flush is needed on their account.
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    /// Gives them back to the policy.
    pub fn flushed(mut self, proof: FlushProof) {
        let pages = self.pages;
        pages.pin.with_pin(|pin| {
            if let Some(here) = PolicyOn::new(&pages.policy, pin) {
                let flushed = core::mem::take(&mut self.chain).flushed(proof);
                // SAFETY: 1. `alloc` had them from this policy.
                unsafe { here.flushed(flushed) };
                here.gather_end();
            }
        });
    }
}

impl<P: Policy, N: WithPin> Drop for Waiting<'_, '_, P, N> {
    #[inline]
    fn drop(&mut self) {
        if !self.chain.is_empty() {
            let chain = core::mem::take(&mut self.chain);
            // SAFETY: 1. all came from `Pages::alloc`, whose tables are of these frames. 2. none is
            // a root.
            unsafe { self.pages.waiting.lock().append(self.pages.frames, chain) };
        }
    }
}
