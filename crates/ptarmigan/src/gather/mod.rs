//! Gathers: pages that one operation unlinks are flushed once, and only then given back.
//!
//! # The protocol
//!
//! 1. A [`Gather`] collects the pages that an operation on one space unlinks: tables on a chain,
//!    data frames on others, and the addresses whose entries have lost a permission or have been
//!    cleared.
//! 2. [`Gather::flush`] raises the space's generation and has every CPU that may know any of it
//!    invalidate: those that the space is active on, and lazy ones too if tables were unlinked
//!    (REQ-5).
//! 3. Only the result of that, [`Released`], gives tables to the policy, drops the references of
//!    data frames and gives frames back whose last reference that was.
//!
//! Dropping a gather does all of it. It does not allocate: whatever it holds is chained through
//! frames' records (REQ-33).
//!
//! ```text
//!  Gather                    Flushed                 Policy, Frames
//!  tables: Unhooked ──┐
//!  data frames ───────┼─ flush ─> tables ──────────> flushed(tables): handed out again, uncleared
//!  stale addresses ───┘  (once)   data frames ─────> reference dropped; the last one frees
//!                          │
//!                          └─ lazy CPUs, readers ──> parked until they have let go
//! ```
//!
//! `flush` makes the step, `released` holds the pages after it, and `settle` parks them.
//!
//! # Why
//!
//! A table that is reused before the flush is written to by its new owner while an MMU walks it for
//! the old one. Code must not be able to forget the flush, so that the types carry it: there is no
//! way from [`Unhooked`] to a list but through the proof of a flush.
//!
//! One flush for an operation, not one for each page, because the interrupt is the cost: a `munmap`
//! of 512 pages would interrupt each CPU 512 times.
//!
//! # References of shared frames
//!
//! The reference that a cleared entry held is dropped after the flush, not before. A space that
//! finds itself the only user of a frame writes to it in place; if another space's reference went
//! before its flush, a CPU of that space would still read the frame through an old entry, and see
//! those writes.
//!
//! # Hashed pages
//!
//! Where the MMU walks no tables, a translation was hashed before any TLB knew it, and the entry
//! says so ([`Format::KEPT`](crate::format::Format::KEPT)). A page whose entry does not is not
//! stale, and an empty flush is left out; nobody is waited for because of tables alone. After the
//! flush the bits of empty entries are taken away, and bits of freed tables before the policy gets
//! them.
//!
//! # The end of a space
//!
//! A gather for the end of a space flushes first: every CPU leaves the space; then no TLB can know
//! its pages. Where pages are hashed, those that were are noted before, and taken out by the plan
//! that is cheapest. Only the historic policies, which take tables before the flush, have it
//! last.
mod end;
mod flush;
mod hashed;
mod leaves;
mod released;
mod settle;
mod stale;
mod unlinked;

pub(crate) use hashed::scrub_unhooked;
pub(crate) use leaves::EndedLeaves;

use end::End;
pub use released::Released;
pub(crate) use released::{release_flushed, release_large_flushed};

use crate::addr::{FRAME_SHIFT, PhysAddr};
use crate::error::error;
use crate::machine::{Machine, On};
use crate::page::Unhooked;
use crate::parking::DataChains;
use crate::quicklist::Policy;
use crate::tlb::{FlushFlags, Mmu, Runs, SpaceTlb, Ticket, TlbRefusal};
use core::fmt;

/// Why there is no gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherError {
    /// The TLB state refuses the flush that would come of it.
    Refused(TlbRefusal),
    /// Pages of 2 to the power of so many bytes: larger than a frame, or of no size.
    Stride(u32),
    /// The table at this address is a root, which the registry of roots links through its record
    /// until it is destroyed.
    Root(PhysAddr),
}

impl fmt::Display for GatherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatherError::Refused(e) => e.fmt(f),
            GatherError::Stride(stride) => {
                write!(f, "pages of 2^{stride} bytes: a gather counts in pages of at most a frame")
            }
            GatherError::Root(at) => {
                write!(f, "the table at {at} is a root: give it back when its space has ended")
            }
        }
    }
}

error!(GatherError: TlbRefusal => Refused);

