//! Sizes of the lists.
use super::classes::{LOW_CLASSES, ROOT};
use super::magazine::MAGAZINE;
use crate::bootmem::BootMemoryShort;
use crate::error::error;
use crate::page::{Layout, Level};
use crate::params::Params;
use core::fmt;

/// The depot for root tables may have this part of a node's room, as they are the fewer.
const ROOT_PART: usize = 8;
/// CPUs at the most.
pub(super) const MOST_CPUS: usize = u16::MAX as usize;

/// Sizes of the lists.
///
/// ```
/// use ptarmigan::params::Params;
/// use ptarmigan::quicklist::ListsConfig;
///
/// let params = Params::parse("quicklist=on,magazine=16")?;
/// let config = ListsConfig::new(8).with_params(&params);
/// assert_eq!((config.cpus, config.magazine), (8, 16));
/// # Ok::<(), ptarmigan::params::ParamError<'static>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ListsConfig {
    /// CPUs, at least 1.
    pub cpus: usize,
    /// Pages per magazine at the most, 0 to 64. 0 turns caching off: every call goes to the
    /// allocator.
    pub magazine: usize,
    /// A node's budget is its free memory, divided by this; at least 1. Low memory and high memory
    /// have a budget each.
    pub budget_divisor: u32,
    /// A node's budget in pages of low memory, and of high memory, whatever is free there; `None`:
    /// the divisor says.
    pub fixed_budget: Option<u32>,
    /// CPUs that may be on one node at a time, all of them at the most; 0: they are spread evenly,
    /// and stay where they are.
    pub cpus_per_node: usize,
}

impl ListsConfig {
    /// Returns the defaults for `cpus` CPUs: magazines of up to 64, one sixteenth of a node.
    pub const fn new(cpus: usize) -> Self {
        ListsConfig { cpus, magazine: MAGAZINE, budget_divisor: 16, fixed_budget: None, cpus_per_node: 0 }
    }

    /// Takes over values of boot parameters, and keeps values that they do not mention.
    pub fn with_params(self, params: &Params) -> Self {
        ListsConfig { magazine: params.magazine.map_or(self.magazine, usize::from), ..self }
    }

    /// Looks at the sizes as [`Quicklists::new`](super::Quicklists::new) does.
    pub(crate) fn check(&self) -> Result<(), ListsError> {
        let range = |what, value, least, most| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(ListsError::Range { what, value, least, most })
        };
        range("CPUs", self.cpus, 1, MOST_CPUS)?;
        range("pages per magazine", self.magazine, 0, MAGAZINE)?;
        range("the budget's divisor", self.budget_divisor as usize, 1, u32::MAX as usize)
    }

    /// Returns how many CPUs may be on one of `nodes` nodes at a time.
    pub(super) fn most_on_a_node(&self, nodes: usize) -> usize {
        let even = self.cpus.div_ceil(nodes.max(1));
        if self.cpus_per_node == 0 { even } else { self.cpus_per_node.min(self.cpus) }.max(1)
    }

    /// Returns how many frames of one kind of memory, of which a node has `all`, it can ever keep
    /// pages in.
    pub(super) fn room(&self, all: u32) -> u32 {
        self.fixed_budget.map_or(all / self.budget_divisor.max(1), |budget| budget.min(all))
    }
}

/// Returns how many classes of low memory are used: one where a tree is only its root.
pub(super) fn classes(layout: &Layout) -> usize {
    if layout.root() == Level::PTE { 1 } else { LOW_CLASSES }
}

/// Returns how many pages the depot of a class of low memory may have in its part of `room` frames.
pub(super) fn part(room: usize, class: usize, layout: &Layout) -> usize {
    let roots = if classes(layout) == 1 { room } else { room / ROOT_PART };
    if class == ROOT { roots >> layout.order(layout.root()) } else { (room - roots) >> order(layout) }
}

/// Returns the frames that one page of each class of low memory takes. One smaller than a frame
/// counts as one.
pub(super) fn frames_of_each(layout: &Layout) -> usize {
    let root = 1 << layout.order(layout.root());
    if classes(layout) == 1 { root } else { root + (1 << order(layout)) }
}

/// Returns the order of all tables but roots.
pub(super) fn order(layout: &Layout) -> u8 {
    if layout.root() == Level::PTE { 0 } else { layout.order(Level::PTE) }
}

/// Why lists cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListsError {
    /// A size is out of its range.
    Range {
        /// Which.
        what: &'static str,
        /// The reason.
        value: usize,
        /// The least that it may be.
        least: usize,
        /// The most.
        most: usize,
    },
    /// They do not fit into boot memory.
    Boot(BootMemoryShort),
}

impl fmt::Display for ListsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListsError::Range { what, value, least, most } => {
                write!(f, "quicklists: {what} must be {least} to {most}, not {value}")
            }
            ListsError::Boot(e) => write!(f, "quicklists: {e}"),
        }
    }
}

error!(ListsError: BootMemoryShort => Boot);
