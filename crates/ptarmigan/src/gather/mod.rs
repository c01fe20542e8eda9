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
//! says so ([`Format::KEPT`]). A page whose entry does not is not stale, and an empty flush is left
//! out; nobody is waited for because of tables alone. After the flush the bits of empty entries are
//! taken away, and bits of freed tables before the policy gets them.
//!
//! # The end of a space
//!
//! A gather for the end of a space flushes first: every CPU leaves the space; then no TLB can know
//! its pages. Where pages are hashed, those that were are noted before, and taken out by the plan
//! that is cheapest. Only the historic policies, which take tables before the flush, have it
//! last.
mod end;
mod hashed;
mod leaves;
mod released;
mod settle;

pub(crate) use end::Scrub;
pub(crate) use hashed::scrub_unhooked;
pub(crate) use leaves::EndedLeaves;

use end::End;
pub use released::Released;
pub(crate) use released::{release_flushed, release_large_flushed};

use crate::addr::{FRAME_SHIFT, Pfn, PhysAddr};
use crate::error::error;
use crate::format::Format;
use crate::frames::{FrameMeta, Use};
use crate::machine::{Machine, On};
use crate::page::{FlushProof, Flushed, Level, Unhooked};
use crate::parking::{DataChains, Waiting};
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
        gather.changed(at, at + (1 << stride));
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
            gather.changed(0, if const { <M::Shootdown as Mmu>::WALKS_TABLES } { 1 << stride } else { 0 });
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
                gather.changed(0, 1 << stride);
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

    /// Notes that entries that map `start..end` have lost a permission or have been cleared. An
    /// `end` of 0 is the end of the address space, so that `0..0` is all of it; otherwise the call
    /// has no effect if `end` is not above `start`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub fn changed(&mut self, start: u64, end: u64) {
        if start < end {
            self.changed_run(start, end);
        } else {
            // No run that grows reaches the end of the address space.
            self.runs.insert(start, end);
            self.large = 0;
        }
    }

    /// As [`changed`](Self::changed), for large pages of 2^`shift` bytes each; `start` and `end` are
    /// aligned to that, other bits are not looked at. As long as a gather is told of no smaller
    /// ones, its flush names the first address of each: MMUs forget a large page as a whole.
    ///
    /// # Errors
    ///
    /// [`GatherError::Stride`] for pages that are not larger than those that the gather was made
    /// for, or have more than 2^63 bytes.
    ///
    /// # Safety
    ///
    /// 1. No page in `start..end` was smaller than 2^`shift` bytes: TLBs that are told to forget its
    ///    first address forget all of it.
    pub unsafe fn large_changed(&mut self, start: u64, end: u64, shift: u32) -> Result<(), GatherError> {
        if shift <= self.runs.shift() || shift >= u64::BITS {
            return Err(GatherError::Stride(shift));
        }
        let within = !((1 << shift) - 1);
        let (start, end) = (start & within, end & within);
        if start < end {
            self.changed_large(start, end, shift);
        } else {
            self.changed(start, end);
        }
        Ok(())
    }

    /// As [`large_changed`](Self::large_changed), for leaves of a format, with `start` below `end`.
    pub(crate) fn changed_large(&mut self, start: u64, end: u64, shift: u32) {
        if self.has_changes() && self.large == 0 {
            return self.changed_run(start, end);
        }
        self.runs.insert(start, end);
        self.large = if self.large == 0 { shift as u8 } else { self.large.min(shift as u8) };
        (self.start, self.end) = NO_PAGE;
    }

    /// As [`changed`](Self::changed), for `start` below `end`.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) fn changed_run(&mut self, start: u64, end: u64) {
        debug_assert!(start < end);
        if start == self.end {
            // An empty run grows from anywhere.
            self.end = end;
            return;
        }
        self.changed_elsewhere(start, end);
    }

    #[inline]
    fn changed_elsewhere(&mut self, start: u64, end: u64) {
        self.end_run();
        (self.start, self.end) = (start, end);
    }

    /// Keeps the run that grows with the others.
    #[inline]
    fn end_run(&mut self) {
        if self.start != self.end {
            self.keep_run();
        }
        (self.start, self.end) = (0, 0);
    }

    /// As [`end_run`](Self::end_run), for a run that is not empty.
    #[inline]
    fn keep_run(&mut self) {
        if (self.start, self.end) == NO_PAGE {
            // A page follows, and not all are large any more.
            self.large = 0;
        } else {
            self.runs.insert(self.start, self.end);
        }
    }

    /// Whether it was noted where something has changed.
    #[inline(always)]
    fn has_changes(&self) -> bool {
        self.start != self.end || !self.runs.is_empty()
    }

    /// Takes over a table that has just been unlinked; it mapped 2^`span` bytes of addresses from
    /// `at` on.
    ///
    /// The flush says that tables were freed, so that the hardware drops links of them as well.
    /// Where it does so by address ([`Structures::Tagged`]), an address of the table is noted, if
    /// no page of its own is stale. Elsewhere the stale range need not grow to the table's span if
    /// any page changed.
    ///
    /// # Safety
    ///
    /// 1. No entry points to the table at `pfn` any more, the caller gives it away, and it was one
    ///    of the gather's space.
    /// 2. It must be in the state of its level: no live entries.
    /// 3. `record` must be the record of `pfn`, and say the level.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub(crate) unsafe fn table(&mut self, pfn: Pfn, record: &FrameMeta, at: u64, span: u32) {
        debug_assert!(
            !<M::Shootdown as Mmu>::WALKS_TABLES || record.touched() == 0,
            "table {pfn} unhooked with touched lines"
        );
        if const { names_tables::<M>() } {
            self.flags.tables_freed = true;
            self.name_table(at, span);
        } else if !self.flags.tables_freed {
            self.flags.tables_freed = true;
            if !self.has_changes() && !self.is_exact() {
                self.changed(at, at.wrapping_add(1 << self.runs.shift()));
            }
        }
        // SAFETY: points 1 to 3 are those of `push`.
        unsafe { self.tables.push(pfn, record) };
    }

    /// Notes an address of a table that mapped 2^`span` bytes from `at` on, if no page of it is
    /// stale.
    #[inline]
    fn name_table(&mut self, at: u64, span: u32) {
        let last = at.wrapping_add((1 << span) - 1);
        // Operations go along ascending addresses: mostly the run that grows has its last pages.
        let grows = self.start != self.end && self.start <= last && self.end > at;
        if !grows && !self.runs.meets(at, last) {
            self.changed(at, at.wrapping_add(1 << self.runs.shift()));
        }
    }

    /// Takes over a table that has just been unlinked, of tables that are not the library's own; it
    /// mapped addresses from `va` on. The policy gets it after the flush, as a page of `level`.
    ///
    /// # Errors
    ///
    /// [`GatherError::Root`] for a root table, which is not taken.
    ///
    /// # Safety
    ///
    /// 1. No entry points to the table at `at` any more, the caller gives it away, and it was one
    ///    of the gather's space.
    /// 2. It must have come from the machine's policy as a page of `level`, and be one frame or
    ///    more.
    /// 3. It must be in the state of its level: no live entries.
    /// 4. The pages that its entries mapped were no smaller than those that the gather was made
    ///    for.
    /// 5. If the policy does not say the level of its [roots](Policy::root), it is no root table.
    pub unsafe fn foreign_table(&mut self, at: PhysAddr, level: Level, va: u64) -> Result<(), GatherError> {
        if self.on.policy().policy().root() == Some(level) {
            return Err(GatherError::Root(at));
        }
        let record = self.on.frames().meta(at.pfn());
        record.set_usage(Use::Table);
        record.set_order(level.0);
        // Which addresses it mapped besides is not known here: its first one is noted.
        let span = self.runs.shift();
        // SAFETY: 1. and 2. passed on (1., 3.). 3. looked up above, and it says of which level the
        // table is.
        unsafe { self.table(at.pfn(), record, va, span) };
        Ok(())
    }

    /// Takes over the root of a space that ends.
    ///
    /// # Safety
    ///
    /// 1. As for [`table`](Self::table), for the root at `at`; it is the only root that the gather
    ///    is given.
    pub(crate) unsafe fn root(&mut self, at: PhysAddr, level: Level) {
        self.flags.tables_freed = true;
        // SAFETY: points 1 to 3 are passed on.
        unsafe { self.tables.push_root(at, level) };
    }

    /// Notes that a table was unlinked at `start..end` and linked elsewhere: paging-structure
    /// caches must forget the old way.
    pub fn table_moved(&mut self, start: u64, end: u64) {
        self.flags.tables_freed = true;
        self.changed(start, end);
    }

    /// Notes that an entry of a root that the MMU keeps in registers has changed.
    pub fn root_entry_changed(&mut self) {
        self.flags.reload_root = true;
    }

    /// Takes over the reference that the leaf `raw` of format `F` of a table of `level`, which has
    /// just been cleared, held on its frame, or on the block of its frames.
    ///
    /// # Safety
    ///
    /// 1. Unless it is special, the entry owned a reference to a data frame of this machine, and
    ///    the caller gives it away.
    /// 2. [`changed`](Self::changed) is told of the entry before the flush. Its page is no smaller
    ///    than those that the gather was made for.
    #[cfg_attr(not(feature = "small"), inline(always))]
    pub unsafe fn release<F: Format>(&mut self, level: Level, raw: u64) {
        if F::is_special(level, raw) {
            return;
        }
        let pfn = F::frame(level, raw);
        let record = self.on.frames().meta(pfn);
        if self.unknown {
            if record.drop_reference() {
                self.unused(pfn, record);
            }
        } else if record.is_sole_reference() {
            self.unused(pfn, record);
        } else {
            self.defer(pfn, record);
        }
    }

    /// Takes over a frame that nobody refers to: the field of its count becomes the link.
    #[cfg_attr(not(feature = "small"), inline(always))]
    fn unused(&mut self, pfn: Pfn, record: &FrameMeta) {
        record.set_link(self.data.unused);
        self.data.unused = pfn;
        self.data.len += 1;
    }

    /// Drops the reference to a frame that other spaces refer to as well after the flush.
    #[cold]
    fn defer(&mut self, pfn: Pfn, record: &FrameMeta) {
        if record.try_claim() {
            record.set_next(self.data.shared);
            self.data.shared = pfn;
            self.data.len += 1;
            return;
        }
        if !self.data.put_aside(pfn) {
            // Two spaces are giving up the same frames at the same time: flush the gather so far.
            // The table that is being cleared may not have been noted yet, so everything is
            // flushed.
            self.runs.insert(0, 0);
            self.flush_between();
            self.data.put_aside(pfn);
        }
    }

    /// Takes over the reference that the large page `raw` of format `F`, a leaf of a table of
    /// `level` which has just been cleared, held to its data frame as a whole
    /// (`frames/data/large.rs`).
    ///
    /// # Safety
    ///
    /// 1. Unless it is special, the entry owned a reference to the whole of a large data frame of
    ///    this machine, and the caller gives it away.
    /// 2. The gather is told of the entry before the flush.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn release_large<F: Format>(&mut self, level: Level, raw: u64) {
        if F::is_special(level, raw) {
            return;
        }
        let (on, pfn) = (self.on, F::frame(level, raw));
        let large = on.data().large(on.frames(), pfn);
        if self.unknown || large.is_sole() {
            // SAFETY: 1. and 2. by the caller (1.).
            unsafe {
                on.data().release_large(on.frames(), pfn, |pfn| {
                    let record = on.frames().meta(pfn);
                    self.unused(pfn, record);
                    self.data.len += (1 << record.order()) - 1;
                });
            }
            return;
        }
        if !large.try_claim() {
            // Another space is giving it up at the same time: flush the gather so far, as in
            // `defer`.
            self.runs.insert(0, 0);
            self.flush_between();
            if !self.space.owes_flush() {
                // SAFETY: 1. and 2. by the caller (1.), and all has just been flushed.
                unsafe { release_large_flushed(on, pfn) };
            }
            return;
        }
        large.set_next(self.data.large);
        self.data.large = pfn;
        self.data.len += 1;
    }

    /// Flushes the pages so far and gives them back; the operation goes on.
    fn flush_between(&mut self) {
        let tables = self.flush_now(false, &mut None);
        self.give_back(tables);
    }

    /// Has every CPU forget the pages noted so far, before entries take the places of others
    /// ([`Format::needs_break`]).
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] in the middle of another flush of this CPU. The gather is unchanged then.
    #[cold]
    pub(crate) fn flush_so_far(&mut self) -> Result<(), TlbRefusal> {
        self.on.tlb().may_flush(self.on.pin())?;
        self.flush_between();
        Ok(())
    }

    /// Returns whether an MMU may hold a former translation of a page in `start..end`: an entry
    /// that comes there would meet it.
    pub(crate) fn is_stale(&self, start: u64, end: u64) -> bool {
        let meets = |(first, last)| first < end && (last == 0 || start < last);
        !self.private
            && (self.start < self.end && meets((self.start, self.end)) || self.runs.iter().any(meets))
    }

    /// Tells the MMU of the entries of `pages` pages from `va` on that it may use now, where it
    /// wants to know. They were empty; the first one is `raw`.
    #[inline(always)]
    pub(crate) fn became_valid(&self, va: u64, pages: u64, raw: u64) {
        self.on.became_valid(Some(self.space), va, self.runs.shift(), pages, 0, raw);
    }

    /// Tells the MMU of an entry of a page that allows more than it did before, where it wants to
    /// know.
    #[inline(always)]
    pub(crate) fn gained(&self, va: u64, was: u64, raw: u64) {
        self.on.became_valid(Some(self.space), va, self.runs.shift(), 1, was, raw);
    }

    /// As [`became_valid`](Self::became_valid), for a leaf of 2^`shift` bytes that was `was`.
    #[inline]
    pub(crate) fn became_valid_leaf(&self, va: u64, shift: u32, was: u64, raw: u64) {
        self.on.became_valid(Some(self.space), va, shift, 1, was, raw);
    }

    /// Tables and data frames that wait for the flush.
    pub fn waiting(&self) -> (u32, u32) {
        (self.tables.len(), self.data.len)
    }

    fn has_work(&self) -> bool {
        self.has_changes()
            || !self.data.is_empty()
            || !self.tables.is_empty()
            || self.flags.reload_root
            || self.space.owes_flush()
    }

    /// Flushes the changes, once, on every CPU that may know them, and waits for all of them.
    pub fn flush(mut self) -> Released<'a, M> {
        let mut ticket = None;
        let tables = self.flush_now(false, &mut ticket);
        let data = core::mem::replace(&mut self.data, DataChains::new());
        Released { on: self.on, tables, data, ticket, ends: self.ends.is_told() }
    }

    /// Flushes, and puts the flush into `ticket`, which must be empty before. Returns the tables
    /// that may go back; the frames left in `data` may, too. Pages that would have to wait for lazy
    /// CPUs are left to them if it `may_park`, and are in neither.
    fn flush_now(&mut self, may_park: bool, ticket: &mut Option<Ticket>) -> Flushed {
        let on = self.on;
        // The noted pages stay until all CPUs have answered: if the policy or the flush unwinds,
        // the next flush makes up for it.
        self.flushing = true;
        let mut tables = core::mem::take(&mut self.tables);
        if !tables.is_empty() {
            if const { !<M::Shootdown as Mmu>::WALKS_TABLES }
                && on.policy().policy().takes_unhooked().is_some()
            {
                // The pages have been noted.
                scrub_unhooked(on, &tables);
            }
            // SAFETY: 1. the tables came from the machine's policy: trees take them there, and
            // others are promised to (`foreign_table`, 2.).
            unsafe { on.policy().unhooked(&mut tables) };
        }
        let is_flushed = match self.ends {
            End::SpaceFlushed(flushed) => {
                *ticket = flushed.copied();
                true
            }
            _ => false,
        };
        if !is_flushed && (self.has_work() || !tables.is_empty()) && !self.was_not_hashed() {
            let large = self.large;
            self.end_run();
            self.flags.may_park = may_park;
            let debt = self.space.debt();
            if debt.is_some() {
                self.note_everything();
            }
            // If pages were unlinked without an address, that is everything.
            let flushed = if large == 0 {
                on.tlb().flush(on.pin(), self.space, &self.runs, self.flags, ticket)
            } else {
                on.tlb().flush(on.pin(), self.space, &self.runs.coarser(large.into()), self.flags, ticket)
            };
            if flushed.is_err() {
                self.flushing = false;
                return self.refused();
            }
            // Until here another operation that finds the debt does not rely on this flush.
            if let Some(debt) = debt {
                self.space.settle_debt(debt);
            }
            self.scrub_stale();
        }
        self.flushing = false;
        self.nothing_stale();
        if let Some(ticket) = ticket
            && (const { <M::Shootdown as Mmu>::PARKS } && !ticket.waiting.is_empty()
                || const { <M::Shootdown as Mmu>::HAS_READERS }
                    && self.flags.tables_freed
                    && self.may_be_read)
        {
            return self.settle(tables, ticket, may_park);
        }
        // SAFETY: 1. If anything was unlinked, `Tlb::flush` has had every CPU that may know it
        // invalidate (contract of `Mmu`, points 1 and 3), lazy ones included as tables were freed
        // and the gather does not wait for lazy CPUs. CPUs that were not in the masks load the root
        // anew before they use the space, which drops old translations. At the end of a space the
        // flush came first: every CPU has left it for good.
        tables.flushed(unsafe { FlushProof::claim() })
    }

    /// Parks pages that lazy CPUs and readers may still know, or waits for these. Returns the
    /// tables that may go back at once, and leaves the data frames that may in `data`.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, tables: Unhooked, ticket: &Ticket, may_park: bool) -> Flushed {
        let on = self.on;
        let data = core::mem::replace(&mut self.data, DataChains::new());
        if self.may_be_read && on.tlb().cells().is_reading(on.cpu(), self.space.id(), None) {
            // This CPU reads the tables itself, and cannot wait for that.
            return Flushed::default();
        }
        let (tables, data) = settle::settle(on, Waiting::new(tables, data, ticket), may_park);
        self.data = data;
        tables
    }

    /// Gives back the pages of a flush.
    fn give_back(&mut self, tables: Flushed) {
        // Taken out first: if this unwinds, no page is given back twice.
        let data = core::mem::replace(&mut self.data, DataChains::new());
        released::give_back(self.on, tables, &data);
    }

    /// Forgets where something had changed.
    #[inline(always)]
    fn nothing_stale(&mut self) {
        (self.start, self.end) = (0, 0);
        self.large = 0;
        self.runs.clear();
        self.flags.reload_root = false;
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES } {
            self.runs.forget_hashed();
        }
    }

    /// Notes that anything may have changed.
    #[cold]
    fn note_everything(&mut self) {
        self.runs.insert(0, 0);
        self.flags.tables_freed = true;
        self.flags.reload_root = true;
    }

    /// Gives up pages that cannot be flushed now: the gather was opened before a flush of this CPU,
    /// and ends in the middle of it. Pages that TLBs may know are never handed out again, they are
    /// leaked on purpose; and the next flush of the space is one of everything.
    #[cold]
    fn refused(&mut self) -> Flushed {
        self.space.owe_flush();
        self.nothing_stale();
        self.data = DataChains::new();
        Flushed::default()
    }

    /// Flushes and gives everything back, or parks it until lazy CPUs have let go of the space. So
    /// does the end of its scope, which does not move it.
    #[inline]
    pub fn finish(self) {
        drop(self);
    }

    /// Gives everything back at the end of a space, of a gather that [is
    /// unknown](Self::is_unknown).
    #[inline(never)]
    fn give_unknown(&mut self) {
        let tables = core::mem::take(&mut self.tables);
        // SAFETY: 1. every CPU has left the space for good, or none ever loaded it (`is_unknown`).
        self.give_back(tables.flushed(unsafe { FlushProof::claim() }));
        self.on.policy().gather_end();
        if settle::may_ever_park(self.on) {
            self.on.collect();
        }
    }

    /// Flushes and gives back or parks the rest. A call, so that the ticket is not on the stack
    /// while tables are gone through.
    #[inline(never)]
    fn flush_rest(&mut self) {
        let may_park = settle::may_ever_park(self.on);
        let mut ticket = None;
        let tables = self.flush_now(may_park, &mut ticket);
        self.give_back(tables);
        if self.ends.is_told() && (ticket.is_some() || matches!(self.ends, End::SpaceFlushed(_))) {
            self.on.policy().gather_end();
        }
        if may_park {
            self.on.collect();
        }
    }
}

