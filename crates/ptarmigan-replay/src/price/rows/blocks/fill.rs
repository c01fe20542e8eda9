//! Counts the faults that blocks of each size leave, fault by fault.
use crate::linux::PAGE;
use crate::price::{Effect, Moment, PageSets};
use foldhash::HashMap;
use ptarmigan::space::{Area, AreaFlags, Done};
use ptarmigan_trace::Kind;

/// Sizes that are tried.
pub const SIZES: usize = 8;
/// Cases that are counted: the sizes, and the largest with heaps that grow in whole blocks of it,
/// as the C library's do with `glibc.malloc.hugetlb=1`.
const CASES: usize = SIZES + 1;

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
    /// The largest size, with heaps that grow in whole blocks.
    pub switch: BlockSize,
}

impl Sums {
    /// All cases, in their order.
    fn cases(&mut self) -> impl Iterator<Item = &mut BlockSize> {
        self.sizes.iter_mut().chain([&mut self.switch])
    }
}

impl Default for Sums {
    fn default() -> Self {
        let sizes = std::array::from_fn(|n| BlockSize { pages: 4 << n, ..BlockSize::default() });
        Sums { faults: 0, touched: 0, sizes, switch: sizes[SIZES - 1] }
    }
}

/// The pages that blocks would have brought.
#[derive(Default)]
pub struct Fill {
    /// By case: the pages that are there, and those of them that a write would still copy.
    sets: PageSets<{ 2 * CASES }>,
    /// The ends of heaps, by space: the first page after each.
    heaps: HashMap<u32, u64>,
    /// What is counted so far.
    pub sums: Sums,
    /// By step: bit `n` says that the size with this number spares the fault.
    pub spared: Vec<u8>,
}

impl Fill {
    /// Follows calls, forks and ends.
    pub fn follow(&mut self, moment: &Moment<'_>, space: u32) {
        self.sets.follow(moment);
        if let Kind::Brk { end } = moment.event.kind {
            self.heaps.insert(space, end);
        }
        let mut copy = space;
        for effect in moment.effects {
            match *effect {
                Effect::Forked { child } => {
                    copy = child;
                    if let Some(&end) = self.heaps.get(&space) {
                        self.heaps.insert(child, end);
                    }
                }
                Effect::TableCopied { start, .. } => {
                    // From now on both sides share what is there.
                    let share = |sets: &mut [_; 2 * CASES]| sets.copy_within(..CASES, CASES);
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
        let heap = self.heaps.get(&space).copied();
        let sums = &mut self.sums;
        sums.faults += 1;
        if !mapped {
            // It is copied, or written again: page by page, whatever the block.
            sums.cases().for_each(|size| size.faults += 1);
            return;
        }
        let writes = done != Done::Zero;
        sums.touched += u64::from(writes);
        let table = self.sets.table(space, page);
        let mut spared = 0_u8;
        let (there, shared) = table.split_at_mut(CASES);
        for (n, size) in sums.cases().enumerate() {
            if there[n].has(page) {
                // It came with a block. If a fork shares it, a write still copies it.
                let copied = writes && shared[n].remove(page);
                size.faults += u64::from(copied);
                spared |= u8::from(!copied && n < SIZES) << (n % SIZES);
                continue;
            }
            size.faults += 1;
            let start = page / size.pages * size.pages;
            let block = start..start + size.pages;
            let end = if n < SIZES { area.end } else { grown(&area, heap, size.pages) };
            let fits = area.start <= start << PAGE && block.end << PAGE <= end;
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

/// Returns the end of an area, in bytes, if a heap that ends with it at page `heap` grows in whole
/// blocks of `pages`.
fn grown(area: &Area, heap: Option<u64>, pages: u64) -> u64 {
    if heap.is_some_and(|end| end << PAGE == area.end) {
        area.end.checked_next_multiple_of(pages << PAGE).unwrap_or(area.end)
    } else {
        area.end
    }
}
