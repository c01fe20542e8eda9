//! Giving pages back to the allocator: those beyond the limit, those that nobody needs, those that
//! others need more.
//!
//! One call gives back at most [`BOUNDED`] pages, whatever is to be done. Pages leave a depot in
//! pieces of that size, also where magazines of 64 came in. A depot that is over its limit by more
//! is trimmed by the calls that follow, each of which sees that it is. Pages are detached under the
//! lock and unmade outside it.
use super::super::check::Check;
use super::super::here::HereCopy;
use super::classes::{EACH_CLASS, ROOT};
use super::depot::Depot;
use super::doorbell::Doorbell;
use super::magazine::Magazines;
use super::{BOUNDED, MAGAZINE, Quicklists};
use crate::cpu::NodeId;
use crate::page::{Construct, Level};
use crate::window::OpenWindow;
use core::sync::atomic::Ordering::Relaxed;

impl<W: OpenWindow, C: Construct, K: Check> Quicklists<'_, W, C, K> {
    /// Returns a level of the class, for pages whose own level is no longer known.
    fn level_of(&self, class: usize) -> Level {
        if class == ROOT { self.root } else { Level::PTE }
    }

    /// Responds to this CPU's node. A compare if the node has no request.
    #[inline]
    pub(super) fn respond(&self, here: &HereCopy<'_>) {
        let word = self.node(here.node()).doorbell.get();
        if word != self.shown(here).responded.load(Relaxed) {
            self.respond_to(here, word);
        }
    }

    #[cold]
    fn respond_to(&self, here: &HereCopy<'_>, word: u32) {
        if Doorbell::is_over_limit(word) {
            self.trim(here);
        }
        let own = self.shown(here);
        if Doorbell::responded(word) != own.responded.load(Relaxed) && self.refit(here) {
            own.responded.store(Doorbell::responded(word), Relaxed);
        }
    }

    /// Gives back at most [`BOUNDED`] pages of this node's depots that are over their limit. As
    /// depots take in no more than they may hold, only a new limit makes that so.
    fn trim(&self, here: &HereCopy<'_>) {
        self.give_back_from(here, BOUNDED, |class, into| self.depot(here.node(), class).shed_excess(into));
        let node = self.node(here.node());
        node.doorbell.clear_over_limit();
        if node.depots().any(Depot::is_over) {
            node.doorbell.ring_over_limit();
        }
    }

    /// Gives the CPU's magazines the size that they should have by now: other CPUs may have come,
    /// or run short. Otherwise a CPU that neither fills nor empties its magazines would keep the
    /// old size. Returns false if they are in use.
    fn refit(&self, here: &HereCopy<'_>) -> bool {
        let Some(mut cpu) = self.enter(here) else { return false };
        for class in EACH_CLASS {
            let mut magazines = Magazines::new(&mut cpu, class);
            if magazines.node() == Some(here.node()) {
                self.resize(here, &mut magazines, class);
                magazines.store_excess(|old| self.depot(here.node(), class).store(here.cpu(), old));
            }
        }
        true
    }

    /// Has `detach` move pages of each class out of where they are kept, and gives them back: at
    /// most `want`, and at most [`BOUNDED`] in all. Returns how many. Every class is asked, also
    /// with no room left.
    fn give_back_from(
        &self,
        here: &HereCopy<'_>,
        want: usize,
        mut detach: impl FnMut(usize, &mut [u32]) -> usize,
    ) -> u32 {
        let mut left = want.min(BOUNDED);
        let mut given = 0;
        for class in EACH_CLASS {
            let mut items = [0; BOUNDED];
            let n = detach(class, &mut items[..left]);
            left -= n;
            given += self.unmake_all(here, class, &items[..n]);
        }
        given
    }

    /// Gives back up to `want` pages that a node keeps, at most [`BOUNDED`]. Returns how many.
    #[cold]
    pub(super) fn give_back(&self, here: &HereCopy<'_>, node: NodeId, want: u32) -> u32 {
        self.give_back_from(here, want as usize, |class, into| self.depot(node, class).shed(into))
    }

    /// Ends an interval for the caller's node: gives back up to [`BOUNDED`] pages that nobody
    /// needed in it. Returns how many.
    pub(super) fn end_interval_here(&self, here: &HereCopy<'_>) -> u32 {
        self.give_back_from(here, BOUNDED, |class, into| self.depot(here.node(), class).end_interval(into).1)
    }

    /// Gives back up to `want` pages of a node, in as many pieces as it takes. Returns how many.
    pub(super) fn reclaim_from(&self, here: &HereCopy<'_>, node: NodeId, want: u32) -> u32 {
        let mut given = 0;
        while given < want {
            let n = self.give_back(here, node, want - given);
            given += n;
            if n == 0 {
                break;
            }
        }
        given
    }

    /// Gives back all that this CPU holds.
    pub(super) fn drain_here(&self, here: &HereCopy<'_>) {
        for class in EACH_CLASS {
            let mut items = [0; 2 * MAGAZINE];
            let Some((_, n)) = self.take_all(here, class, &mut items) else { continue };
            self.unmake_all(here, class, &items[..n]);
        }
    }

    /// Moves all that a CPU has at hand of a class to `into`. It takes no part until it has some
    /// again. Returns the node that the pages are of, which is where the CPU was when it got them,
    /// and how many there are. `None` if the CPU took no part, or its magazines are in use.
    pub(super) fn take_all(
        &self,
        here: &HereCopy<'_>,
        class: usize,
        into: &mut [u32; 2 * MAGAZINE],
    ) -> Option<(NodeId, usize)> {
        let mut cpu = self.enter(here)?;
        let mut magazines = Magazines::new(&mut cpu, class);
        let node = magazines.node()?;
        self.leave(&magazines, class);
        Some((node, magazines.take_all(into)))
    }

    /// Gives pages of a class back to the allocator. Returns how many there were.
    pub(super) fn unmake_all(&self, here: &HereCopy<'_>, class: usize, items: &[u32]) -> u32 {
        if class == ROOT && items.len() > 1 {
            self.unmake_roots(here, items);
        } else {
            for item in items {
                self.unmake(here, class, self.level_of(class), *item);
            }
        }
        items.len() as u32
    }
}
