//! Logs the pages that are used or written: takes the bits that MMUs set, or write permission.
//!
//! Hypervisors that move a guest, snapshots and garbage collectors ask for pages that were written
//! since the last time. There are two ways to tell:
//!
//! * [`TreeMut::take_dirty`] takes the dirty bits that MMUs have set. Writes go on meanwhile.
//! * [`TreeMut::write_protect`] takes write permission. The first write to a page faults, and the
//!   handler notes the page and allows writes again.
//!
//! # No write is lost
//!
//! 1. Each bit is taken by one compare-exchange, with all bits that an MMU set until then.
//! 2. Until the flush, CPUs write by translations that say that the bit is still set. So the memory
//!    of the pages must be read after the flush, not when the page is told.
//! 3. After the flush, an MMU sets the bit again at the first write: the next call tells the page.
//!
//! # Large pages
//!
//! A large page has one bit, and a [group](super::group) too. It is told as a whole; then it may be
//! [split](TreeMut::split), so that the next call tells its parts. Clean ones are split too: a
//! write would make all of it dirty. A split comes after the bit is taken, so that no part of it
//! begins with the bit.
use super::large::{has_leaves, size};
use super::mapped::Mapped;
use super::node::{Node, Use, read};
use super::range::Part;
use super::stale::Stale;
use super::tables::{Tables, descend};
use super::tree::TreeMut;
use crate::addr::VirtRange;
use crate::format::{Attr, Entry, Format};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::page::Level;
use crate::tlb::TlbRefusal;

/// The leaf `raw` of a table of `level` without `bits`: those that MMUs set, or write permission.
#[inline]
fn without<F: Format>(level: Level, raw: u64, bits: Attr) -> u64 {
    if bits == Attr::WRITE {
        return F::write_protected(level, raw);
    }
    F::map_attr(level, raw, |attr| attr.without(bits))
}

/// Takes `bits` from the leaf `seen` at `index` of `node`; returns the leaf as it was then, `None`
/// if it has none of them.
#[inline]
fn take<F: Format, M: Machine>(
    node: &Node<'_, F, M::Window>,
    index: usize,
    seen: u64,
    bits: Attr,
    others: Use,
) -> Option<u64> {
    let level = node.level();
    if F::attr(level, seen).only(bits) == Attr::default() {
        return None;
    }
    let change = |raw| without::<F>(level, raw, bits);
    Some(node.replace_seen(index, seen, change(seen), others, change).0)
}

impl<F: Format> Tables<F> {
    /// Takes `bits`, those that MMUs set or write permission, from every leaf that maps a part of
    /// `range`, and calls `visit(level, first address, former entry)` for each that had some, in
    /// order. Records them in the gather.
    pub fn take_bits<M: Machine>(
        &mut self,
        range: VirtRange,
        bits: Attr,
        gather: &mut Gather<'_, M>,
        mut visit: impl FnMut(Level, u64, u64),
    ) {
        let (on, others) = (gather.on(), Use::private(gather.is_private()));
        self.each_part(on, range, &mut |part| match part {
            Part::Table { node, base, first, last } => {
                let stale = Stale::new(gather, base, F::PAGE_SHIFT, (first, last));
                let taken = node.each_noted(first, last, |index, raw| {
                    let Some(old) = take::<F, M>(node, index, raw, bits, others) else { return false };
                    let va = base + ((index as u64) << F::PAGE_SHIFT);
                    if const { F::KEPT != 0 } {
                        stale.gather.changed_entry::<F>(va, old);
                    }
                    visit(Level::PTE, va, old);
                    F::KEPT == 0
                });
                stale.end(taken);
            }
            Part::Large { node, index, va, raw } => {
                if let Some(old) = take::<F, M>(node, index, raw, bits, others) {
                    let level = node.level();
                    gather.changed_large(va, va + size::<F>(level), F::shift(level));
                    visit(level, va, old);
                }
            }
            Part::Group(group) => {
                let level = group.level();
                let without = |raw| without::<F>(level, raw, bits);
                if let Some(old) = Self::take_from_group(&group, gather, bits, without) {
                    visit(level, group.va(), old);
                }
            }
        });
    }

