//! Keeps a leaf table open for runs of operations on neighbouring pages.
use super::group::is_hinted;
use super::map_error::{MapError, check_frames};
use super::node::{NeedsBreak, Node, Use};
use super::tree::{TreeMut, flush_stale, with_attr};
use crate::addr::{Pfn, VirtAddr, VirtRange};
use crate::format::{Attr, Format, Inexpressible};
use crate::frames::AllocFlags;
use crate::machine::Machine;
use crate::page::Level;

/// Moves over a range page by page; walks from the root only when it enters another leaf table.
pub struct Cursor<'t, 'a, F: Format, M: Machine> {
    tree: &'t mut TreeMut<'a, F, M>,
    range: VirtRange,
    va: u64,
    /// The leaf table around `va`, if it has been looked up.
    leaf: Option<Node<'a, F, M::Window>>,
}

impl<'a, F: Format, M: Machine> TreeMut<'a, F, M> {
    /// A cursor over `range`, at its start; the range is cut to the user's addresses.
    pub fn cursor<'t>(&'t mut self, range: VirtRange) -> Cursor<'t, 'a, F, M> {
        let range = range.and(VirtRange::up_to(F::USER_END));
        Cursor { tree: self, range, va: range.start, leaf: None }
    }
}

impl<'a, F: Format, M: Machine> Cursor<'_, 'a, F, M> {
    /// Returns where it is.
    pub fn at(&self) -> VirtAddr {
        VirtAddr(self.va)
    }

    /// Whether the range is done with.
    pub fn is_done(&self) -> bool {
        self.va >= self.range.end
    }

    /// Goes to `va`, within the range.
    pub fn seek(&mut self, va: VirtAddr) {
        if (va.0 ^ self.va) >> F::shift(Level(1)) != 0 {
            self.leaf = None;
        }
        self.va = va.0.clamp(self.range.start, self.range.end);
    }

    /// Goes to the next page.
    pub fn advance(&mut self) {
        self.seek(VirtAddr(self.va.saturating_add(1 << F::PAGE_SHIFT)));
    }

    fn index(&self) -> usize {
        F::index(Level::PTE, self.va)
    }

    fn page(&self) -> VirtRange {
        let start = self.va & !((1 << F::PAGE_SHIFT) - 1);
        // A cursor that is done may be at the last page there is.
        VirtRange::ordered(start, start.saturating_add(1 << F::PAGE_SHIFT))
    }

    fn node(&mut self) -> Option<&Node<'a, F, M::Window>> {
        if self.is_done() {
            return None;
        }
        if self.leaf.is_none() {
            self.leaf = self.tree.tables.find(self.tree.gather.on(), self.va, Level::PTE);
        }
        self.leaf.as_ref()
    }

    /// As [`node`](Self::node), for a page that is to change: a large one is split for it, and a
    /// group unfolded.
    fn node_of_page(&mut self) -> Option<&Node<'a, F, M::Window>> {
        if self.is_done() {
            return None;
        }
        if self.node().is_none() {
            self.leaf = self.tree.page_of_large(self.va);
        }
        if self.tree.tables.may_be_groups() && !self.tree.unfold_page(self.va) {
            return None;
        }
        self.leaf.as_ref()
    }

    /// Returns the mapping here.
    pub fn query(&mut self) -> Option<(Pfn, Attr)> {
        let index = self.index();
        let Some(node) = self.node() else {
            // It may be a part of a large page.
            return if self.is_done() { None } else { self.tree.query(VirtAddr(self.va)) };
        };
        let raw = node.load(index);
        if is_hinted::<F>(Level::PTE, raw) {
            return self.tree.query(VirtAddr(self.va));
        }
        (!F::is_none(raw)).then(|| (F::frame(Level::PTE, raw), F::attr(Level::PTE, raw)))
    }

    /// Maps a page here and goes to the next.
    ///
    /// # Errors
    ///
    /// [`MapError`]; the tree is unchanged then.
    ///
    /// # Safety
    ///
    /// 1. As for [`TreeMut::map`].
    pub unsafe fn map(&mut self, pfn: Pfn, attr: Attr, flags: AllocFlags) -> Result<(), MapError> {
        let here = VirtAddr(self.va);
        if self.is_done() {
            return Err(MapError::OutOfRange { at: here });
        }
        check_frames::<F>(pfn, 1)?;
        F::expresses_in_tree(attr)?;
        let index = self.index();
        if self.node().is_none() {
            let on = self.tree.gather.on();
            let node = self.tree.tables.leaf_table::<M, false>(on, self.va, flags);
            self.leaf = Some(node.map_err(|e| MapError::no_table(e, here))?);
        }
        let Some(node) = &self.leaf else { return Err(MapError::OutOfRange { at: here }) };
        if !F::is_none(node.load(index)) {
            return Err(MapError::Occupied { at: here });
        }
        let (raw, page) = (F::leaf(Level::PTE, pfn, attr), self.page());
        flush_stale::<F, M>(&mut self.tree.gather, page.start, page.end)?;
        self.tree.gather.on().before_mapped::<F>(attr, pfn, 1);
        node.put(index, raw);
        self.tree.gather.became_valid(self.tree.tables.take_linked::<M>(), page.start, 1, raw);
        self.advance();
        Ok(())
    }

    /// Changes the attributes of the page here; returns the old ones. Stays. Bits that MMUs set
    /// meanwhile are kept. Of changes that need a break see [`TreeMut::protect`].
    ///
    /// # Errors
    ///
    /// [`Inexpressible`] if entries of a tree cannot have `attr`; the page is unchanged then.
    pub fn protect(&mut self, attr: Attr) -> Result<Option<Attr>, Inexpressible> {
        F::expresses_in_tree(attr)?;
        Ok(self.change_here(attr))
    }

    fn change_here(&mut self, attr: Attr) -> Option<Attr> {
        let (index, page) = (self.index(), self.page());
        let (on, others) = (self.tree.gather.on(), Use::private(self.tree.gather.is_private()));
        let node = self.node_of_page()?;
        let seen = node.load(index);
        if F::is_none(seen) {
            return None;
        }
        let change = |raw| with_attr::<F>(seen, raw, attr);
        on.before_changed::<F>(Level::PTE, seen, change(seen));
        let old = match node.update(index, others, change) {
            Ok(old) => {
                self.tree.gather.changed_entry::<F>(page.start, old);
                old
            }
            Err(NeedsBreak) => self.tree.tables.change_broken(page.start, &mut self.tree.gather, change)?,
        };
        Some(F::attr(Level::PTE, old))
    }

    /// Unmaps the page here, keeping its table, and goes to the next.
    pub fn unmap(&mut self) -> Option<(Pfn, Attr)> {
        let (index, page) = (self.index(), self.page());
        let others = Use::private(self.tree.gather.is_private());
        let old = self.node_of_page().and_then(|node| node.take(index, others));
        self.advance();
        let old = old?;
        self.tree.gather.changed_entry::<F>(page.start, old);
        Some((F::frame(Level::PTE, old), F::attr(Level::PTE, old)))
    }
}
