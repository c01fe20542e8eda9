//! Direct access for callers that manage the lists themselves, such as a page pool: try a hit only,
//! hand pages over, return pages that nobody needed.
use super::super::check::Check;
use super::super::{PolicyOn, Returned};
use super::classes::{EACH_CLASS, ROOT, ZERO};
use super::{MAGAZINE, Quicklists};
use crate::cpu::NodeId;
use crate::page::{Clean, Construct, Level};
use crate::window::OpenWindow;

impl<'m, W: OpenWindow, C: Construct, K: Check> PolicyOn<'_, Quicklists<'m, W, C, K>> {
    /// Hands out a page from this CPU's magazines, in the state of `level`; `None` if they are
    /// empty or in use, or trees have no such level.
    #[inline]
    pub fn at_hand(self, level: Level) -> Option<Clean> {
        let lists = self.policy();
        if level == lists.root {
            lists.take_at_hand(&self.here().copied(), ROOT, level)
        } else if level < lists.root {
            lists.take_at_hand(&self.here().copied(), ZERO, level)
        } else {
            None
        }
    }

    /// Hands out a root table as [`at_hand`](Self::at_hand) does, for callers that know at compile
    /// time that `top` is its level.
    ///
    /// ```compile_fail,E0133
    /// use ptarmigan::page::{Clean, Construct, Level};
    /// use ptarmigan::quicklist::{PolicyOn, Quicklists};
    /// use ptarmigan::window::OpenWindow;
    /// fn take<W: OpenWindow, C: Construct>(here: PolicyOn<'_, Quicklists<'_, W, C>>) -> Option<Clean> {
    ///     here.root_at_hand(Level::PTE) // are roots of this level?
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// 1. `top` must be the level of root tables in the layout that the lists were made for.
    #[inline]
    pub unsafe fn root_at_hand(self, top: Level) -> Option<Clean> {
        debug_assert_eq!(top, self.policy().root);
        self.policy().take_at_hand(&self.here().copied(), ROOT, top)
    }

    /// Puts a root table that no TLB knows into this CPU's magazines.
    ///
    /// # Errors
    ///
    /// The page, if it is another node's, or the magazines are full or in use:
    /// [`free_unlinked`](PolicyOn::free_unlinked) takes it always.
    ///
    /// # Safety
    ///
    /// 1. The page must have come from this policy, as a root table.
    #[inline]
    pub unsafe fn top_to_hand(self, page: Clean) -> Result<(), Clean> {
        debug_assert_eq!(page.level(), self.policy().root);
        let here = &self.here().copied();
        // SAFETY: 1. by the caller, for both.
        let put = unsafe { self.policy().put_at_hand::<ROOT>(here, Returned::new(page)) };
        put.map_err(Returned::into_inner)
    }

    /// Moves the pages of this CPU's magazines to the nodes' depots, for other CPUs to use. Pages
    /// for which the depots have no room go back to the allocator.
    pub fn hand_over(self) {
        let (lists, here) = (self.policy(), &self.here().copied());
        for class in EACH_CLASS {
            let mut items = [0; 2 * MAGAZINE];
            let Some((node, n)) = lists.take_all(here, class, &mut items) else { continue };
            let left = lists.depot(node, class).store(here.cpu(), &items[..n]);
            lists.unmake_all(here, class, &items[left..n]);
        }
    }

    /// Gives back pages that a node keeps, as many as there is room for in `room`, those first that
    /// have lain there longest. Returns how many it gave.
    ///
    /// They leave the depot in one piece, under its lock, however large that is; root tables are
    /// destructed together ([`Construct::destruct_all`]).
    pub fn give_back_piece(self, node: NodeId, room: &mut [u32]) -> u32 {
        let (lists, here) = (self.policy(), &self.here().copied());
        if !lists.has(node) {
            return 0;
        }
        let mut given = 0;
        for class in EACH_CLASS {
            let free = &mut room[given as usize..];
            let n = lists.depot(node, class).shed(free);
            given += lists.unmake_all(here, class, &free[..n]);
        }
        given
    }
}

impl<W: OpenWindow, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// Ends an interval of a node's depots and begins the next. Returns how many pages they held
    /// all through the one that ends: nobody needed them. None for a node that there is not.
    pub fn unneeded(&self, node: NodeId) -> u32 {
        if !self.has(node) {
            return 0;
        }
        self.node(node).depots().map(|depot| depot.end_interval(&mut []).0 as u32).sum()
    }

    /// Returns the number of pages in a node's depots and queue, without those in magazines of its
    /// CPUs, or 0 if the node does not exist.
    pub fn in_depots(&self, node: NodeId) -> u32 {
        if !self.has(node) {
            return 0;
        }
        self.node(node).depots().map(|depot| depot.held() + depot.remote_held()).sum()
    }
}
