//! Shows a space to observers.
use ptarmigan::addr::VirtRange;
use ptarmigan::format::Format;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Area, Space};

/// When an observer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the operation.
    Before,
    /// After it.
    After,
}

/// A space, as an observer sees it.
pub trait Look {
    /// Returns the area at an address.
    fn area(&self, va: u64) -> Option<Area>;

    /// Returns how many pages of `range` are mapped.
    fn pages(&self, range: VirtRange) -> u64;
}

/// A space of the library.
pub(crate) struct SpaceLook<'a, F: Format, M> {
    pub space: &'a Space<F>,
    pub on: On<'a, M>,
}

impl<F: Format, M: Machine> Look for SpaceLook<'_, F, M> {
    fn area(&self, va: u64) -> Option<Area> {
        self.space.areas().find(self.on, va)
    }

    fn pages(&self, range: VirtRange) -> u64 {
        let mut pages = 0;
        let walked = self.space.tree().walk(self.on, range, |_, _, _| pages += 1);
        debug_assert!(walked.is_ok(), "the space is of this machine");
        pages
    }
}
