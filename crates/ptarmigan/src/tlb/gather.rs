//! Collects what one operation unhooks, flushes once, and only then gives it back.
use super::hardware::Shootdown;
use super::park::Parked;
use super::request::Ticket;
use super::runs::Runs;
use super::shootdown::FlushFlags;
use super::space::SpaceTlb;
use super::state::Tlb;
use crate::addr::{Pfn, PhysAddr};
use crate::cpu::Pinned;
use crate::frames::{DataFrames, FrameMeta, Frames};
use crate::page::{FlushProof, Flushed, Level, Unhooked};
use crate::quicklist::Policy;

/// What a gather works with.
pub struct GatherParts<'a, P, S> {
    /// Frame records.
    pub frames: &'a Frames,
    /// Where data frames go.
    pub data: &'a DataFrames,
    /// Where table pages go.
    pub policy: &'a P,
    /// Who invalidates.
    pub tlb: &'a Tlb<S>,
    /// The CPU we are on.
    pub pin: &'a Pinned<'a>,
}

impl<P, S> Clone for GatherParts<'_, P, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P, S> Copy for GatherParts<'_, P, S> {}

/// Everything that an operation on one space has unhooked so far. It allocates nothing: tables and data frames are
/// chained through their records (REQ-33). Dropping it flushes and frees.
///
/// The tables in it cannot be reached from outside before the flush:
///
/// ```compile_fail,E0616
/// use ptarmigan::{page::Unhooked, quicklist::Policy, tlb::{Gather, Shootdown}};
/// fn steal<P: Policy, S: Shootdown>(gather: Gather<'_, P, S>) -> Unhooked {
///     gather.tables // private: only `flush` leads on
/// }
/// ```
///
/// ```compile_fail,E0599
/// use ptarmigan::{quicklist::Policy, tlb::{Gather, Shootdown}};
/// fn free_at_once<P: Policy, S: Shootdown>(gather: Gather<'_, P, S>) {
///     gather.free(); // only `Released`, the result of `flush`, has it
/// }
/// ```
///
/// ```compile_fail,E0382
/// use ptarmigan::{quicklist::Policy, tlb::{Gather, Shootdown}};
/// fn unhook_after_the_flush<P: Policy, S: Shootdown>(mut gather: Gather<'_, P, S>) {
///     let released = gather.flush();
///     gather.changed(0, 4096); // the gather was consumed by its flush
///     released.free();
/// }
/// ```
pub struct Gather<'a, P: Policy, S: Shootdown> {
    parts: GatherParts<'a, P, S>,
    space: &'a SpaceTlb,
    stride: u32,
    start: u64,
    end: u64,
    flags: FlushFlags,
    tables: Unhooked,
    data: Pfn,
    data_len: u32,
    /// The policy is told of the end.
    ends: bool,
}

impl<'a, P: Policy, S: Shootdown> Gather<'a, P, S> {
    /// An empty gather for operations on `space`, whose pages have 2^`stride` bytes.
    #[inline]
    pub fn new(parts: GatherParts<'a, P, S>, space: &'a SpaceTlb, stride: u32) -> Self {
        Gather {
            parts,
            space,
            stride,
            start: u64::MAX,
            end: 0,
            flags: FlushFlags::default(),
            tables: Unhooked::new(),
            data: Pfn::NONE,
            data_len: 0,
            ends: true,
        }
    }

    /// A gather for one page that changes its frame, as copy-on-write does it: it never holds tables, and its end is
    /// no occasion for the policy to trim.
    #[inline]
    pub fn one_page(parts: GatherParts<'a, P, S>, space: &'a SpaceTlb, stride: u32, at: u64) -> Self {
        let mut gather = Self::new(parts, space, stride);
        gather.ends = false;
        gather.changed(at, at + (1 << stride));
        gather
    }

    /// A gather for the end of a space: one flush of everything, and all CPUs, lazy ones too, move to another root.
    pub fn ending(parts: GatherParts<'a, P, S>, space: &'a SpaceTlb, stride: u32) -> Self {
        let mut gather = Self::new(parts, space, stride);
        gather.flags.space_ends = true;
        gather.changed(0, 1 << stride);
        gather
    }

