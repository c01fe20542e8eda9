//! Groups in ranges of the kernel's half.
//!
//! They are made, changed and unfolded as those of trees ([`group`](crate::table::group)). As for
//! large pages ([`parts`](super::parts)), a call that would have to break a group because it
//! changes a part of it is refused where the architecture demands breaks.
use super::roots::KernelMap;
use super::stale::Stale;
use crate::addr::VirtAddr;
use crate::format::{Entry, Format};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::table::broken::{BATCH, Broken};
use crate::table::changes::{Changes, change_group, make_broken};
use crate::table::group::{Group, group_shift, is_hinted};
use crate::table::node::{Node, Use};
use crate::table::range::Part;
use crate::table::tables::descend;
use crate::tlb::TlbRefusal;
use crate::window::OpenWindow;

impl<'a, F: Format, M: Machine> Changes<'a, F, M> for Stale<'a, M> {
    fn cpu(&self) -> On<'a, M> {
        self.on()
    }

    fn users(&self) -> Use {
        Use::Walked
    }

    /// It could flush when these were begun.
    fn check_flush(&self) -> Result<(), TlbRefusal> {
        Ok(())
    }

    fn note_group(&mut self, group: &Group<'_, '_, F, M::Window>) {
        if group.level() == Level::PTE {
            return self.change_all(group.va(), group.bytes());
        }
        let size = 1 << F::shift(group.level());
        for i in 0..group.bytes() / size {
            self.change_large(group.va() + i * size, F::shift(group.level()));
        }
    }

    fn flush_noted(&mut self) -> Result<(), TlbRefusal> {
        self.flush_so_far()
    }

    fn valid(&mut self, level: Level, va: u64, raw: u64) {
        self.on().became_valid(None, va, F::shift(level), 1, 0, raw);
    }
}

/// Whether the group of which `raw` is the entry at `index` may be unfolded only by a break.
fn breaks<F: Format>(level: Level, index: usize, raw: u64) -> bool {
    F::EVER_BREAKS && F::needs_break(level, raw, F::unhinted(level, index, raw))
}

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// The leaf that maps `va`, an address of a range that the caller owns, and the level of its
    /// table.
    pub(super) fn leaf_at<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(Level, u64)> {
        let end = descend::<F, _>(on.window(), self.reference(), F::LAYOUT.root(), va, Level::PTE);
        let node = Node::<F, M::Window>::open(on.window(), on.frames(), end.level, end.at);
        let raw = node.load(F::index(end.level, va));
        (F::entry(end.level, raw) == Entry::Leaf).then_some((end.level, raw))
    }

    /// The first address of the group that maps `va` and does not begin there, and the level of its
    /// table, with whether to unfold it is a break.
    #[cold]
    pub(super) fn group_around<M: Machine>(&self, on: On<'_, M>, va: u64) -> Option<(u64, Level, bool)> {
        let (level, raw) = self.leaf_at(on, va)?;
        let start = va & !((1 << group_shift::<F>(level)) - 1);
        let is_part = is_hinted::<F>(level, raw) && start != va;
        is_part.then(|| (start, level, breaks::<F>(level, F::index(level, va), raw)))
    }
}

/// Gives each group of `pages` pages from `at` on, none of which lies partly in there, the
/// attributes that `change` makes of its leaf.
#[cold]
pub(super) fn change_groups<F: Format, W: OpenWindow, M: Machine>(
    map: &KernelMap<F, W>,
    on: On<'_, M>,
    (at, pages): (VirtAddr, u64),
    stale: &mut Stale<'_, M>,
    change: &impl Fn(Level, u64, u64) -> u64,
) -> Result<(), TlbRefusal> {
    let mut broken = Broken::<_, _, _, BATCH>::new(|level, va| map.find(on, va, level));
    let mut done = Ok(());
    map.each_part(on, at, pages, true, |part| {
        if let Part::Group(group) = part
            && done.is_ok()
        {
            done = change_group(&group, true, &mut broken, stale, change);
        }
    });
    make_broken(&mut broken, stale, change)?;
    done
}
