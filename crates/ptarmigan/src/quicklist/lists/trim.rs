//! Giving pages back to the allocator: what is beyond the limit, what nobody needs, what others need more.
//!
//! One call gives back at most [`BOUNDED`] pages (I6), whatever is to be done: pages leave a depot in pieces of that size, also
//! where magazines of 64 came in; a depot that is over its limit by more is trimmed by the calls that follow, each of
//! which sees that it is. They are detached under the lock and unmade outside it (REQ-15).
use super::super::check::Check;
use super::super::{Construct, Level};
use super::{BOUNDED, CLASSES, Quicklists, REST, TOP};
use crate::cpu::{NodeId, Pinned};
use crate::window::Window;

impl<W: Window, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// A level of the class, for pages whose own level is no longer known.
    pub(super) fn level_of(&self, class: usize) -> Level {
        if class == TOP { self.top } else { Level::PTE }
    }

    /// Gives back at most [`BOUNDED`] pages of shelves that hold more than they may. Two loads each where none does.
    #[inline]
    pub(super) fn trim(&self, pin: &Pinned<'_>) {
        let shelves = &self.shelves[pin.node().0 as usize];
        if shelves[TOP].is_over() || shelves[REST].is_over() {
            for (class, shelf) in shelves.iter().enumerate() {
                let mut items = [0; BOUNDED / CLASSES];
                let n = shelf.shed_excess(&mut items);
                self.unmake_all(pin, class, &items[..n]);
            }
        }
    }

    /// Gives back up to `want` (at most [`BOUNDED`]) pages of a shelf; how many.
    #[cold]
    pub(super) fn shed(&self, pin: &Pinned<'_>, node: NodeId, class: usize, want: usize) -> u32 {
        let mut items = [0; BOUNDED];
        let want = want.min(BOUNDED);
        let n = self.shelf(node, class).shed(&mut items[..want]);
        self.unmake_all(pin, class, &items[..n])
    }

    /// An interval has passed: gives back up to [`BOUNDED`] pages of this node that nobody needed in it; how many.
    pub(super) fn reap(&self, pin: &Pinned<'_>) -> u32 {
        let mut freed = 0;
        for class in [TOP, REST] {
            let mut items = [0; BOUNDED / CLASSES];
            let n = self.shelf(pin.node(), class).reap(&mut items);
            freed += self.unmake_all(pin, class, &items[..n]);
        }
        freed
    }

    /// The shrinker: gives back up to `want` pages of a node, as many calls' worth as it takes; how many.
    pub(super) fn shrink(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        let mut freed = 0;
        for class in [REST, TOP] {
            while freed < want {
                let n = self.shed(pin, node, class, (want - freed) as usize);
                freed += n;
                if n == 0 {
                    break;
                }
            }
        }
        freed
    }

    pub(super) fn unmake_all(&self, pin: &Pinned<'_>, class: usize, items: &[u32]) -> u32 {
        for item in items {
            self.unmake(pin, class, self.level_of(class), *item);
        }
        items.len() as u32
    }
}
