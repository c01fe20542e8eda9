//! All table frames, found by their physical address.
use super::frame::{Frame, FrameRef, Link, State};
use super::history::History;
use super::holders::Holders;
use super::pages::{One, Pages};
use super::stored_values::{Budget, Told, ToldEntries};
use crate::report::Happened;

/// Tables are looked up by the 4 KiB page they start in; a smaller table shares its page with
/// others.
const PAGE_SHIFT: u32 = 12;

/// All frames that are or were tables.
#[derive(Default)]
pub(crate) struct FrameTable {
    frames: Vec<Frame>,
    /// Records no longer on any page.
    unused: Vec<u32>,
    pages: Pages,
    /// How many entries that were told are exact.
    told: Budget,
    pub(crate) live: u64,
}

impl FrameTable {
    /// Makes a table of frames in which `told` entries at first have the event of their store.
    pub(crate) fn new(told: usize) -> Self {
        Self { told: Budget::new(told), ..Self::default() }
    }

    /// Records a store to an entry, and returns what the told store before it left. See
    /// [`ToldEntries::replace`].
    pub(crate) fn tell(
        &mut self,
        at: FrameRef,
        index: usize,
        new: Told,
        departures: (u64, &dyn Fn() -> Vec<u64>),
    ) -> Option<Told> {
        let f = self.frames.get_mut(at.index as usize).filter(|f| f.generation == at.generation)?;
        f.told.replace(index, new, &mut self.told, departures)
    }

    /// Replaces the value that the last told store left in an entry: hardware has set bits of it.
    pub(crate) fn amend(&mut self, at: FrameRef, index: usize, raw: u64) {
        let frame = self.frames.get_mut(at.index as usize).filter(|f| f.generation == at.generation);
        if let Some(f) = frame {
            f.told.amend(index, raw, &mut self.told);
        }
    }

    /// Returns the frame that holds a table at `phys`: the allocated one, else the one that was
    /// freed last.
    #[inline]
    pub(crate) fn find(&self, phys: u64) -> Option<FrameRef> {
        match self.pages.one(phys >> PAGE_SHIFT) {
            One::None => None,
            One::Frame { index, whole } => {
                let frame = self.frames.get(index as usize)?;
                let found = FrameRef { index, generation: frame.generation };
                (whole || frame.contains(phys)).then_some(found)
            }
            One::Several => self.find_of_several(phys),
        }
    }

    /// Returns whether there is or was a table at `phys`: [`Self::find`] would find it. Seldom
    /// looks at the frame.
    #[inline]
    pub(crate) fn is_known(&self, phys: u64) -> bool {
        match self.pages.one(phys >> PAGE_SHIFT) {
            One::None => false,
            One::Frame { whole: true, .. } => true,
            One::Frame { .. } | One::Several => self.find(phys).is_some(),
        }
    }

    #[cold]
    fn find_of_several(&self, phys: u64) -> Option<FrameRef> {
        let mut freed = None;
        for index in self.pages.of(phys >> PAGE_SHIFT) {
            let frame = &self.frames[index as usize];
            if frame.contains(phys) {
                let found = FrameRef { index, generation: frame.generation };
                if frame.state == State::Allocated {
                    return Some(found);
                }
                freed = Some(found);
            }
        }
        freed
    }

    /// Returns the table at `phys` if it has been reached through `link` at `level` last, so that
    /// this is no news.
    #[inline]
    pub(crate) fn reached_before(&self, phys: u64, link: Link, level: u8) -> Option<FrameRef> {
        let at = self.find(phys)?;
        let f = &self.frames[at.index as usize];
        let same = f.link == Some(link) && f.level == Some(level);
        (same && f.state == State::Allocated && f.leftovers.is_none()).then_some(at)
    }