/// A run that grows of no page: all pages so far are large. No other run begins where it ends.
const NO_PAGE: (u64, u64) = (u64::MAX - 1, u64::MAX);

/// Whether flushes name an address of each table that was freed.
const fn names_tables<M: Machine>() -> bool {
    <M::Shootdown as Mmu>::WALKS_TABLES && <M::Shootdown as Mmu>::STRUCTURES.is_tagged()
}

// Where the MMU walks no tables.
impl<'a, M: Machine> Gather<'a, M> {
    /// Says that all changes are told by [`changed_entry`](Self::changed_entry), and how bits are
    /// taken away from empty entries.
    pub(crate) fn keep_exact(&mut self, scrub: Scrub<M>) {
        debug_assert!(matches!(self.ends, End::Operation));
        self.ends = End::Hashed(scrub);
    }

    /// For the tables of a format whose entries keep bits, which are not given up: stale are the
    /// pages that were hashed, and no others.
    #[inline(always)]
    fn scrub(&self) -> Option<Scrub<M>> {
        match self.ends {
            End::Hashed(scrub) if const { !<M::Shootdown as Mmu>::WALKS_TABLES } => Some(scrub),
            _ => None,
        }
    }

    /// Notes that the entry of the page at `va` was changed or cleared, and was `old` before. If
    /// the format says that the page was not hashed, no TLB knows it.
    #[inline(always)]
    pub(crate) fn changed_entry<F: Format>(&mut self, va: u64, old: u64) {
        if const { F::KEPT != 0 } {
            if F::cleared(old) == 0 {
                return;
            }
            self.runs.add_hashed();
        }
        self.changed(va, va + (1 << F::PAGE_SHIFT));
    }

