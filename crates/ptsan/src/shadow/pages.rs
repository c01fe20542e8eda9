//! Finds the frames whose tables touch a page.
use crate::hash::FastMap;

/// The number of pages whose frames lie beside each other in memory.
const BLOCK: usize = 64;
/// The number of blocks that are found without a search: those of the lowest 4 GiB.
const LOW_BLOCKS: u64 = 1 << 14;
/// Stands for a page without a frame; other numbers are one more than that of the frame.
const NO_FRAME: u32 = 0;
/// Stands for a page with several frames.
const SEVERAL: u32 = u32::MAX;
/// Beside the number of a frame: its table has the whole page.
const WHOLE: u32 = 1 << 31;

/// The frames of a page that has had several at a time.
#[derive(Default)]
struct SharedPage {
    first: Option<u32>,
    rest: Vec<u32>,
}

/// The numbers of the frames whose tables touch each page: nearly always one.
///
/// Neighbouring pages share cache lines: four bytes a page, in blocks of 64.
#[derive(Default)]
pub(super) struct Pages {
    low: Vec<Option<Box<[u32; BLOCK]>>>,
    high: FastMap<u64, Box<[u32; BLOCK]>>,
    shared: FastMap<u64, SharedPage>,
}

/// Returns the block of a page, and its place in it.
fn place(page: u64) -> (u64, usize) {
    (page / BLOCK as u64, (page % BLOCK as u64) as usize)
}

impl Pages {
    /// Returns the frame of a page, if there is only one.
    #[inline]
    pub(super) fn one(&self, page: u64) -> One {
        let (block, at) = place(page);
        let found = match block < LOW_BLOCKS {
            true => self.low.get(block as usize).and_then(Option::as_deref),
            false => self.high(block),
        };
        match found.map_or(NO_FRAME, |block| block[at]) {
            NO_FRAME => One::None,
            SEVERAL => One::Several,
            known => One::Frame { index: (known & !WHOLE) - 1, whole: known & WHOLE != 0 },
        }
    }

    /// Returns a block that is found by a search. Apart, so that the usual look-up stays short.
    #[cold]
    fn high(&self, block: u64) -> Option<&[u32; BLOCK]> {
        self.high.get(&block).map(|block| &**block)
    }

    /// Lists the frames of a page.
    pub(super) fn of(&self, page: u64) -> impl Iterator<Item = u32> + '_ {
        let (one, shared) = match self.one(page) {
            One::None => (None, None),
            One::Frame { index, .. } => (Some(index), None),
            One::Several => (None, self.shared.get(&page)),
        };
        let several = shared.into_iter().flat_map(|shared| shared.first.iter().chain(&shared.rest).copied());
        one.into_iter().chain(several)
    }

    /// Adds a frame to a page. `whole` says that its table has the whole page.
    pub(super) fn insert(&mut self, page: u64, frame: u32, whole: bool) {
        let (block, at) = place(page);
        let empty = || Box::new([NO_FRAME; BLOCK]);
        let known = if block < LOW_BLOCKS {
            let block = block as usize;
            if block >= self.low.len() {
                self.low.resize_with(block + 1, || None);
            }
            &mut self.low[block].get_or_insert_with(empty)[at]
        } else {
            &mut self.high.entry(block).or_insert_with(empty)[at]
        };
        if *known == NO_FRAME && frame < (SEVERAL & !WHOLE) - 1 {
            *known = (frame + 1) | if whole { WHOLE } else { 0 };
            return;
        }
        let shared = self.shared.entry(page).or_default();
        if *known != SEVERAL && *known != NO_FRAME {
            shared.first = Some((*known & !WHOLE) - 1);
        }
        *known = SEVERAL;
        match shared.first {
            None => shared.first = Some(frame),
            Some(_) => shared.rest.push(frame),
        }
    }

    /// Removes a frame from a page.
    pub(super) fn remove(&mut self, page: u64, frame: u32) {
        let (block, at) = place(page);
        let block = match block < LOW_BLOCKS {
            true => self.low.get_mut(block as usize).and_then(Option::as_mut),
            false => self.high.get_mut(&block),
        };
        let Some(known) = block.map(|block| &mut block[at]) else { return };
        if *known != SEVERAL {
            if *known & !WHOLE == frame.wrapping_add(1) {
                *known = NO_FRAME;
            }
            return;
        }
        let Some(shared) = self.shared.get_mut(&page) else { return };
        shared.rest.retain(|&other| other != frame);
        if shared.first == Some(frame) {
            shared.first = shared.rest.pop();
        }
        if shared.first.is_none() {
            self.shared.remove(&page);
            *known = NO_FRAME;
        }
    }
}

/// The frames of a page.
pub(super) enum One {
    None,
    Frame {
        index: u32,
        /// Its table has the whole page.
        whole: bool,
    },
    Several,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_wherever_they_are() {
        let mut pages = Pages::default();
        let end = LOW_BLOCKS * BLOCK as u64;
        let places = [0, 1, end - 1, end, 3 * end, u64::MAX >> 12];
        places.into_iter().zip(0..).for_each(|(page, frame)| pages.insert(page, frame, frame % 2 == 0));
        let found: Vec<u32> = places.into_iter().flat_map(|page| pages.of(page)).collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5]);
        for (page, frame) in places.into_iter().zip(0..) {
            let whole = frame % 2 == 0;
            assert!(
                matches!(pages.one(page), One::Frame { index, whole: w } if (index, w) == (frame, whole))
            );
        }
        assert!(pages.of(2).chain(pages.of(end - 2)).chain(pages.of(end + 1)).next().is_none());
        places.into_iter().zip(0..).for_each(|(page, frame)| pages.remove(page, frame));
        assert!(places.into_iter().all(|page| matches!(pages.one(page), One::None)));
    }

    #[test]
    fn pages_have_frames_in_the_order_of_insertion() {
        let mut pages = Pages::default();
        let of = |pages: &Pages, page| pages.of(page).collect::<Vec<_>>();
        assert!(of(&pages, 7).is_empty());
        for frame in [3, 0, 9] {
            pages.insert(7, frame, true);
        }
        pages.insert(8, 0, true);
        pages.insert(7 + BLOCK as u64, u32::MAX - 1, true);
        assert_eq!((of(&pages, 7), of(&pages, 8)), (vec![3, 0, 9], vec![0]));
        assert_eq!(of(&pages, 7 + BLOCK as u64), [u32::MAX - 1], "a number that stands for others");
        pages.remove(7, 3);
        assert_eq!(of(&pages, 7), [9, 0], "the last takes the place of the first");
        pages.remove(7, 5);
        pages.remove(7, 0);
        pages.remove(7, 9);
        pages.remove(8, 1);
        assert_eq!((of(&pages, 7), of(&pages, 8)), (vec![], vec![0]));
        pages.insert(7, 4, false);
        pages.remove(8, 0);
        assert_eq!((of(&pages, 7), of(&pages, 8)), (vec![4], vec![]));
        assert!(matches!(pages.one(7), One::Frame { index: 4, whole: false }));
    }
}
