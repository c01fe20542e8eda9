//! Holds the pages of a gather after its flush.
use super::hashed::scrub_unhooked;
use crate::addr::Pfn;
use crate::format::Format;
use crate::machine::{Machine, On};
use crate::page::{Flushed, Level};
use crate::parking::DataChains;
use crate::tlb::{Mmu, Ticket};

/// The pages of a gather, flushed: no MMU can reach it any more. Dropping it gives it back, as
/// [`free`](Self::free) does.
#[must_use = "dropping it gives the pages back; say so with `free`"]
pub struct Released<'a, M: Machine> {
    pub(super) on: On<'a, M>,
    /// They came from the policy of `on`'s machine.
    pub(super) tables: Flushed,
    pub(super) data: DataChains,
    /// The flush.
    pub(super) ticket: Option<Ticket>,
    pub(super) ends: bool,
}

impl<'a, M: Machine> Released<'a, M> {
    /// Returns the flush that was waited for; `None` if no entry had changed.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Gives tables to the policy, drops references, and gives frames without any back to the
    /// allocator.
    pub fn free(self) {
        drop(self);
    }
}

impl<M: Machine> Drop for Released<'_, M> {
    fn drop(&mut self) {
        give_back(self.on, core::mem::take(&mut self.tables), &self.data);
        if self.ends && self.ticket.is_some() {
            self.on.policy().gather_end();
        }
    }
}

/// Drops the reference that the leaf `raw` of format `F` held on its frame, now that another entry
/// stands in its place.
///
/// # Safety
///
/// 1. Unless it is special, the entry owned a reference to a data frame of this machine, and the
///    caller gives it away.
/// 2. Every CPU has forgotten the entry since MMUs could use it.
#[inline]
pub(crate) unsafe fn release_flushed<F: Format, M: Machine>(on: On<'_, M>, raw: u64) {
    if F::is_special(Level::PTE, raw) {
        return;
    }
    let pfn = F::frame(Level::PTE, raw);
    if on.frames().meta(pfn).drop_reference() {
        // SAFETY: 1. `on` is one machine. 2. its last reference is gone, and no TLB knows the entry
        // (2.).
        unsafe { on.data().give_raw(on.frames(), on.pin(), pfn) };
    }
}

/// Takes a reference to the whole of a large data frame back, and gives what nobody refers to any
/// more to the allocator.
///
/// # Safety
///
/// 1. `pfn` is the first frame of a large data frame of `on`'s machine.
/// 2. The caller owns a reference to the whole, and gives it away. Every CPU has forgotten the
///    mapping that it stood for.
#[cold]
pub(crate) unsafe fn release_large_flushed<M: Machine>(on: On<'_, M>, pfn: Pfn) {
    let give = |pfn| {
        // SAFETY: 1. `on` is one machine. 2. its last reference is gone, and all references go
        // after a flush (2.).
        unsafe { on.data().give_raw(on.frames(), on.pin(), pfn) };
    };
    // SAFETY: 1. and 2. passed on.
    unsafe { on.data().release_large(on.frames(), pfn, give) };
}

/// Gives tables to the policy, drops the references that waited, and gives frames without any to
/// their allocator. The tables came from the policy of `on`'s machine.
pub(super) fn give_back<M: Machine>(on: On<'_, M>, tables: Flushed, data: &DataChains) {
    let data = Data { on, data };
    if !tables.is_empty() {
        if const { <M::Shootdown as Mmu>::WALKS_TABLES } {
            // SAFETY: 1. they are of a gather of this machine, which takes no others (contracts of
            // `Gather::table`, `foreign_table` and `root`).
            unsafe { on.policy().flushed(tables) };
        } else {
            give_scrubbed(on, tables);
        }
    }
    drop(data);
}

/// The data frames of a flush that has ended. Given back when dropped, also if the policy unwinds.
struct Data<'a, M: Machine> {
    on: On<'a, M>,
    data: &'a DataChains,
}

impl<M: Machine> Drop for Data<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let Data { on, data } = *self;
        if data.is_empty() {
            return;
        }
        let frames = on.frames();
        let give = |pfn: Pfn| {
            // SAFETY: 1. `on` is one machine. 2. its last reference is gone, and the flush has been
            // waited for.
            unsafe { on.data().give_raw(frames, on.pin(), pfn) };
        };
        let mut at = data.unused;
        while at != Pfn::NONE {
            let pfn = at;
            at = frames.meta(pfn).link();
            give(pfn);
        }
        let mut at = data.shared;
        while at != Pfn::NONE {
            let (pfn, record) = (at, frames.meta(at));
            at = record.next();
            // Before the reference goes: the gather that drops the last one hands the frame on.
            record.unclaim();
            if record.drop_reference() {
                give(pfn);
            }
        }
        let mut at = data.large;
        while at != Pfn::NONE {
            let (pfn, large) = (at, on.data().large(frames, at));
            at = large.next();
            large.unclaim();
            // SAFETY: 1. and 2. of `Gather::release_large`, whose reference this is; the flush has
            // been waited for.
            unsafe { release_large_flushed(on, pfn) };
        }
        for pfn in data.aside() {
            if frames.meta(pfn).drop_reference() {
                give(pfn);
            }
        }
    }
}

/// Gives tables back, without the bits that say that pages were hashed. Apart from the above, whose
/// chain is never borrowed: it would be copied for that.
#[inline(never)]
fn give_scrubbed<M: Machine>(on: On<'_, M>, tables: Flushed) {
    scrub_unhooked(on, tables.as_unhooked());
    // SAFETY: 1. as in `give_back`.
    unsafe { on.policy().flushed(tables) };
}
