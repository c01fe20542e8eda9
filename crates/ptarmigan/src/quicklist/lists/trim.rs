//! Giving pages back to the allocator: what is beyond the limit, what nobody needs, what others need more.
//!
//! One call gives back at most [`BOUNDED`] pages (I6), whatever is to be done: pages leave a depot in pieces of that size, also
//! where magazines of 64 came in; a depot that is over its limit by more is trimmed by the calls that follow, each of
//! which sees that it is. They are detached under the lock and unmade outside it (REQ-15).
use super::super::check::Check;
use super::call::Call;
use super::magazine::Hand;
use super::node::Shelf;
use super::{BOUNDED, CLASSES, Quicklists, REST, TOP};
use crate::cpu::{NodeId, Pinned};
use crate::page::{Construct, Level};
use crate::window::Window;
use core::sync::atomic::Ordering::Relaxed;

impl<W: Window, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// A level of the class, for pages whose own level is no longer known.
    pub(super) fn level_of(&self, class: usize) -> Level {
        if class == TOP { self.top } else { Level::PTE }
    }

    /// Does what this CPU's node wants of it. A compare where that is nothing.
    #[inline]
    pub(super) fn answer(&self, pin: &Pinned<'_>) {
        let call = self.node(pin.node()).call.get();
        if call != self.shown(pin).answered.load(Relaxed) {
            self.answer_to(pin, call);
        }
    }

    #[cold]
    fn answer_to(&self, pin: &Pinned<'_>, call: u32) {
        if Call::is_over(call) {
            self.trim(pin);
        }
        let own = self.shown(pin);
        if Call::answered(call) != own.answered.load(Relaxed) && self.refit(pin) {
            own.answered.store(Call::answered(call), Relaxed);
        }
    }

    /// Gives back at most [`BOUNDED`] pages of this node's shelves that hold more than they may. As shelves take in no more than
    /// they may, that comes with a new limit only.
    fn trim(&self, pin: &Pinned<'_>) {
        let node = self.node(pin.node());
        for (class, shelf) in node.shelves.iter().enumerate() {
            let mut items = [0; BOUNDED / CLASSES];
            let n = shelf.shed_excess(&mut items);
            self.unmake_all(pin, class, &items[..n]);
        }
        node.call.trimmed();
        if node.shelves.iter().any(Shelf::is_over) {
            node.call.over();
        }
    }

    /// The CPU's magazines get the size that they should have by now: other CPUs may have come, or run short. Else those of a
    /// CPU that neither fills nor empties them would stay as they are. False if they are in use.
    fn refit(&self, pin: &Pinned<'_>) -> bool {
        let Some(mut cpu) = self.cpus.enter(pin) else { return false };
        for class in [TOP, REST] {
            let mut stack = Hand::new(&mut cpu, class);
            if stack.node() == Some(pin.node()) {
                self.resize(pin, &mut stack, class);
                stack.shed(|old| self.shelf(pin.node(), class).store(pin.cpu(), old));
            }
        }
        true
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