/// Everything that an operation on one space has unlinked so far, see the [module](self). Dropping
/// it flushes and frees.
///
/// The tables in it cannot be reached from outside before the flush:
///
/// ```compile_fail,E0616
/// use ptarmigan::{gather::Gather, machine::Machine, page::Unhooked};
/// fn steal<M: Machine>(gather: Gather<'_, M>) -> Unhooked {
///     gather.tables // private: only `flush` leads on
/// }
/// ```
///
/// ```compile_fail,E0599
/// use ptarmigan::{gather::Gather, machine::Machine};
/// fn free_at_once<M: Machine>(gather: Gather<'_, M>) {
///     gather.free(); // only `Released`, the result of `flush`, has it
/// }
/// ```
///
/// ```compile_fail,E0382
/// use ptarmigan::{gather::Gather, machine::Machine};
/// fn unlink_after_the_flush<M: Machine>(mut gather: Gather<'_, M>) {
///     let released = gather.flush();
///     gather.changed(0, 4096); // the gather was consumed by its flush
///     released.free();
/// }
/// ```
///
/// A tree makes the gathers for its own tables, so the gather of another space cannot get them:
///
/// ```compile_fail,E0061
/// use ptarmigan::{addr::VirtRange, format::X86_64, gather::Gather, machine::{Machine, On}, table::{Free, Tree}};
/// fn unmap<M: Machine>(on: On<'_, M>, tree: &mut Tree<X86_64>, range: VirtRange, other: &mut Gather<'_, M>) {
///     tree.edit(on).unwrap().unmap_range(range, Free::Empty, other, |_, _, _| {}); // takes no gather
/// }
/// ```
pub struct Gather<'a, M: Machine> {
    on: On<'a, M>,
    space: &'a SpaceTlb,
    /// The run of stale addresses that grows; empty if `start` is `end`.
    start: u64,
    end: u64,
    /// Those before it.
    runs: Runs,
    /// Binary logarithm of the bytes of the smallest large page in the runs, if all pages in them
    /// are large; 0 otherwise.
    large: u8,
    /// Binary logarithm of the bytes of the largest large page that it was told of; 0 if there is
    /// none, [`UNKNOWN`](stale::UNKNOWN) if it may have been of any size.
    largest: u8,
    flags: FlushFlags,
    tables: Unhooked,
    data: DataChains,
    /// No CPU has the space loaded, or can load it as long as the gather is there; or the space
    /// ends, so that no caller needs the bits that MMUs write to entries: entries may be changed
    /// with plain stores.
    private: bool,
    /// In the middle of a flush.
    flushing: bool,
    /// Others may read the tables without a lock: the flush waits for them.
    may_be_read: bool,
    /// No TLB can know the unlinked pages: references may be dropped at once.
    unknown: bool,
    ends: End<'a, M>,
}

impl<'a, M: Machine> Gather<'a, M> {
    /// An empty gather for operations on tables of `space` that are not the library's own. Changed
    /// addresses are counted in pages of 2^`stride` bytes, at most a frame: a flush names the first
    /// address of each. For larger ones see
    /// [`with_large_pages`](Self::with_large_pages).
    ///
    /// # Errors
    ///
    /// [`GatherError::Refused`] if `space` is of another machine, or in the middle of a switch or a
    /// flush of this CPU, where no other flush can be; [`GatherError::Stride`] for other pages.
    pub fn new(on: On<'a, M>, space: &'a SpaceTlb, stride: u32) -> Result<Self, GatherError> {
        if stride > FRAME_SHIFT {
            return Err(GatherError::Stride(stride));
        }
        // SAFETY: 1. no page is smaller than a frame.
        unsafe { Self::with_large_pages(on, space, stride) }
    }

    /// As [`new`](Self::new), for pages of any size.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new); pages have 2 bytes to 2^63.
    ///
    /// # Safety
    ///
    /// 1. No page that the gather is told of is smaller than 2^`stride` bytes: TLBs that are told
    ///    to forget the first address of such a page forget all of it.
    pub unsafe fn with_large_pages(
        on: On<'a, M>,
        space: &'a SpaceTlb,
        stride: u32,
    ) -> Result<Self, GatherError> {
        on.check(space.machine()).map_err(TlbRefusal::from)?;
        if !(1..u64::BITS).contains(&stride) {
            return Err(GatherError::Stride(stride));
        }
        on.tlb().may_flush(on.pin())?;
        Ok(Self::open(on, space, stride, false))
    }

