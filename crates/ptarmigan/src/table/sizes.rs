//! Pages of all sizes in a tree.
use super::group::group_shift;
use super::large::{has_leaves, is_aligned, size};
use super::map_error::{CollapseError, MapError, check_frames};
use super::mapped::Mapped;
use super::node::Node;
use super::reserve::needed;
use super::tables::Tables;
use super::tree::{TreeMut, flush_stale};
use super::unmap::Free;
use crate::addr::{FRAME_SHIFT, Pfn, VirtAddr, VirtRange};
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, NoFrame};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::page::Level;
use crate::tlb::TlbRefusal;

/// The sizes of the leaves that a range is mapped with.
///
/// A [`Level`] is the largest one: leaves of tables of that level or lower, without hints.
///
/// ```
/// use ptarmigan::page::Level;
/// use ptarmigan::table::Sizes;
///
/// assert_eq!(Sizes::from(Level(1)), Sizes::up_to(Level(1)));
/// assert_ne!(Sizes::up_to(Level(1)).with_groups(), Sizes::up_to(Level(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub(super) largest: Level,
    groups: bool,
}

impl Sizes {
    /// Pages alone.
    pub const PAGES: Sizes = Sizes::up_to(Level::PTE);

    /// Leaves of tables of `largest` or lower.
    pub const fn up_to(largest: Level) -> Self {
        Sizes { largest, groups: false }
    }

    /// The same, with the hint in leaves that are whole [groups](Format::GROUP_BITS), where the
    /// format has groups. A group is changed at no more cost as a whole. A change of a part takes
    /// the hint from all of it first, for which the architecture may demand a flush.
    pub const fn with_groups(self) -> Self {
        Sizes { groups: true, ..self }
    }

    /// Returns the level of the tables of the largest leaves.
    pub const fn largest(self) -> Level {
        self.largest
    }

    /// Returns whether there may be groups.
    pub const fn has_groups(self) -> bool {
        self.groups
    }

    /// A number below 256 for them: 0 for [pages](Self::PAGES).
    pub(crate) const fn number(self) -> u32 {
        self.largest.0 as u32 & !GROUPS | if self.groups { GROUPS } else { 0 }
    }

    /// Those that a [number](Self::number) stands for.
    pub(crate) const fn numbered(n: u32) -> Self {
        Sizes { largest: Level((n & (GROUPS - 1)) as u8), groups: n & GROUPS != 0 }
    }

    /// Whether the format has leaves of the largest one.
    pub(crate) const fn are_of<F: Format>(self) -> bool {
        has_leaves::<F>(self.largest)
    }
}

/// The bit for groups in the number of [`Sizes`].
const GROUPS: u32 = 1 << 7;

impl From<Level> for Sizes {
    fn from(largest: Level) -> Self {
        Sizes::up_to(largest)
    }
}

/// Refuses a place that no group of leaves of tables of `level` can have.
pub(super) fn check_group<F: Format>(at: VirtAddr, level: Level) -> Result<(), MapError> {
    let page = 1u64 << group_shift::<F>(level);
    if !has_leaves::<F>(level) || page == size::<F>(level) {
        return Err(MapError::NoSuchSize { level, format: F::NAME });
    }
    if at.0 & (page - 1) != 0 { Err(MapError::Misaligned { at, page }) } else { Ok(()) }
}

/// Refuses a large page that the format does not have, or that is not aligned to its size.
fn check_large<F: Format>(va: u64, level: Level) -> Result<(), MapError> {
    if !has_leaves::<F>(level) {
        return Err(MapError::NoSuchSize { level, format: F::NAME });
    }
    let (at, page) = (VirtAddr(va), size::<F>(level));
    if va & (page - 1) != 0 {
        return Err(MapError::Misaligned { at, page });
    }
    if va >= F::USER_END || F::USER_END - va < page { Err(MapError::OutOfRange { at }) } else { Ok(()) }
}

