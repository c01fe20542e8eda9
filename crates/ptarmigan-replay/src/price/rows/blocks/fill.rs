//! Counts the faults that blocks of each size leave, fault by fault.
use crate::linux::PAGE;
use crate::price::{Effect, Moment, PageSets};
use ptarmigan::space::{AreaFlags, Done};

/// Sizes that are tried.
pub const SIZES: usize = 8;

/// What blocks of one size would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSize {
    /// Pages in a block.
    pub pages: u64,
    /// Faults that are left on anonymous memory.
    pub faults: u64,
    /// Pages that are cleared.
    pub cleared: u64,
}

/// The sums of all programs.
#[derive(Clone, Copy, Debug)]
pub struct Sums {
    /// Faults on anonymous memory, as recorded.
    pub faults: u64,
    /// Pages that they cleared.
    pub touched: u64,
    /// By size.
    pub sizes: [BlockSize; SIZES],
}

impl Default for Sums {
    fn default() -> Self {
        let sizes = std::array::from_fn(|n| BlockSize { pages: 4 << n, ..BlockSize::default() });
        Sums { faults: 0, touched: 0, sizes }
    }
}

/// The pages that blocks would have brought.
#[derive(Default)]
pub struct Fill {
    /// By size: the pages that are there, and those of them that a write would still copy.
    sets: PageSets<{ 2 * SIZES }>,
    /// What is counted so far.
    pub sums: Sums,
    /// By step: bit `n` says that the size with this number spares the fault.
    pub spared: Vec<u8>,
}

impl Fill {
    /// Follows calls, forks and ends.
    pub fn follow(&mut self, moment: &Moment<'_>, space: u32) {
        self.sets.follow(moment);
        let mut copy = space;
        for effect in moment.effects {
            match *effect {
                Effect::Forked { child } => copy = child,
                Effect::TableCopied { start, .. } => {
                    // From now on both sides share what is there.
                    let share = |sets: &mut [_; 2 * SIZES]| sets.copy_within(..SIZES, SIZES);
                    share(self.sets.table(space, start));
                    share(self.sets.table(copy, start));
                }
                _ => {}
            }
        }
    }

    /// A fault has been served; `mapped` says whether its page was not there before.
    pub fn fault(&mut self, moment: &Moment<'_>, space: u32, page: u64, (done, mapped): (Done, bool)) {
        let Some(area) = moment.view.and_then(|view| view.area(page << PAGE)) else { return };
        if area.flags.has(AreaFlags::SHARED) || area.flags.has(AreaFlags::BACKED) {
            return;
        }
        let sums = &mut self.sums;
        sums.faults += 1;
        if !mapped {
            // It is copied, or written again: page by page, whatever the block.
            sums.sizes.iter_mut().for_each(|size| size.faults += 1);
            return;
        }
        let writes = done != Done::Zero;
        sums.touched += u64::from(writes);
        let table = self.sets.table(space, page);
        let mut spared = 0_u8;
        let (there, shared) = table.split_at_mut(SIZES);
        for (n, size) in sums.sizes.iter_mut().enumerate() {
            if there[n].has(page) {
                // It came with a block. If a fork shares it, a write still copies it.
                let copied = writes && shared[n].remove(page);
                size.faults += u64::from(copied);
                spared |= u8::from(!copied) << n;
                continue;
            }
            size.faults += 1;
            let start = page / size.pages * size.pages;
            let block = start..start + size.pages;
            let fits = area.start <= start << PAGE && block.end << PAGE <= area.end;
            if writes && fits && !there[n].any(&block) {
                there[n].add_all(&block);
                size.cleared += size.pages;
            } else {
                there[n].add(page);
                size.cleared += u64::from(writes);
            }
        }
        if spared != 0 {
            let step = moment.step as usize;
            self.spared.resize(self.spared.len().max(step + 1), 0);
            self.spared[step] = spared;
        }
    }
}
