//! The shadow state of one table frame: who allocated it, who may hold it, through which entry it was reached.
use super::history::History;
use super::leftovers::Leftovers;
use crate::report::{Origins, Trace};

/// Holders are pruned when there are more than this many.
const PRUNE_AT: usize = 16;

/// A frame at a moment of its life: another allocation makes another reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRef {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl FrameRef {
    /// A table that was never announced.
    pub(crate) const UNKNOWN: Self = Self { index: u32::MAX, generation: 0 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Allocated,
    Freed,
}

/// "This CPU read this table for this position", true until the context says otherwise.
///
/// It is checked only when somebody asks; a context that was dropped as a whole has another generation, which
/// makes the usual answer one comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) cpu: u16,
    /// [`REGISTERS`], or the number of a context of that CPU.
    pub(crate) context: u32,
    pub(crate) generation: u32,
    /// Position of the table, as [`crate::Arch`] numbers them.
    pub(crate) position: u64,
    /// Event of the walk.
    pub(crate) since: u64,
}

/// In place of a context in a [`Holder`]: the registers with the top entries.
pub(crate) const REGISTERS: u32 = u32::MAX;
/// In place of a context in a [`Holder`]: the global translations.
pub(crate) const GLOBALS: u32 = u32::MAX - 1;

/// An entry through which a table was reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Physical address of the entry.
    pub(crate) entry: u64,
    /// The table that holds the entry.
    pub(crate) parent: FrameRef,
}

pub(crate) struct Frame {
    pub(crate) phys: u64,
    pub(crate) size: u64,
    pub(crate) state: State,
    pub(super) generation: u32,
    /// As announced, or as first reached.
    pub(crate) level: Option<u8>,
    pub(crate) link: Option<Link>,
    pub(crate) holders: Vec<Holder>,
    pub(super) prune_at: usize,
    /// What is left from before the allocation; `None` if it was not looked at, or once it does not matter.
    pub(crate) leftovers: Option<Leftovers>,
    pub(crate) history: History,
    pub(crate) origins: Option<Box<Origins>>,
}

impl Frame {
    pub(crate) fn contains(&self, phys: u64) -> bool {
        phys >= self.phys && phys - self.phys < self.size
    }

    /// Remembers who allocated the table.
    pub(crate) fn remember_owner(&mut self) {
        self.origins = Some(Box::new(Origins { allocated: Some(Trace::capture()), freed: None }));
    }

    /// Remembers who gave it back.
    pub(crate) fn remember_giver(&mut self) {
        self.origins.get_or_insert_default().freed = Some(Trace::capture());
    }

    /// Notes that a CPU may hold this table from now on. `valid` says which old holders still count.
    pub(crate) fn hold(&mut self, new: Holder, valid: impl Fn(&Holder) -> bool) -> bool {
        let same = |h: &Holder| h.cpu == new.cpu && h.context == new.context && h.position == new.position;
        if let Some(old) = self.holders.iter_mut().find(|h| same(h)) {
            let renewed = old.generation != new.generation;
            *old = new;
            return renewed;
        }
        if self.holders.len() >= self.prune_at.max(PRUNE_AT) {
            self.holders.retain(valid);
            self.prune_at = 2 * self.holders.len();
        }
        self.holders.push(new);
        true
    }
}