/// Refuses frames that no leaf of a table of `level` can begin with.
pub(super) fn check_block<F: Format>(first: Pfn, level: Level) -> Result<(), MapError> {
    check_frames::<F>(first, 1 << (F::shift(level) - F::PAGE_SHIFT))?;
    if is_aligned::<F>(first, level) { Ok(()) } else { Err(MapError::BadFrame { first, format: F::NAME }) }
}

/// A part of a range that is mapped alike: `n` leaves of `level`.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    pub va: u64,
    pub first: Pfn,
    pub level: Level,
    pub n: u64,
    /// They are whole groups, with the hint.
    pub hint: bool,
}

impl Stretch {
    /// The longest one of the `left` bytes from `va` on, within one table, of the largest leaves of
    /// `sizes` that fit.
    fn of<F: Format>(va: u64, left: u64, first: Pfn, sizes: Sizes) -> Self {
        let Sizes { largest, groups } = sizes;
        let fits = |level: Level| {
            let size = size::<F>(level);
            has_leaves::<F>(level) && va & (size - 1) == 0 && is_aligned::<F>(first, level) && left >= size
        };
        let level = (1..=largest.0).rev().map(Level).find(|level| fits(*level)).unwrap_or(Level::PTE);
        // As far as no larger ones fit, or to the end of the table.
        let above = 1u64 << F::shift(Level(level.0 + 1));
        let mut bytes = (above - (va & (above - 1))).min(left);
        let (group, mut hint) = (1u64 << group_shift::<F>(level), false);
        if groups && group > size::<F>(level) {
            let place = va & (group - 1);
            if place != u64::from(first.0) << FRAME_SHIFT & (group - 1) {
                // No group of frames begins with one of addresses.
            } else if place != 0 {
                bytes = bytes.min(group - place);
            } else if bytes >= group {
                (bytes, hint) = (bytes & !(group - 1), true);
            }
        }
        Stretch { va, first, level, n: bytes >> F::shift(level), hint }
    }

    pub fn bytes<F: Format>(&self) -> u64 {
        self.n << F::shift(self.level)
    }
}

/// The stretches of `bytes` bytes from `va` on that are mapped to the frames from `first` on, in
/// order.
pub(super) fn stretches<F: Format>(
    mut va: u64,
    bytes: u64,
    mut first: Pfn,
    sizes: Sizes,
) -> impl Iterator<Item = Stretch> {
    let mut left = bytes;
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let stretch = Stretch::of::<F>(va, left, first, sizes);
        let bytes = stretch.bytes::<F>();
        (va, left) = (va.wrapping_add(bytes), left - bytes);
        first.0 = first.0.wrapping_add((bytes >> FRAME_SHIFT) as u32);
        Some(stretch)
    })
}

/// The tables that the parts of these stretches may need; `None` if there are not so many.
pub(super) fn needed_for<F: Format>(stretches: impl Iterator<Item = Stretch>) -> Option<u32> {
    u32::try_from(stretches.map(|s| s.n * u64::from(needed::<F>(s.level))).sum::<u64>()).ok()
}

impl<'a, F: Format, M: Machine> TreeMut<'a, F, M> {
    /// Maps a large page, a leaf of a table of `level`, to the frames from `pfn` on. It reserves
    /// the tables that it may be [split](Self::split) into. For [`Level::PTE`] this is
    /// [`map`](Self::map).
    ///
    /// An empty table in its place is given back.
    ///
    /// # Errors
    ///
    /// [`MapError`]; the tree is unchanged then.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each of the frames.
    pub unsafe fn map_large(
        &mut self,
        va: VirtAddr,
        level: Level,
        pfn: Pfn,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        if level == Level::PTE {
            // SAFETY: 1. by the caller.
            return unsafe { self.map(va, pfn, attr, flags) };
        }
        check_large::<F>(va.0, level)?;
        check_block::<F>(pfn, level)?;
        F::expresses_in_tree(attr)?;
        flush_stale::<F, M>(&mut self.gather, va.0, va.0 + size::<F>(level))?;
        let stretch = Stretch { va: va.0, first: pfn, level, n: 1, hint: false };
        self.tables.taking().put_reserved(stretch, attr, flags, &mut self.gather)
    }