    /// Returns the frame behind a reference, or `None` if it was allocated again since or is
    /// unknown.
    #[inline]
    pub(crate) fn get(&self, at: FrameRef) -> Option<&Frame> {
        self.frames.get(at.index as usize).filter(|f| f.generation == at.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: FrameRef) -> Option<&mut Frame> {
        self.frames.get_mut(at.index as usize).filter(|f| f.generation == at.generation)
    }

    /// Lists the frames that overlap `size` bytes at `phys`.
    pub(crate) fn overlapping(&self, phys: u64, size: u64) -> Vec<FrameRef> {
        let mut found: Vec<FrameRef> = Vec::new();
        for page in pages(phys, size) {
            for index in self.pages.of(page) {
                let f = &self.frames[index as usize];
                let at = FrameRef { index, generation: f.generation };
                let overlap = f.phys < phys.saturating_add(size) && phys < f.phys.saturating_add(f.size);
                if overlap && !found.contains(&at) {
                    found.push(at);
                }
            }
        }
        found
    }

    /// Returns the address of a table that overlaps `size` bytes at `phys`.
    pub(crate) fn table_within(&self, phys: u64, size: u64) -> Option<u64> {
        let end = phys.saturating_add(size);
        let overlaps =
            |f: &&Frame| f.state == State::Allocated && f.phys < end && phys < f.phys.saturating_add(f.size);
        if size >> PAGE_SHIFT > self.frames.len() as u64 {
            return self.frames.iter().find(overlaps).map(|f| f.phys);
        }
        let of_page = |page| self.pages.of(page);
        let frames = pages(phys, size).flat_map(of_page).map(|index| &self.frames[index as usize]);
        frames.into_iter().find(overlaps).map(|f| f.phys)
    }

    /// Returns the freed frame with exactly this place and size, if it is the only one there. This
    /// is the usual case of [`FrameTable::overlapping`], without its list.
    #[inline]
    pub(crate) fn sole_freed(&self, phys: u64, size: u64) -> Option<FrameRef> {
        let mut frames = self.pages.of(phys >> PAGE_SHIFT);
        let index = frames.next().filter(|_| frames.next().is_none())?;
        let f = &self.frames[index as usize];
        let same = f.phys == phys && f.size == size && f.state == State::Freed;
        (same && size <= 1 << PAGE_SHIFT).then_some(FrameRef { index, generation: f.generation })
    }

    /// Makes the frame a table again. Its history stays, everything else starts over.
    pub(crate) fn reallocate(&mut self, at: FrameRef, level: Option<u8>, event: u64) -> FrameRef {
        let f = &mut self.frames[at.index as usize];
        f.state = State::Allocated;
        f.generation = f.generation.wrapping_add(1);
        f.level = level;
        f.before = Some(std::mem::replace(&mut f.since, event));
        (f.was_dirty, f.old_reported) = (false, false);
        f.link = None;
        f.other_links.clear();
        f.leftovers = None;
        f.told.clear(&mut self.told);
        f.holders.clear();
        f.history.push(event, Happened::Allocated);
        self.live += 1;
        FrameRef { index: at.index, generation: f.generation }
    }

    /// Adds a frame at an empty place.
    pub(crate) fn insert(&mut self, phys: u64, size: u64, level: Option<u8>, event: u64) -> FrameRef {
        let index = self.unused.pop().unwrap_or(self.frames.len() as u32);
        let generation = self.frames.get(index as usize).map_or(0, |f| f.generation.wrapping_add(1));
        let mut history = History::default();
        history.push(event, Happened::Allocated);
        let frame = Frame {
            phys,
            size,
            state: State::Allocated,
            generation,
            level,
            link: None,
            other_links: Vec::new(),
            holders: Holders::default(),
            since: event,
            before: None,
            was_dirty: false,
            old_reported: false,
            leftovers: None,
            told: ToldEntries::default(),
            history,
            origins: None,
        };
        match self.frames.get_mut(index as usize) {
            Some(slot) => *slot = frame,
            None => self.frames.push(frame),
        }
        for page in pages(phys, size) {
            let start = page << PAGE_SHIFT;
            let whole = phys <= start && phys.saturating_add(size) - start >= 1 << PAGE_SHIFT;
            self.pages.insert(page, index, whole);
        }
        self.live += 1;
        FrameRef { index, generation }
    }

    /// Forgets a frame whose place is taken by tables of another shape.
    pub(crate) fn remove(&mut self, at: FrameRef) {
        let Some(f) = self.get(at) else { return };
        let (phys, size, state) = (f.phys, f.size, f.state);
        for page in pages(phys, size) {
            self.pages.remove(page, at.index);
        }
        let f = &mut self.frames[at.index as usize];
        f.generation = f.generation.wrapping_add(1);
        f.told.clear(&mut self.told);
        f.size = 0;
        f.state = State::Freed;
        self.unused.push(at.index);
        if state == State::Allocated {
            self.live -= 1;
        }
    }

    /// Marks the frame freed. Its holders stay for the check at its next allocation.
    pub(crate) fn free(&mut self, at: FrameRef, event: u64) {
        let found = self.frames.get_mut(at.index as usize).filter(|f| f.generation == at.generation);
        let Some(f) = found else { return };
        f.state = State::Freed;
        f.leftovers = None;
        f.told.clear(&mut self.told);
        f.history.push(event, Happened::Freed);
        self.live -= 1;
    }

    /// Returns all frames that are tables now.
    pub(crate) fn allocated(&self) -> impl Iterator<Item = &Frame> {
        self.frames.iter().filter(|f| f.state == State::Allocated)
    }
}

fn pages(phys: u64, size: u64) -> impl Iterator<Item = u64> {
    let last = phys.saturating_add(size.saturating_sub(1));
    phys >> PAGE_SHIFT..=last >> PAGE_SHIFT
}
