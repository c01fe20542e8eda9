//! For who decides more about the lists than a gather does: hits told from misses, and pages moved or given back because
//! of time, not need.
use super::{BOUNDED, CLASSES, MAGAZINE, Quicklists, TOP};
use crate::cpu::{NodeId, Pinned};
use crate::quicklist::{Clean, Construct, Level};
use crate::window::Window;
use core::sync::atomic::Ordering::Relaxed;

impl<W: Window, C: Construct> Quicklists<'_, W, C> {
    /// A page from this CPU's magazines, in the state of `level`; `None` if they are empty or in use.
    #[inline(always)]
    pub fn at_hand(&self, pin: &Pinned<'_>, level: Level) -> Option<Clean> {
        self.at_hand_in(pin, self.class(level), level)
    }

    /// The same for who knows when it is compiled that `top` is the top level.
    #[inline(always)]
    pub fn top_at_hand(&self, pin: &Pinned<'_>, top: Level) -> Option<Clean> {
        debug_assert_eq!(top, self.top);
        self.at_hand_in(pin, TOP, top)
    }

    #[inline(always)]
    fn at_hand_in(&self, pin: &Pinned<'_>, class: usize, level: Level) -> Option<Clean> {
        let mut stacks = self.stacks.enter(pin)?;
        let stack = &mut stacks[class];
        let n = stack.n.checked_sub(1)?;
        stack.n = n;
        let item = stack.items[n as usize & (2 * MAGAZINE - 1)];
        self.tallies.of(pin, level).allocs.add(1);
        let page = self.page(class, item);
        debug_assert!(
            class == TOP || self.source.is_zero(page.addr()),
            "page {} rested as zero and is not",
            page.addr()
        );
        Some(page)
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
        self.try_put(pin, TOP, page)?;
        self.tallies.of(pin, top).frees.add(1);
        Ok(())
    }

    /// Leaves what this CPU's magazines hold to the nodes' depots, for other CPUs to use; what has no room there goes
    /// back to the allocator.
    pub fn hand_over(&self, pin: &Pinned<'_>) {
        for class in 0..CLASSES {
            let Some(mut stacks) = self.stacks.enter(pin) else { return };
            let stack = &mut stacks[class];
            let (n, items) = (stack.n as usize, stack.items);
            stack.n = 0;
            drop(stacks);
            let shelf = self.shelf(pin.node(), class);
            let limit = shelf.limit.load(Relaxed) as usize;
            // Magazines hold pages of one node only: that which the CPU was on.
            if shelf.with(|depot| depot.store(&items[..n], limit)) {
                continue;
            }
            for item in &items[..n] {
                self.put_home(pin, class, self.level_of(class), self.page(class, *item));
            }
        }
    }

    /// So many CPUs of those on a node have work to do at the moment: magazines are scaled for them. Budgets are for all CPUs
    /// all the time.
    pub fn set_active(&self, cpus: u32) {
        self.active.store(cpus.clamp(1, self.cpus_per_node), Relaxed);
        for shelf in self.shelves.iter().flatten() {
            self.size_magazines(shelf, shelf.pages.load(Relaxed));
        }
    }

    /// How many pages a node's depots held all the time since this was last asked: nobody needed them.
    pub fn unneeded(&self, node: NodeId) -> u32 {
        self.shelves[usize::from(node.0)].iter().map(|s| s.with(|depot| depot.unneeded()) as u32).sum()
    }

    /// Gives back up to `want` pages of a node's depots, at most 16 in one call, those first that have lain there
    /// longest; how many it gave.
    pub fn give_back(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        let mut given = 0;
        for class in (0..CLASSES).rev() {
            let mut items = [0; BOUNDED];
            let want = ((want - given) as usize).min(BOUNDED - given as usize);
            // Detach under the lock, unmake outside it (REQ-15).
            let n = self.shelf(node, class).with(|depot| depot.oldest(&mut items[..want]));
            for item in &items[..n] {
                self.unmake(pin, class, self.level_of(class), *item);
            }
            given += n as u32;
        }
        given
    }

    /// Pages that a node's depots hold.
    pub fn in_depots(&self, node: NodeId) -> u32 {
        self.shelves[usize::from(node.0)].iter().map(|s| s.held.load(Relaxed)).sum()
    }
}