    /// Takes `bits` as [`take_bits`](Self::take_bits) does, and splits large pages of tables above
    /// `largest` afterwards, as far as they lie in `range`, and unfolds groups of leaves of
    /// `largest` or above. Write permission is taken from pages in `range` alone: large ones and
    /// groups that lie partly in it are split first.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if there are large pages, the architecture demands breaks, and this CPU is in
    /// the middle of a flush; no bit is taken then.
    pub fn log<M: Machine>(
        &mut self,
        range: VirtRange,
        bits: Attr,
        largest: Level,
        gather: &mut Gather<'_, M>,
        mut visit: impl FnMut(Mapped),
    ) -> Result<(), TlbRefusal> {
        if const { F::EVER_BREAKS } && self.may_be_large() && !gather.is_private() {
            let on = gather.on();
            on.tlb().may_flush(on.pin())?;
        }
        if bits == Attr::WRITE {
            self.split_ends(range, gather);
        }
        self.take_bits(range, bits, gather, |level, va, raw| visit(Mapped::of::<F>(level, va, raw)));
        if self.may_be_large() { self.split_range(range, largest, gather) } else { Ok(()) }
    }

    /// Splits the large pages that map a part of `range` until those parts are leaves of tables of
    /// `largest` or lower.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if that needs a break in the middle of a flush of this CPU; some may have
    /// been split.
    #[cold]
    pub fn split_range<M: Machine>(
        &mut self,
        range: VirtRange,
        largest: Level,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), TlbRefusal> {
        let (on, range) = (gather.on(), range.and(Self::USER));
        if self.may_be_groups() {
            self.unfold_range(range, largest, gather)?;
        }
        // From the largest down: the parts of a split are split again.
        for level in (1..Self::ROOT.0 + 1).rev().map(Level) {
            if level <= largest || !has_leaves::<F>(level) {
                continue;
            }
            let mut va = range.start;
            while va < range.end {
                let end = descend::<F, _>(on.window(), self.root(), Self::ROOT, va, level);
                let raw = read::<F, M::Window>(on.window(), end.level, end.at, F::index(end.level, va));
                if end.level == level && F::entry(level, raw) == Entry::Leaf {
                    self.split(va, level, gather)?;
                }
                // To the next entry of the last table on the way.
                va = (va | (size::<F>(end.level) - 1)) + 1;
            }
        }
        Ok(())
    }
}