    /// Maps a [group](Format::GROUP_BITS), leaves of a table of `level` with the hint, to the
    /// frames from `first` on. Of large pages, it reserves the tables that they may be
    /// [split](Self::split) into. [`map_range_large`](Self::map_range_large) maps all groups of a
    /// range.
    ///
    /// An empty table in the place of a large page is given back.
    ///
    /// # Errors
    ///
    /// [`MapError`]; the tree is unchanged then. A hint that would lie is refused:
    /// [`MapError::NoSuchSize`] where tables of `level` have no groups, [`MapError::Misaligned`]
    /// and [`MapError::BadFrame`] for an address or frames that are not aligned to the size of all.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each of the frames.
    pub unsafe fn map_group(
        &mut self,
        va: VirtAddr,
        level: Level,
        first: Pfn,
        attr: Attr,
        flags: AllocFlags,
    ) -> Result<(), MapError> {
        check_group::<F>(va, level)?;
        let bytes = 1u64 << group_shift::<F>(level);
        if va.0 >= F::USER_END || F::USER_END - va.0 < bytes {
            return Err(MapError::OutOfRange { at: va });
        }
        check_frames::<F>(first, bytes >> F::PAGE_SHIFT)?;
        if u64::from(first.0) << FRAME_SHIFT & (bytes - 1) != 0 {
            return Err(MapError::BadFrame { first, format: F::NAME });
        }
        F::expresses_in_tree(attr)?;
        flush_stale::<F, M>(&mut self.gather, va.0, va.0 + bytes)?;
        let n = bytes >> F::shift(level);
        let stretch = Stretch { va: va.0, first, level, n, hint: true };
        self.tables.taking().put_reserved(stretch, attr, flags, &mut self.gather)
    }

    /// Maps `range`, whole pages, to the frames from `first` on, with the largest leaves of tables
    /// of `sizes` that addresses and frames are aligned for: with [`Level::PTE`] it maps
    /// pages alone, and with [groups](Sizes::with_groups) each whole group has the hint. Tables for
    /// all that may be split are reserved at once.
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
    /// use ptarmigan::table::{Free, Tree};
    ///
    /// let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL)?;
    /// let mut edit = tree.edit(on)?;
    /// let range = VirtRange::fixed::<0x1f_f000, 0x60_1000>();
    /// // SAFETY: no program runs in this space.
    /// unsafe { edit.map_range_large(range, Pfn(0x10_01ff), Attr::READ, Level(1))? };
    /// edit.flush();
    /// let mut sizes = Vec::new();
    /// tree.view().walk_leaves(on, range, |leaf| sizes.push(leaf.shift))?;
    /// assert_eq!(sizes, [12, 21, 21, 12]);
    /// assert_eq!(tree.query(on, VirtAddr(0x20_3000)), Some((Pfn(0x10_0203), Attr::READ)));
    ///
    /// // One page less: no table is needed that was not reserved.
    /// let page = VirtRange::fixed::<0x20_3000, 0x20_4000>();
    /// tree.edit(on)?.unmap_range(page, Free::Empty, |_, frame, _| assert_eq!(frame, Pfn(0x10_0203)));
    /// assert_eq!(tree.query(on, VirtAddr(0x20_3000)), None);
    /// assert_eq!(tree.query(on, VirtAddr(0x20_4000)), Some((Pfn(0x10_0204), Attr::READ)));
    /// tree.end(on, |_, _, _| {}).map_err(|refused| refused.error)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MapError`] with everything unmapped again that this call had mapped.
    ///
    /// # Safety
    ///
    /// 1. As for [`map`](Self::map), for each page and its frame.
    pub unsafe fn map_range_large(
        &mut self,
        range: VirtRange,
        first: Pfn,
        attr: Attr,
        sizes: impl Into<Sizes>,
    ) -> Result<(), MapError> {
        let sizes: Sizes = sizes.into();
        let largest = sizes.largest;
        if range.end > F::USER_END {
            return Err(MapError::OutOfRange { at: VirtAddr(F::USER_END.max(range.start)) });
        }
        let page = 1u64 << F::PAGE_SHIFT;
        if let Some(at) = [range.start, range.end].into_iter().find(|at| at & (page - 1) != 0) {
            return Err(MapError::Misaligned { at: VirtAddr(at), page });
        }
        check_frames::<F>(first, range.len() >> F::PAGE_SHIFT)?;
        F::expresses_in_tree(attr)?;
        if !has_leaves::<F>(largest) {
            return Err(MapError::NoSuchSize { level: largest, format: F::NAME });
        }
        flush_stale::<F, M>(&mut self.gather, range.start, range.end)?;
        let on = self.gather.on();
        let stretches = || stretches::<F>(range.start, range.len(), first, sizes);
        let Some(wanted) = needed_for::<F>(stretches()) else {
            return Err(NoFrame::new(0, on.node(), on.frames().node_free(on.node())).into());
        };
        if wanted > 0 {
            self.tables.taking().reserve.raise::<F, M>(on, wanted)?;
        }
        let mut left = wanted;
        for stretch in stretches() {
            let Stretch { va, first, level, n, hint } = stretch;
            let put = if level == Level::PTE && !hint {
                let range = VirtRange::ordered(va, va + stretch.bytes::<F>());
                // SAFETY: 1. by the caller, for a part of the pages.
                unsafe { self.map_range(range, first, attr) }
            } else {
                let tables = self.tables.taking();
                tables.put_stretch::<M, true>(stretch, attr, AllocFlags::NORMAL, &mut self.gather)
            };
            if let Err(e) = put {
                // Mapped pages give their part of the reserve up when they are unmapped.
                self.tables.taking().reserve.lower::<F, M>(on, left);
                self.roll_back(range.start, va);
                return Err(e);
            }
            left -= n as u32 * needed::<F>(level);
        }
        Ok(())
    }

