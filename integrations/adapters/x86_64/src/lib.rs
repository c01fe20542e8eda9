//! The release candidate of `x86_64` 0.16 under `ptsan`: its mappers over a [`Machine`], and its
//! flush tokens forwarded to the software MMU.
//!
//! `ptsan::adapters::x86_64` is the same for 0.15. It follows when 0.16 is released: until then the
//! crate's minimum, Rust 1.98, stays out of `ptsan`.
//!
//! ```
//! use ptsan::adapters::Machine;
//! use ptsan::{Access, Arch, Config};
//! use ptsan_x86_64_0_16::{Forward, Space};
//! use x86_64::structures::paging::{Mapper, Page, PageTableFlags as Flags, PhysFrame, Size4KiB};
//! use x86_64::{PhysAddr, VirtAddr};
//!
//! let machine = Machine::new(Config::new(Arch::x86_64()));
//! let mut space = Space::new(&machine, 1).unwrap();
//! machine.load(0, space.root(), 1);
//! let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x7000));
//! let frame = PhysFrame::containing_address(PhysAddr::new(0x123_4000));
//! let flags = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
//! let mut frames = space.frames();
//! // SAFETY: the frame is simulated.
//! unsafe { space.mapper().map_to(page, frame, flags, &mut frames) }.unwrap().forward(&machine, 1);
//! assert_eq!(machine.access(0, 0x7008, Access::WRITE).unwrap().phys, 0x123_4008);
//! ```
use ptsan::adapters::{FRAME, Machine};
use ptsan::{Content, Flush};
use x86_64::PhysAddr;
use x86_64::structures::paging::mapper::{MapperFlush, MapperFlushAll, PageTableFrameMapping};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, MappedPageTable, PageSize, PageTable, PhysFrame, Size4KiB,
};

/// The machine's frames, as the crate's allocator.
#[derive(Clone, Debug)]
pub struct Frames {
    machine: Machine,
    content: Content,
}

impl Frames {
    /// Makes the allocator clear the frames, which the crate does not ask for.
    #[must_use]
    pub fn zeroed(self) -> Self {
        Self { content: Content::Zero, ..self }
    }
}

// SAFETY: `Machine::allocate` takes a frame off the list, so each is allocated once until it is
// freed.
unsafe impl FrameAllocator<Size4KiB> for Frames {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.machine.allocate(self.content).map(|frame| PhysFrame::containing_address(PhysAddr::new(frame)))
    }
}

impl FrameDeallocator<Size4KiB> for Frames {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        self.machine.free(frame.start_address().as_u64(), FRAME);
    }
}

/// Reaches tables by their frame: every access is a moment at which walkers may walk.
#[derive(Clone, Debug)]
pub struct Mapping(Machine);

// SAFETY: a machine's frames are valid for reads and writes while the machine lives, and this holds
// it.
unsafe impl PageTableFrameMapping for Mapping {
    fn frame_to_pointer(&self, frame: PhysFrame) -> *mut PageTable {
        self.0.pointer(frame.start_address().as_u64()).cast()
    }
}

/// An address space: a zeroed root, and the number by which the CPUs know it.
#[derive(Debug)]
pub struct Space {
    machine: Machine,
    root: u64,
}

impl Space {
    /// Creates a space without mappings, or returns `None` if no frame is left.
    #[must_use]
    pub fn new(machine: &Machine, number: u64) -> Option<Self> {
        let root = machine.allocate(Content::Zero)?;
        machine.sanitizer(|san, _| san.space_created(number));
        Some(Self { machine: machine.clone(), root })
    }

    /// Returns the physical address of the root.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Returns the allocator for the mapper.
    #[must_use]
    pub fn frames(&self) -> Frames {
        Frames { machine: self.machine.clone(), content: Content::Unknown }
    }

    /// Returns the crate's mapper.
    pub fn mapper(&mut self) -> MappedPageTable<'_, Mapping> {
        let root = self.machine.pointer(self.root).cast::<PageTable>();
        // SAFETY: 1. The root was allocated zeroed, belongs to this space and is freed with it
        // alone. 2. `&mut self` excludes another mapper. 3. All tables are the machine's, which
        // `Mapping` reaches.
        unsafe { MappedPageTable::new(&mut *root, Mapping(self.machine.clone())) }
    }

    /// Frees the root. The tables below must be gone, and no CPU may have it loaded.
    pub fn destroy(self) {
        self.machine.free(self.root, FRAME);
    }
}

/// Carries out a flush token on the software MMU, in place of the token's own `flush`, which is an
/// instruction for the kernel alone.
pub trait Forward {
    /// Carries out the flush for `space` on every CPU, at this moment.
    fn forward(self, machine: &Machine, space: u64);
}

impl<S: PageSize> Forward for MapperFlush<S> {
    fn forward(self, machine: &Machine, space: u64) {
        machine.flush_everywhere(Flush::page(space, self.page().start_address().as_u64()));
        self.ignore();
    }
}

impl Forward for MapperFlushAll {
    fn forward(self, machine: &Machine, space: u64) {
        machine.flush_everywhere(Flush::space(space));
        self.ignore();
    }
}