    /// Returns whether the stale pages are known one by one, and no software reads the tables
    /// either.
    #[inline(always)]
    fn is_exact(&self) -> bool {
        !<M::Shootdown as Mmu>::WALKS_TABLES && self.scrub().is_some() && !self.may_be_read
    }

    /// Returns whether no entry in this gather was ever hashed, so the flush can be skipped.
    #[inline(always)]
    fn was_not_hashed(&self) -> bool {
        !<M::Shootdown as Mmu>::WALKS_TABLES
            && self.scrub().is_some()
            && !(self.has_changes() || self.flags.reload_root || self.space.owes_flush())
            && !(self.flags.tables_freed && self.may_be_read)
    }

    /// Takes the bits that stay away from empty entries of pages that have just been flushed.
    #[inline(always)]
    fn scrub_stale(&self) {
        if const { !<M::Shootdown as Mmu>::WALKS_TABLES }
            && let Some(scrub) = self.scrub()
        {
            scrub(self.on, self.space, &self.runs);
        }
    }
}

/// Leaves a flush that unwinds to the next one of the space, which is of everything then: the
/// entries have changed already, so a caller that tries again would find no work.
struct Repeat<'g, 'a, M: Machine>(&'g mut Gather<'a, M>);

impl<M: Machine> Drop for Repeat<'_, '_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.flushing {
            // It has unwound.
            let _ = self.0.refused();
        }
    }
}

impl<M: Machine> Drop for Gather<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.flushing {
            let _ = self.refused();
        } else if cfg!(not(feature = "small")) && self.is_unknown() {
            self.give_unknown();
        } else if self.has_work() || matches!(self.ends, End::SpaceFlushed(_)) {
            Repeat(self).0.flush_rest();
        }
    }
}