    /// Splits the page that maps `va` until it is a leaf of a table of `level` or lower, and takes
    /// the hint from a group of leaves of `level`. Mappings stay as they are. Operations on parts
    /// of large pages and groups do it themselves.
    ///
    /// # Errors
    ///
    /// [`TlbRefusal`] if the architecture demands a [break](Format::needs_break) in the middle of a
    /// flush of this CPU.
    pub fn split(&mut self, va: VirtAddr, level: Level) -> Result<(), TlbRefusal> {
        self.tables.taking().split_down(va.0, level, &mut self.gather)
    }

    /// Puts a large page, a leaf of a table of `level`, in the place of the table of its parts.
    /// They map frames that follow each other, the first one aligned to the size of the large page,
    /// with the same attributes but for bits that MMUs set. It is accessed or dirty if one of them
    /// was.
    ///
    /// Everything that was changed so far is flushed, and accesses fault meanwhile. A page that is
    /// as large already, or larger, stays.
    ///
    /// # Errors
    ///
    /// [`CollapseError`]; the pages are mapped as they were.
    pub fn collapse(&mut self, va: VirtAddr, level: Level) -> Result<(), CollapseError> {
        if level == Level::PTE {
            return Err(CollapseError::BadPlace(MapError::NoSuchSize { level, format: F::NAME }));
        }
        check_large::<F>(va.0, level).map_err(CollapseError::BadPlace)?;
        self.tables.taking().collapse(va.0, level, &mut self.gather)
    }

    /// Makes a [group](Format::GROUP_BITS) of existing leaves of a table of `level`, from `va` on:
    /// gives each the hint. They map frames that follow each other, the first one aligned to the
    /// size of all, with the same attributes but for bits that MMUs set. All are accessed or dirty
    /// if one of them was.
    ///
    /// Where the architecture demands a [break](Format::needs_break), everything that was changed
    /// so far is flushed, and accesses fault meanwhile. A group, or a larger page, stays.
    ///
    /// # Errors
    ///
    /// [`CollapseError`]; the leaves are as they were.
    pub fn make_group(&mut self, va: VirtAddr, level: Level) -> Result<(), CollapseError> {
        check_group::<F>(va, level).map_err(CollapseError::BadPlace)?;
        if va.0 >= F::USER_END {
            return Err(CollapseError::BadPlace(MapError::OutOfRange { at: va }));
        }
        self.tables.taking().make_group(va.0, level, &mut self.gather)
    }