impl<F: Format, M: Machine> TreeMut<'_, F, M> {
    /// Takes the dirty bit from every leaf that maps a part of `range`, and calls `dirty` once for
    /// each that had it, in order, with its former attributes. The next call tells the leaves that
    /// are written after the flush of this edit. The memory of the leaves must be read after that
    /// flush: until then CPUs may write to it unnoticed.
    ///
    /// A large page or a group is told as a whole, also if `range` has only a part of it.
    /// Afterwards all large pages of tables above `largest` are [split](Self::split) as far as they
    /// lie in `range`, and groups of leaves of `largest` or above unfolded, clean ones too, so that
    /// the next call tells their parts. With [`Layout::root`] no page is split. The tables were
    /// reserved; where the architecture demands a [break](Format::needs_break), each split is
    /// flushed.
    ///
    /// Where the MMU does not set the bit, a write to a page without it faults
    /// ([`Format::allows`]), and the handler must set it with [`protect`](Self::protect). The MMU
    /// of a second stage sets it only if it is told to.
    ///
    /// ```
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # use ptarmigan::{format::X86_64, machine::Machine};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    /// # let cpus = host.slots();
    /// # let pin = cpus[0].pin();
    /// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
    /// # let on = machine.on(&pin)?;
    /// use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
    /// use ptarmigan::format::Attr;
    /// use ptarmigan::frames::AllocFlags;
    /// use ptarmigan::page::Level;
    /// use ptarmigan::table::Tree;
    ///
    /// let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL)?;
    /// let range = VirtRange::fixed::<0x40_0000, 0x40_3000>();
    /// let mut edit = tree.edit(on)?;
    /// // SAFETY: no program runs in this space.
    /// unsafe { edit.map_range(range, Pfn(9), Attr::READ | Attr::WRITE)? };
    /// // As an MMU does it at a write.
    /// edit.protect(VirtAddr(0x40_1000), Attr::READ | Attr::WRITE | Attr::ACCESSED | Attr::DIRTY)?;
    ///
    /// let mut written = Vec::new();
    /// edit.take_dirty(range, Level::PTE, |page| written.push(page.at))?;
    /// edit.flush();
    /// // Now their memory may be read.
    /// assert_eq!(written, [VirtAddr(0x40_1000)]);
    /// tree.edit(on)?.take_dirty(range, Level::PTE, |page| panic!("{page:?} was not written"))?;
    /// tree.end(on, |_, _, _| {}).map_err(|refused| refused.error)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the tree has large pages, the architecture demands breaks, and this CPU is
    /// in the middle of a flush; no bit is taken then.
    ///
    /// [`Layout::root`]: crate::page::Layout::root
    pub fn take_dirty(
        &mut self,
        range: VirtRange,
        largest: Level,
        dirty: impl FnMut(Mapped),
    ) -> Result<(), TlbRefusal> {
        self.tables.taking().log(range, Attr::DIRTY, largest, &mut self.gather, dirty)
    }

    /// Takes the accessed bit from every leaf that maps a part of `range`, and calls `used` once
    /// for each that had it, in order, with its former attributes. The next call tells the leaves
    /// that are used after the flush of this edit. Large pages stay as they are.
    ///
    /// Where the MMU does not set the bit, a use of a page without it faults, or goes unnoticed:
    /// each [format](crate::format) says it.
    pub fn take_accessed(&mut self, range: VirtRange, mut used: impl FnMut(Mapped)) {
        self.tables.taking().take_bits(range, Attr::ACCESSED, &mut self.gather, |level, va, raw| {
            used(Mapped::of::<F>(level, va, raw));
        });
    }

    /// Takes write permission from every page in `range`, and calls `protected` once for each leaf
    /// that had it, in order, with its former attributes. After the flush of this edit each write
    /// to them faults.
    ///
    /// Large pages and groups that lie partly in `range` are [split](Self::split) first. Afterwards
    /// large pages of tables above `largest` are split too, so that the handler can allow writes
    /// page by page; see [`take_dirty`](Self::take_dirty).
    ///
    /// The handler of such a fault looks its page up among those that it was told, notes it, and
    /// gives the attributes back with [`protect`](Self::protect), which splits large pages, or with
    /// [`change_range`](Self::change_range), which does not:
    ///
    /// ```
    /// # use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
    /// # use ptarmigan::{format::X86_64, machine::Machine};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let host = Host::<X86_64>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() })?;
    /// # let cpus = host.slots();
    /// # let pin = cpus[0].pin();
    /// # let machine = HostMachine::new(&host, host.quicklists()?, NoTlb)?;
    /// # let on = machine.on(&pin)?;
    /// use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
    /// use ptarmigan::format::Attr;
    /// use ptarmigan::frames::AllocFlags;
    /// use ptarmigan::page::Level;
    /// use ptarmigan::table::Tree;
    ///
    /// let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL)?;
    /// let range = VirtRange::fixed::<0x40_0000, 0x60_0000>();
    /// let mut edit = tree.edit(on)?;
    /// // SAFETY: no program runs in this space.
    /// unsafe { edit.map_range_large(range, Pfn(0x10_0000), Attr::READ | Attr::WRITE, Level(1))? };
    ///
    /// // All of it may be written, as one page of 2 MiB. From now on it may not.
    /// let mut writable = Vec::new();
    /// edit.write_protect(range, Level::PTE, |page| writable.push(page))?;
    /// edit.flush();
    /// assert_eq!((writable[0].range(), writable[0].attr), (range, Attr::READ | Attr::WRITE));
    ///
    /// // The handler of a write fault: the page is logged, and may be written again.
    /// let (fault, mut log) = (VirtAddr(0x41_2000), Vec::new());
    /// if let Some(page) = writable.iter().find(|page| page.range().contains(fault.0)) {
    ///     log.push(fault);
    ///     tree.edit(on)?.protect(fault, page.attr | Attr::DIRTY)?;
    /// }
    /// assert!(tree.query(on, fault).is_some_and(|(_, attr)| attr.has(Attr::WRITE)));
    /// assert_eq!(tree.query(on, VirtAddr(0x41_3000)), Some((Pfn(0x10_0013), Attr::READ)));
    /// tree.end(on, |_, _, _| {}).map_err(|refused| refused.error)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`take_dirty`](Self::take_dirty); no permission is taken then.
    pub fn write_protect(
        &mut self,
        range: VirtRange,
        largest: Level,
        protected: impl FnMut(Mapped),
    ) -> Result<(), TlbRefusal> {
        self.tables.taking().log(range, Attr::WRITE, largest, &mut self.gather, protected)
    }
}
