//! Giving pages back to the allocator: what is beyond the limit, what nobody needs, what others need more.
//!
//! One call gives back at most [`BOUNDED`] pages (I6), whatever is to be done: pages leave a depot in pieces of that size, also
//! where magazines of 64 came in; a depot that is over its limit by more is trimmed by the calls that follow, each of
//! which sees that it is. They are detached under the lock and unmade outside it (REQ-15).
use super::super::check::Check;
use super::super::{Construct, Level};
use super::magazine::Hand;
use super::node::Shelf;
use super::{BOUNDED, CLASSES, Quicklists, REST, TOP};
use crate::cpu::{NodeId, Pinned};
use crate::window::Window;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

impl<W: Window, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// A level of the class, for pages whose own level is no longer known.
    pub(super) fn level_of(&self, class: usize) -> Level {
        if class == TOP { self.top } else { Level::PTE }
    }

    /// Gives back at most [`BOUNDED`] pages of this node's shelves that hold more than they may. One load where none does.
    #[inline]
    pub(super) fn trim(&self, pin: &Pinned<'_>) {
        if self.over.load(Relaxed) {
            self.trim_node(pin);
        }
    }

    #[cold]
    fn trim_node(&self, pin: &Pinned<'_>) {
        for (class, shelf) in self.shelves[pin.node().0 as usize].iter().enumerate() {
            let mut items = [0; BOUNDED / CLASSES];
            let n = shelf.shed_excess(&mut items);
            self.unmake_all(pin, class, &items[..n]);
        }
        // Whoever set a limit before this sees his limit below; who sets one after it sets the flag again.
        self.over.swap(false, Acquire);
        if self.shelves.iter().flatten().any(Shelf::is_over) {
            self.over.store(true, Relaxed);
        }
    }

    /// The CPU's magazines get the size that they should have by now: other CPUs may have come, and there may be fewer
    /// pages. Else those of a CPU that neither fills nor empties them would stay as they are.
    #[inline]
    pub(super) fn fit(&self, pin: &Pinned<'_>) {
        if self.cpus_per_node == 1 {
            return;
        }
        let Some(mut cpu) = self.cpus.enter(pin) else { return };
        let mut unlike = |class: usize| {
            let (stack, shelf) = (Hand::new(&mut cpu, class), self.shelf(pin.node(), class));
            stack.node() == Some(pin.node()) && stack.is_sized_unlike(shelf.magazine.load(Relaxed))
        };
        if unlike(TOP) || unlike(REST) {
            drop(cpu);
            self.refit(pin);
        }
    }

    #[cold]
    fn refit(&self, pin: &Pinned<'_>) {
        let Some(mut cpu) = self.cpus.enter(pin) else { return };
        for class in [TOP, REST] {
            let mut stack = Hand::new(&mut cpu, class);
            if stack.node() == Some(pin.node()) {
                self.resize(pin, &mut stack, class);
                stack.shed(|old| self.shelf(pin.node(), class).store(old));
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