    /// Clears all entries in `range` as [`unmap_range`](Self::unmap_range) does, and calls `leaf`
    /// once for each, large pages and groups among them.
    pub fn unmap_leaves(&mut self, range: VirtRange, free: Free, mut leaf: impl FnMut(Mapped)) {
        self.tables.taking().unmap_sizes(range, free, &mut self.gather, |_, level, va, raw| {
            leaf(Mapped::of::<F>(level, va, raw));
        });
    }

    /// Splits down to the page at `va`, if that is a part of a large one; returns its leaf table
    /// then.
    #[cold]
    #[inline(never)]
    pub(super) fn page_of_large(&mut self, va: u64) -> Option<Node<'a, F, M::Window>> {
        if !self.tables.may_be_large() {
            return None;
        }
        self.split(VirtAddr(va), Level::PTE).ok()?;
        self.tables.find(self.gather.on(), va, Level::PTE)
    }

    /// Takes the hint from the page at `va`; false if this CPU cannot flush now.
    #[cold]
    #[inline(never)]
    pub(super) fn unfold_page(&mut self, va: u64) -> bool {
        self.tables.unfold(va, Level::PTE, &mut self.gather).is_ok()
    }

    /// Unmaps the page at `va` if it is a part of a large one.
    #[cold]
    #[inline(never)]
    pub(super) fn unmap_in_large(&mut self, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.page_of_large(va.0)?;
        self.unmap(va)
    }
}

impl<F: Format> Tables<F> {
    /// Maps a stretch of one table, large pages or whole groups. It reserves the tables that they
    /// may be split into. On failure the tables are as before.
    #[inline(never)]
    pub(super) fn put_reserved<M: Machine>(
        &mut self,
        stretch: Stretch,
        attr: Attr,
        flags: AllocFlags,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), MapError> {
        let (on, n) = (gather.on(), stretch.n as u32 * needed::<F>(stretch.level));
        if n > 0 {
            self.reserve.raise::<F, M>(on, n)?;
        }
        let put = self.put_stretch::<M, false>(stretch, attr, flags, gather);
        if put.is_err() && n > 0 {
            self.reserve.lower::<F, M>(on, n);
        }
        put
    }

    /// Maps a stretch of one table, large pages or whole groups. Tables that it may need have been
    /// reserved. On failure the tables are as before. `RANGE` says that it is one of many: their
    /// code is a copy of its own, in line.
    fn put_stretch<M: Machine, const RANGE: bool>(
        &mut self,
        stretch: Stretch,
        attr: Attr,
        flags: AllocFlags,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), MapError> {
        let (on, Stretch { va, first, level, n, hint }) = (gather.on(), stretch);
        if level > Level::PTE {
            return self.put_large::<M, RANGE>((va, level), (n as usize, hint), first, attr, flags, gather);
        }
        let node = self.leaf_table::<M, false>(on, va, flags);
        let node = node.map_err(|e| MapError::no_table(e, VirtAddr(va)))?;
        let from = F::index(Level::PTE, va);
        if let Some(i) = (0..n as usize).find(|i| !F::is_none(node.load(from + i))) {
            return Err(MapError::Occupied { at: VirtAddr(va + ((i as u64) << F::PAGE_SHIFT)) });
        }
        on.before_mapped::<F>(attr, first, n);
        self.reserve.note_groups();
        let mut pfn = first;
        node.put_run(from, n as usize, || {
            let raw = F::leaf(Level::PTE, pfn, attr);
            pfn = Pfn(pfn.0.wrapping_add(1 << F::PAGE_ORDER));
            F::hinted(Level::PTE, raw)
        });
        gather.became_valid(self.take_linked::<M>(), va, n, node.load(from));
        Ok(())
    }
}
