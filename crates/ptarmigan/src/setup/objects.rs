//! Backing objects of areas that are not anonymous.
use crate::addr::Pfn;

/// Backing objects: files, shared memory, devices that areas show.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. Programs may do with the pages that [`frame`](Self::frame),
///    [`frames_at_hand`](Self::frames_at_hand) and [`block`](Self::block) name, all pages of a
///    block, what the area that shows them allows, as long as any space shows them; no data frame
///    of the machine is among them. A page of the machine's format that has several frames is
///    aligned to its size.
pub unsafe trait Objects: Sync {
    /// Returns the first frame of the page in which page `page` (counted from its start) of object
    /// `object` is kept, not counted; `None` if there is none (beyond the end of a file).
    ///
    /// It is called while a fault is served: an implementation must not work on the space that
    /// faults. Code in a frame that is not of the machine's memory (a part of the kernel's image)
    /// is made visible to instruction fetches by the kernel, before an area shows it.
    fn frame(&self, object: u32, page: u64) -> Option<Pfn>;

    /// Returns how many pages a fault that reads one maps at most; see
    /// [`SpaceMachine::fault_around`](crate::space::SpaceMachine::fault_around).
    fn fault_around(&self) -> u32 {
        1
    }

    /// As [`frame`](Self::frame), for the pages from `first` on, as far as that takes no wait and
    /// no other work; see
    /// [`SpaceMachine::frames_at_hand`](crate::space::SpaceMachine::frames_at_hand).
    fn frames_at_hand(&self, _object: u32, _first: u64, _frames: &mut [Pfn]) {}

    /// Returns the first frame of the block in which the `pages` pages of `object` from `page` on
    /// are kept, for a large page; `None` if they are not kept in one. See
    /// [`SpaceMachine::backing_block`](crate::space::SpaceMachine::backing_block).
    fn block(&self, _object: u32, _page: u64, _pages: u32) -> Option<Pfn> {
        None
    }
}

/// No objects: areas with a backing fault as beyond the end of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

// SAFETY: 1. it names no frame.
unsafe impl Objects for NoObjects {
    #[inline]
    fn frame(&self, _: u32, _: u64) -> Option<Pfn> {
        None
    }
}

// SAFETY: 1. by the objects behind the reference.
unsafe impl<O: Objects + ?Sized> Objects for &O {
    #[inline]
    fn frame(&self, object: u32, page: u64) -> Option<Pfn> {
        (**self).frame(object, page)
    }

    #[inline]
    fn fault_around(&self) -> u32 {
        (**self).fault_around()
    }

    #[inline]
    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        (**self).frames_at_hand(object, first, frames);
    }

    #[inline]
    fn block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        (**self).block(object, page, pages)
    }
}