    /// An empty gather for operations on `space`, which is of this machine and which the caller
    /// holds. `may_be_private` says that no CPU can begin to load the space as long as the gather
    /// is there.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn open(on: On<'a, M>, space: &'a SpaceTlb, stride: u32, may_be_private: bool) -> Self {
        let private = may_be_private && space.is_unloaded();
        let may_be_read = !may_be_private || space.is_shared();
        // No atomic access from here on: the runs would be zeroed elsewhere before it, and copied.
        Gather {
            on,
            space,
            start: 0,
            end: 0,
            runs: Runs::new(stride),
            large: 0,
            largest: 0,
            flags: FlushFlags::default(),
            tables: const { Unhooked::new() },
            data: const { DataChains::new() },
            private,
            flushing: false,
            may_be_read,
            unknown: private,
            ends: End::Operation,
        }
    }

    /// A gather for one page that changes its frame, as copy-on-write does it: it never holds
    /// tables, and its end is no occasion for the policy to trim.
    #[inline]
    pub(crate) fn one_page(
        on: On<'a, M>,
        space: &'a SpaceTlb,
        stride: u32,
        may_be_private: bool,
        at: u64,
    ) -> Self {
        let mut gather = Self::open(on, space, stride, may_be_private);
        gather.ends = End::Page;
        gather.changed_run(at, at + (1 << stride));
        gather
    }

    /// Makes an empty gather, [opened](Self::open) as one that may be private, one for the end of
    /// its space, which the caller has for itself for good. All CPUs leave the space now; lazy ones
    /// later, if chains may be parked. `ticket` is a place for the flush.
    ///
    /// This CPU may flush, as `Tlb::may_flush` said: in the middle of another flush the CPUs would
    /// stay in the space, and the gather's pages would be lost.
    ///
    /// Where the MMU walks no tables, `note` notes the pages that were hashed, and says whether the
    /// entries tell: the hash table loses these then by the cheapest plan. Otherwise it loses all
    /// of the space.
    pub(crate) fn end_space(&mut self, ticket: &'a mut Option<Ticket>, note: impl FnOnce(&mut Self) -> bool) {
        let (on, space) = (self.on, self.space);
        let gather = self;
        let stride = gather.runs.shift();
        // Others cannot begin to load the space, or to read its tables.
        let is_unloaded = gather.private && const { !<M::Shootdown as Mmu>::BROADCASTS };
        gather.private = true;
        gather.ends = End::Space;
        gather.flags.space_ends = true;
        gather.flags.tables_freed = true;
        if on.policy().policy().takes_unhooked().is_some() {
            // The historic policies take tables before the flush, as Linux did: then the flush
            // comes last, as it did.
            gather.changed_pages(
                0,
                if const { <M::Shootdown as Mmu>::WALKS_TABLES } { 1 << stride } else { 0 },
            );
            return;
        }
        if is_unloaded && const { <M::Shootdown as Mmu>::WALKS_TABLES } {
            // No CPU would be asked, and none remembers the generation of a space without a name.
            gather.ends = End::SpaceFlushed(None);
            return;
        }
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES } {
            if !note(gather) || space.owes_flush() {
                gather.nothing_stale();
            } else if !gather.has_changes() {
                // If no page is named as stale, all are. A page that was not hashed is not found.
                gather.changed_pages(0, 1 << stride);
            }
            gather.end_run();
        }
        gather.flags.may_park = settle::may_ever_park(on);
        let flushed = on.tlb().flush(on.pin(), space, &gather.runs, gather.flags, ticket);
        debug_assert!(flushed.is_ok(), "a space ends in the middle of a flush");
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES } {
            gather.nothing_stale();
        }
        if let Some(ticket) = ticket {
            gather.unknown = ticket.waiting.is_empty();
            gather.ends = End::SpaceFlushed(Some(ticket));
        }
    }

    /// The machine and the CPU that it works on.
    #[inline(always)]
    pub fn on(&self) -> On<'a, M> {
        self.on
    }

    /// Whether no MMU can see the entries that are being changed: plain stores will do.
    #[inline(always)]
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// Tables and data frames that wait for the flush.
    pub fn waiting(&self) -> (u32, u32) {
        (self.tables.len(), self.data.len)
    }
}
