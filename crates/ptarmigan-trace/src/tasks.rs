//! The tasks of a trace, as reader and writer follow them: which are alive, and which pages each
//! touched last.

/// The most tasks of a trace.
pub const MAX_TASKS: u32 = 1 << 24;
/// The most tasks alive at once, as in Linux (`PID_MAX_LIMIT`).
pub const MAX_LIVE_TASKS: usize = 1 << 22;

const DEAD: u32 = u32::MAX;

/// Page numbers that the next one is probably close to.
pub(crate) type Near = [u64; 3];

/// A page number farther than this from all remembered ones replaces one of them.
const FAR: u64 = 1 << 14;

/// Updates the remembered pages: `slot` was nearest, `distance` pages away, and the event ended at
/// `next`.
#[inline]
pub(crate) fn remember(near: &mut Near, slot: usize, distance: u64, next: u64) {
    if distance > FAR {
        *near = [next, near[0], near[1]];
    } else {
        near[slot] = next;
    }
}

/// The remembered pages of all tasks. Needs 4 bytes per task, and 24 more per live task.
pub(crate) struct Tasks {
    /// Index of each task in `near`, or `DEAD`.
    place: Vec<u32>,
    near: Vec<Near>,
    free: Vec<u32>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { place: vec![0], near: vec![[0; 3]], free: Vec::new() }
    }

    /// Returns the number of tasks so far.
    pub(crate) fn count(&self) -> u32 {
        self.place.len() as u32
    }

    /// Returns the remembered pages of a live task.
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

    /// Adds a child with the next number. It starts with its parent's remembered pages.
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
