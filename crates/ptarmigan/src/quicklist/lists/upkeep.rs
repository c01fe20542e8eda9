//! For who decides more about the lists than a gather does: hits told from misses, and pages moved or given back because
//! of time, not need.
use super::super::check::Check;
use super::{BOUNDED, Quicklists, REST, TOP};
use crate::cpu::{NodeId, Pinned};
use crate::page::{Clean, Construct, Level};
use crate::window::Window;

impl<W: Window, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// A page from this CPU's magazines, in the state of `level`; `None` if they are empty or in use.
    #[inline(always)]
    pub fn at_hand(&self, pin: &Pinned<'_>, level: Level) -> Option<Clean> {
        if level == self.top {
            self.at_hand_in::<TOP>(pin, level)
        } else {
            self.at_hand_in::<REST>(pin, level)
        }
    }

    /// The same for who knows when it is compiled that `top` is the top level.
    #[inline(always)]
    pub fn top_at_hand(&self, pin: &Pinned<'_>, top: Level) -> Option<Clean> {
        debug_assert_eq!(top, self.top);
        self.at_hand_in::<TOP>(pin, top)
    }

    /// Puts a page of the top level, `top`, that no TLB knows into this CPU's magazines.
    ///
    /// # Errors
    ///
    /// The page, if it is another node's, or they are full or in use: [`Policy::unused`](crate::quicklist::Policy::unused)
    /// takes it always.
    #[inline(always)]
    pub fn top_to_hand(&self, pin: &Pinned<'_>, top: Level, page: Clean) -> Result<(), Clean> {
        debug_assert_eq!(top, self.top);
        self.to_hand::<TOP>(pin, top, page)
    }

    /// Leaves what this CPU's magazines hold to the nodes' depots, for other CPUs to use; what has no room there goes
    /// back to the allocator.
    pub fn hand_over(&self, pin: &Pinned<'_>) {
        for class in [TOP, REST] {
            let Some((node, items, n)) = self.take_all(pin, class) else { continue };
            let left = self.shelf(node, class).store(pin.cpu(), &items[..n]);
            self.unmake_all(pin, class, &items[left..n]);
        }
    }

    /// How many pages a node's depots held all the time since this was last asked: nobody needed them.
    pub fn unneeded(&self, node: NodeId) -> u32 {
        self.node(node).shelves.iter().map(|shelf| shelf.unneeded() as u32).sum()
    }

    /// Gives back up to `want` pages that a node keeps, at most 16 in one call, those first that have lain there
    /// longest; how many it gave.
    pub fn give_back(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        let mut given = 0;
        for class in [REST, TOP] {
            let want = (want - given).min(BOUNDED as u32 - given);
            given += self.shed(pin, node, class, want as usize);
        }
        given
    }

    /// Pages that a node keeps besides what its CPUs have at hand.
    pub fn in_depots(&self, node: NodeId) -> u32 {
        self.node(node).shelves.iter().map(|shelf| shelf.held() + shelf.came()).sum()
    }
}
