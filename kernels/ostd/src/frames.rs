//! The allocator that ostd is given. Single frames come from one of three sources, all others from
//! ostd's own allocator.
//!
//! ostd asks for frames by their layout, and may give a block back in pieces. So each source has
//! memory of its own, and an address tells where a frame came from.
use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use osdk_frame_allocator::FrameAllocator;
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::{PAGE_SIZE, Paddr};
use spin::Once;

use crate::data::Data;
use crate::tables::Tables;

/// Bytes of memory for each of the library's two sources.
const BYTES: usize = 64 << 20;

/// Where single frames come from.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// ostd's own allocator.
    Default,
    /// The library's data frames, content unknown.
    Data,
    /// The library's table pages, zero.
    Tables,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 3] = [Source::Default, Source::Data, Source::Tables];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Data => "data frames",
            Source::Tables => "table pages",
        }
    }
}

/// The library's two sources, and their memory: the first half is that of the data frames.
struct Library {
    own: Range<Paddr>,
    data: Data,
    tables: Tables,
}

/// All sources.
pub struct Shared {
    library: Once<Library>,
    source: AtomicU8,
    taken: AtomicUsize,
    given: AtomicUsize,
}

impl Shared {
    /// Makes one without memory, whose frames come from ostd's own allocator.
    pub const fn new() -> Self {
        Shared {
            library: Once::new(),
            source: AtomicU8::new(Source::Default as u8),
            taken: AtomicUsize::new(0),
            given: AtomicUsize::new(0),
        }
    }

    /// Takes single frames from `source` from now on.
    pub fn choose(&self, source: Source) {
        self.source.store(source as u8, Relaxed);
    }

    /// Returns how many single frames were handed out, and how many came back.
    pub fn counts(&self) -> (usize, usize) {
        (self.taken.load(Relaxed), self.given.load(Relaxed))
    }

    /// Returns the library's table pages.
    pub fn tables(&self) -> Option<&Tables> {
        self.library.get().map(|library| &library.tables)
    }

    fn take(&self) -> Option<Paddr> {
        let source = self.source.load(Relaxed);
        if source == Source::Default as u8 {
            return None;
        }
        let library = self.library.get()?;
        if source == Source::Data as u8 { library.data.take() } else { library.tables.take() }
    }
}

/// Adds one. There is one CPU, and a handler of interrupts may get lost: the count is for checks.
fn add(count: &AtomicUsize) {
    count.store(count.load(Relaxed) + 1, Relaxed);
}

impl GlobalFrameAllocator for Shared {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        let is_single = layout.size() == PAGE_SIZE && layout.align() <= PAGE_SIZE;
        if !is_single {
            return FrameAllocator.alloc(layout);
        }
        add(&self.taken);
        self.take().or_else(|| FrameAllocator.alloc(layout))
    }

    fn dealloc(&self, addr: Paddr, size: usize) {
        if size == PAGE_SIZE {
            add(&self.given);
        }
        let Some(library) = self.library.get().filter(|library| library.own.contains(&addr)) else {
            return FrameAllocator.dealloc(addr, size);
        };
        for frame in (addr..addr + size).step_by(PAGE_SIZE) {
            if frame < library.own.start + BYTES {
                // SAFETY: 1. the address lies in the source's memory, of which it alone hands
                // frames out. 2. ostd gives a frame back once, when its last handle is dropped: a
                // table after the flush and the grace period that it may need.
                unsafe { library.data.give(frame) };
            } else {
                // SAFETY: 1. and 2. as for data frames.
                unsafe { library.tables.give(frame) };
            }
        }
    }

    fn add_free_memory(&self, addr: Paddr, size: usize) {
        let mut rest = size;
        if self.library.get().is_none() && size >= 4 * BYTES {
            rest -= 2 * BYTES;
            let own = addr + rest..addr + size;
            let middle = own.start + BYTES;
            self.library.call_once(|| {
                // SAFETY: 1. ostd has just handed the memory over, and no other code is told of it.
                let data = unsafe { Data::new(own.start..middle) };
                // SAFETY: 1. as for data frames, and it is the other half.
                let tables = unsafe { Tables::new(middle..own.end) };
                Library { own, data, tables }
            });
        }
        FrameAllocator.add_free_memory(addr, rest);
    }
}
