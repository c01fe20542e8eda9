//! The tasks of a trace, as reader and writer both follow them: who lives, and which pages each touched last.

/// Tasks that one trace may have in all.
pub const MAX_TASKS: u32 = 1 << 24;
/// Tasks that may be alive at once, the limit that Linux has (`PID_MAX_LIMIT`).
pub const MAX_LIVE_TASKS: usize = 1 << 22;

const DEAD: u32 = u32::MAX;

/// Page numbers near which the next one is likely to be.
pub(crate) type Near = [u64; 3];

/// Further than this many pages from all of them, a page number takes a place of its own.
const FAR: u64 = 1 << 14;

/// Moves on: `slot` was nearest, `distance` pages away, and the event ended at `next`.
#[inline]
pub(crate) fn remember(near: &mut Near, slot: usize, distance: u64, next: u64) {
    if distance > FAR {
        *near = [next, near[0], near[1]];
    } else {
        near[slot] = next;
    }
}

/// Which task is where. Four bytes for every task that ever was, and 24 for each alive.
pub(crate) struct Tasks {
    /// Place of each task in `near`, or `DEAD`.
    place: Vec<u32>,
    near: Vec<Near>,
    free: Vec<u32>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { place: vec![0], near: vec![[0; 3]], free: Vec::new() }
    }

    /// How many tasks there have been.
    pub(crate) fn count(&self) -> u32 {
        self.place.len() as u32
    }

    /// The remembered pages of a task that is alive.
    #[inline]
    pub(crate) fn near(&mut self, task: u32) -> Option<&mut Near> {
        let place = *self.place.get(task as usize)?;
        self.near.get_mut(place as usize)
    }

    #[inline]
    pub(crate) fn alive(&self, task: u32) -> bool {
        self.place.get(task as usize).is_some_and(|&p| p != DEAD)
    }

    pub(crate) fn room(&self) -> bool {
        self.place.len() < MAX_TASKS as usize && self.near.len() - self.free.len() < MAX_LIVE_TASKS
    }

    /// A child, which has the next number and touches first what its parent touched last.
    pub(crate) fn add(&mut self, parent: u32) {
        let near = self.near(parent).copied().unwrap_or_default();
        let place = match self.free.pop() {
            Some(p) => {
                self.near[p as usize] = near;
                p
            }
            None => {
                self.near.push(near);
                self.near.len() as u32 - 1
            }
        };
        self.place.push(place);
    }

    pub(crate) fn remove(&mut self, task: u32) {
        if let Some(p) = self.place.get_mut(task as usize)
            && *p != DEAD
        {
            self.free.push(std::mem::replace(p, DEAD));
        }
    }
}