    /// What it works with.
    #[inline(always)]
    pub fn parts(&self) -> GatherParts<'a, P, S> {
        self.parts
    }

    /// Whether nobody can see the entries that are being changed: plain stores will do.
    #[inline]
    pub fn is_private(&self) -> bool {
        self.flags.space_ends || self.space.is_unloaded()
    }

    /// Entries that map `start..end` have lost a permission or have been cleared.
    #[inline(always)]
    pub fn changed(&mut self, start: u64, end: u64) {
        // Branches that are foretold, where a minimum would have each call wait for the last one's store.
        if start < self.start {
            self.start = start;
        }
        if end > self.end {
            self.end = end;
        }
    }

    /// Takes over a table that has just been unhooked; it mapped addresses from `at` on.
    ///
    /// The flush will say that tables were freed, which makes the hardware drop what its paging-structure caches
    /// know of the space; so the range need not grow to the table's span if any page in it changed.
    ///
    /// # Safety
    ///
    /// 1. No entry points to the table at `pfn` any more, and the caller gives it away.
    /// 2. It is in the state of its level: no live entries.
    /// 3. `record` is the record of `pfn`.
    #[inline(always)]
    pub unsafe fn table(&mut self, pfn: Pfn, record: &FrameMeta, at: u64) {
        self.flags.tables_freed = true;
        if self.start >= self.end {
            self.changed(at, at + (1 << self.stride));
        }
        // SAFETY: points 1 to 3 are those of `push`.
        unsafe { self.tables.push(pfn, record) };
    }

    /// Takes over the top table of a space that ends.
    ///
    /// # Safety
    ///
    /// 1. As for [`table`](Self::table), for the top at `at`; it is the only top that the gather is given.
    pub unsafe fn top(&mut self, at: PhysAddr, level: Level) {
        self.flags.tables_freed = true;
        // SAFETY: points 1 to 3 are passed on.
        unsafe { self.tables.push_top(at, level) };
    }

    /// A table was unlinked at `start..end` and linked elsewhere: paging-structure caches must forget the old way.
    pub fn table_moved(&mut self, start: u64, end: u64) {
        self.flags.tables_freed = true;
        self.changed(start, end);
    }

    /// An entry of a top that the MMU keeps in registers has changed.
    pub fn top_entry_changed(&mut self) {
        self.flags.reload_root = true;
    }

    /// Takes over a data frame whose last reference is gone.
    ///
    /// # Safety
    ///
    /// 1. No entry refers to `pfn` any more, and the caller gives the frame away.
    #[inline(always)]
    pub unsafe fn data(&mut self, pfn: Pfn) {
        // The reference count is 0 and done with: its field becomes the link.
        self.parts.frames.meta(pfn).set_link(self.data);
        self.data = pfn;
        self.data_len += 1;
    }

    /// Tables and data frames waiting.
    pub fn waiting(&self) -> (u32, u32) {
        (self.tables.len(), self.data_len)
    }

    /// Flushes what changed, once, on every CPU that may know it, and waits for all of them.
    pub fn flush(mut self) -> Released<'a, P, S> {
        self.flush_now(false)
    }

    /// Flushes. What would have to wait for lazy CPUs is left to them if it `may_park`, and is not in the result.
    fn flush_now(&mut self, may_park: bool) -> Released<'a, P, S> {
        let parts = self.parts;
        let mut ticket = None;
        let mut tables = core::mem::take(&mut self.tables);
        let changed = self.start < self.end;
        if changed || self.data != Pfn::NONE || !tables.is_empty() {
            if !tables.is_empty() {
                parts.policy.retire(parts.pin, &mut tables);
            }
            let stride = self.stride;
            let (start, end) = (self.start & !((1 << stride) - 1), self.end);
            let mut stale = Runs::new(stride);
            // Otherwise unhooked, but nobody said where: all of it.
            if changed {
                stale.insert(start, end);
            }
            self.flags.may_park = may_park;
            match parts.tlb.flush(parts.pin, self.space, &stale, self.flags) {
                Ok(flushed) => ticket = Some(flushed),
                Err(refused) => panic!("unhooked pages are lost: {refused}"),
            }
        }
        self.start = u64::MAX;
        self.end = 0;
        let data = core::mem::replace(&mut self.data, Pfn::NONE);
        let data_len = core::mem::replace(&mut self.data_len, 0);
        if let Some(ticket) = &ticket
            && (!ticket.waiting.is_empty() || (self.flags.tables_freed && self.space.is_shared()))
        {
            let frames = tables.len() + data_len;
            let held = Parked::new(tables, data, frames, ticket);
            let (tables, data) = parts.tlb.settle(parts.pin, held, may_park);
            return Released { parts, tables, data, ticket: Some(*ticket), ends: self.ends };
        }
        // SAFETY: 1. If anything was unhooked, `Tlb::flush` has just had every CPU that may know it invalidate (contract
        // of `Mmu`, points 1 and 3), lazy ones included as tables were freed and none is waited for. CPUs that were
        // not in the masks load the root anew before they use the space, which leaves nothing old.
        let tables = tables.flushed(unsafe { FlushProof::claim() });
        Released { parts, tables, data, ticket, ends: self.ends }
    }

    /// Flushes and gives everything back, or parks it until lazy CPUs have let go of the space.
    #[inline]
    pub fn finish(self) {
        drop(self);
    }
}

impl<P: Policy, S: Shootdown> Drop for Gather<'_, P, S> {
    #[inline]
    fn drop(&mut self) {
        if self.start < self.end || self.data != Pfn::NONE || !self.tables.is_empty() {
            let GatherParts { tlb, .. } = self.parts;
            let may_park = tlb.config().park > 0;
            self.flush_now(may_park).free();
            if may_park {
                tlb.collect(self.parts);
            }
        }
    }
}

/// What a gather held, flushed: nobody can reach it any more. Dropping it gives it back, as [`free`](Self::free)
/// does.
#[must_use = "dropping it gives the pages back; say so with `free`"]
pub struct Released<'a, P: Policy, S: Shootdown> {
    parts: GatherParts<'a, P, S>,
    tables: Flushed,
    data: Pfn,
    ticket: Option<Ticket>,
    ends: bool,
}

impl<P: Policy, S: Shootdown> Released<'_, P, S> {
    /// What was waited for; `None` if nothing had changed.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Gives tables to the policy and data frames to the allocator.
    pub fn free(self) {
        drop(self);
    }
}

impl<P: Policy, S: Shootdown> Drop for Released<'_, P, S> {
    fn drop(&mut self) {
        give_back(self.parts, core::mem::take(&mut self.tables), self.data);
        if self.ends && self.ticket.is_some() {
            self.parts.policy.gather_end(self.parts.pin);
        }
    }
}

/// Gives tables to the policy, and the data frames of the chain at `at` to their allocator.
pub(super) fn give_back<P: Policy, S>(parts: GatherParts<'_, P, S>, tables: Flushed, mut at: Pfn) {
    let GatherParts { frames, data, policy, pin, .. } = parts;
    if !tables.is_empty() {
        policy.flushed(pin, tables);
    }
    while at != Pfn::NONE {
        let pfn = at;
        at = frames.meta(pfn).link();
        data.give(frames, pin, pfn);
    }
}
