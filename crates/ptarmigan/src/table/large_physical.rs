//! Leaves of every size for areas of physical memory in spaces: where one fits, and puts it there.
//!
//! They hold no references, and each has the tables reserved that it may be split into. They are
//! put by a caller that has the tables for itself: once for 2 MiB, or 1 GiB (x86-64). So no fault
//! meets a group, or a large page of another size, that is only half there.
use super::group::{group_shift, is_hinted, leaf_shift};
use super::large::has_leaves;
use super::node::Node;
use super::sizes::{Sizes, Stretch};
use super::tables::{Tables, descend};
use crate::addr::{PhysAddr, VirtRange};
use crate::format::{Attr, Entry, Format};
use crate::frames::{AllocFlags, FrameMeta};
use crate::gather::Gather;
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::window::OpenWindow;

/// Addresses that show physical memory, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Shown {
    /// The addresses.
    pub range: VirtRange,
    /// What the first of them shows.
    pub at: PhysAddr,
    /// The sizes of leaves for them.
    pub sizes: Sizes,
}

impl Shown {
    /// The stretches larger than a page that could show `va`, an address of the range: the leaf and
    /// the group of each size that lies in the range, and whose memory is aligned as its addresses
    /// are; the largest first.
    fn larger<F: Format>(self, va: u64) -> impl Iterator<Item = Stretch> {
        let levels = (0..=self.sizes.largest.0).rev().map(Level).filter(|level| has_leaves::<F>(*level));
        levels.flat_map(|level| [(level, true), (level, false)]).filter_map(move |(level, hint)| {
            let shift = if hint { group_shift::<F>(level) } else { F::shift(level) };
            let smaller = if hint { F::shift(level) } else { F::PAGE_SHIFT };
            if shift == smaller || hint && !self.sizes.has_groups() {
                return None;
            }
            let bytes = 1u64 << shift;
            let va = va & !(bytes - 1);
            if va < self.range.start || self.range.end - va < bytes {
                return None;
            }
            let at = self.at.0.wrapping_add(va - self.range.start);
            let stretch =
                Stretch { va, first: PhysAddr(at).pfn(), level, n: 1 << (shift - F::shift(level)), hint };
            (at & (bytes - 1) == 0).then_some(stretch)
        })
    }
}

/// Whether a table below the root has no entries, as far as its record tells.
fn is_bare<F: Format, W: OpenWindow>(node: &Node<'_, F, W>) -> bool {
    let unused = |record: &FrameMeta| match record.is_counted() {
        true => record.live() == 0,
        false => record.touched() == 0,
    };
    node.record().is_some_and(unused)
}

/// A leaf, or the entry of a group, that maps an address.
pub(crate) struct LeafAt {
    /// The level of its table.
    pub level: Level,
    /// The entry.
    pub raw: u64,
    /// The addresses of the leaf, or of the whole group.
    pub range: VirtRange,
    /// Whether it is one of a group.
    pub hint: bool,
}

impl LeafAt {
    /// Whether it is a page alone.
    pub fn is_plain(&self) -> bool {
        self.level == Level::PTE && !self.hint
    }
}

impl<F: Format> Tables<F> {
    /// The leaf that maps `va`; `None` if there is none.
    pub fn leaf_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<LeafAt> {
        let (level, raw) = self.lookup(on, va)?;
        let bytes = 1u64 << leaf_shift::<F>(level, raw);
        let start = va & !(bytes - 1);
        let range = VirtRange::ordered(start, start + bytes);
        Some(LeafAt { level, raw, range, hint: is_hinted::<F>(level, raw) })
    }

    /// The end of the leaf that maps `va`, or of the page if there is none.
    pub fn end_of_leaf<M: Machine>(&self, on: On<'_, M>, va: u64) -> u64 {
        let leaf = if self.may_be_large() { self.leaf_at(on, va) } else { None };
        leaf.map_or((va | ((1 << F::PAGE_SHIFT) - 1)) + 1, |leaf| leaf.range.end)
    }

    /// Whether nothing is mapped in the place of a stretch. Tables without entries are in nobody's
    /// way, as far as it is known that they have none.
    fn is_free<M: Machine>(&self, on: On<'_, M>, stretch: &Stretch) -> bool {
        let &Stretch { va, level, n, .. } = stretch;
        let end = descend::<F, _>(on.window(), self.root(), Self::ROOT, va, level);
        let node = self.node(on, end.level, end.at);
        let first = F::index(end.level, va);
        let n = if end.level == level { n as usize } else { 1 };
        (first..first + n).all(|index| match node.entry(index) {
            Entry::None => true,
            Entry::Leaf => false,
            Entry::Link(table) => is_bare(&self.node(on, Level(end.level.0 - 1), table)),
        })
    }

    /// Whether a leaf larger than a page, or a group, could show `va`, where nothing is mapped.
    pub fn may_be_whole<M: Machine>(&self, on: On<'_, M>, va: u64, shown: &Shown) -> bool {
        shown.larger::<F>(va).any(|stretch| self.is_free(on, &stretch))
    }

    /// Maps the largest leaf, or group, that can show `va`, where nothing is mapped. The size below
    /// takes its place if there are no tables for its parts, or empty tables are in its way and
    /// this CPU cannot flush now. False if no more than a page can be mapped.
    #[cold]
    pub fn put_whole<M: Machine>(
        &mut self,
        va: u64,
        shown: &Shown,
        attr: Attr,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        for stretch in shown.larger::<F>(va) {
            if self.is_free(gather.on(), &stretch)
                && self.put_reserved(stretch, attr, AllocFlags::NORMAL, gather).is_ok()
            {
                return true;
            }
        }
        false
    }
}
