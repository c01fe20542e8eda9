//! Pages of all sizes in a tree.
use super::large::{has_leaves, is_aligned, size};
use super::map_error::{CollapseError, MapError, check_frames};
use super::mapped::Mapped;
use super::node::Node;
use super::reserve::needed;
use super::tree::{TreeMut, flush_stale};
use super::unmap::Free;
use crate::addr::{FRAME_SHIFT, Pfn, VirtAddr, VirtRange};
use crate::format::{Attr, Format};
use crate::frames::{AllocFlags, NoFrame};
use crate::machine::Machine;
use crate::page::Level;
use crate::tlb::TlbRefusal;

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
pub(super) struct Stretch {
    pub va: u64,
    pub first: Pfn,
    pub level: Level,
    pub n: u64,
}

impl Stretch {
    /// The longest one of the `left` bytes from `va` on, within one table if it is of large pages,
    /// of the largest leaves of tables of `largest` or lower that fit.
    fn of<F: Format>(va: u64, left: u64, first: Pfn, largest: Level) -> Self {
        let fits = |level: Level| {
            let size = size::<F>(level);
            has_leaves::<F>(level) && va & (size - 1) == 0 && is_aligned::<F>(first, level) && left >= size
        };
        let level = (1..=largest.0).rev().map(Level).find(|level| fits(*level)).unwrap_or(Level::PTE);
        // As far as no larger ones fit, or to the end of the table.
        let above = 1u64 << F::shift(Level(level.0 + 1));
        let bytes = (above - (va & (above - 1))).min(left);
        Stretch { va, first, level, n: bytes >> F::shift(level) }
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
    largest: Level,
) -> impl Iterator<Item = Stretch> {
    let mut left = bytes;
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let stretch = Stretch::of::<F>(va, left, first, largest);
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
        let tables = needed::<F>(level);
        self.tables.taking().reserve.raise::<F, M>(self.gather.on(), tables)?;
        let put = self.tables.taking().put_large((va.0, level), 1, pfn, attr, flags, &mut self.gather);
        if put.is_err() {
            self.tables.taking().reserve.lower::<F, M>(self.gather.on(), tables);
        }
        put
    }

    /// Maps `range`, whole pages, to the frames from `first` on, with the largest leaves of tables
    /// of `largest` or lower that addresses and frames are aligned for: with [`Level::PTE`] it maps
    /// pages alone. Tables for all that may be split are reserved at once.
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
    /// let range = VirtRange { start: 0x1f_f000, end: 0x60_1000 };
    /// // SAFETY: no program runs in this space.
    /// unsafe { edit.map_range_large(range, Pfn(0x10_01ff), Attr::READ, Level(1))? };
    /// edit.flush();
    /// let mut sizes = Vec::new();
    /// tree.view().walk_leaves(on, range, |leaf| sizes.push(leaf.shift))?;
    /// assert_eq!(sizes, [12, 21, 21, 12]);
    /// assert_eq!(tree.query(on, VirtAddr(0x20_3000)), Some((Pfn(0x10_0203), Attr::READ)));
    ///
    /// // One page less: no table is needed that was not reserved.
    /// let page = VirtRange { start: 0x20_3000, end: 0x20_4000 };
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
        largest: Level,
    ) -> Result<(), MapError> {
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
        let stretches = || stretches::<F>(range.start, range.len(), first, largest);
        let Some(wanted) = needed_for::<F>(stretches()) else {
            return Err(NoFrame::new(0, on.node(), on.frames().node_free(on.node())).into());
        };
        if wanted > 0 {
            self.tables.taking().reserve.raise::<F, M>(on, wanted)?;
        }
        let mut left = wanted;
        for stretch in stretches() {
            let Stretch { va, first, level, n } = stretch;
            let put = if level == Level::PTE {
                let range = VirtRange { start: va, end: va + stretch.bytes::<F>() };
                // SAFETY: 1. by the caller, for a part of the pages.
                unsafe { self.map_range(range, first, attr) }
            } else {
                let at = (va, level);
                self.tables.taking().put_large(
                    at,
                    n as usize,
                    first,
                    attr,
                    AllocFlags::NORMAL,
                    &mut self.gather,
                )
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

    /// Splits the page that maps `va` until it is a leaf of a table of `level` or lower. Mappings
    /// stay as they are. Operations on parts of large pages do it themselves.
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

    /// Clears all entries in `range` as [`unmap_range`](Self::unmap_range) does, and calls `leaf`
    /// once for each, large pages among them.
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

    /// Unmaps the page at `va` if it is a part of a large one.
    #[cold]
    #[inline(never)]
    pub(super) fn unmap_in_large(&mut self, va: VirtAddr) -> Option<(Pfn, Attr)> {
        self.page_of_large(va.0)?;
        self.unmap(va)
    }
}
