//! `x86_64`: `MappedPageTable` and `OffsetPageTable`. No range operations; empty tables are freed
//! on request only.

use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr;

use x86_64::structures::paging::mapper::{
    CleanUp, MappedPageTable, Mapper, OffsetPageTable, PageTableFrameMapping, Translate,
};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Page, PageTable, PageTableFlags, PhysFrame, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

use ptarmigan_bench::table::contender::{
    CasePages, DEVICE, ForkShape, PAGE, SPARSE, STRIDE, TableCase, TableContender, VIRT, contiguous,
};
use ptarmigan_bench::table::peer_pool;

pub const FLAGS: PageTableFlags =
    PageTableFlags::PRESENT.union(PageTableFlags::WRITABLE).union(PageTableFlags::USER_ACCESSIBLE);

const UNCACHED: PageTableFlags = PageTableFlags::NO_CACHE.union(PageTableFlags::WRITE_THROUGH);

/// Frames from the pool.
pub struct Frames;

// SAFETY: the pool hands each table to one owner at a time.
unsafe impl FrameAllocator<Size4KiB> for Frames {
    // The library zeroes its tables itself, except the root.
    #[inline]
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        Some(frame(peer_pool::alloc_raw()))
    }
}

impl FrameDeallocator<Size4KiB> for Frames {
    #[inline]
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame) {
        peer_pool::free(frame.start_address().as_u64() as usize);
    }
}

/// Maps each table at its own address.
pub struct Identity;

// SAFETY: the pool's "physical" addresses are host addresses.
unsafe impl PageTableFrameMapping for Identity {
    #[inline]
    fn frame_to_pointer(&self, frame: PhysFrame) -> *mut PageTable {
        ptr::with_exposed_provenance_mut(frame.start_address().as_u64() as usize)
    }
}

#[inline]
pub fn page(virt: usize) -> Page {
    Page::containing_address(VirtAddr::new(virt as u64))
}

#[inline]
fn large(virt: usize) -> Page<Size2MiB> {
    Page::containing_address(VirtAddr::new(virt as u64))
}

#[inline]
pub fn frame(phys: usize) -> PhysFrame {
    PhysFrame::containing_address(PhysAddr::new(phys as u64))
}

/// One of the crate's mappers.
pub trait Kind {
    /// The mapper's type.
    type Mapper: Mapper<Size4KiB> + Mapper<Size2MiB> + Translate + CleanUp;
    /// The contender's name.
    const NAME: &'static str;

    /// Creates a mapper over the tree at `root`.
    ///
    /// # Safety
    ///
    /// `root` is a zeroed table from the pool that no other code uses while the mapper lives.
    unsafe fn over(root: usize) -> Self::Mapper;
}

/// `MappedPageTable` with an identity mapping: the crate's fastest.
pub enum Mapped {}

impl Kind for Mapped {
    type Mapper = MappedPageTable<'static, Identity>;
    const NAME: &'static str = "x86_64";

    unsafe fn over(root: usize) -> Self::Mapper {
        // SAFETY: the caller passes an exclusive table, and the pool's arena lives as long as the
        // program.
        unsafe { MappedPageTable::new(&mut *ptr::with_exposed_provenance_mut(root), Identity) }
    }
}

/// `OffsetPageTable` with an offset of 0 that the compiler does not know, as in a kernel.
pub enum Offset {}

impl Kind for Offset {
    type Mapper = OffsetPageTable<'static>;
    const NAME: &'static str = "x86_64-offset";

    unsafe fn over(root: usize) -> Self::Mapper {
        // SAFETY: the caller passes an exclusive table, and the pool's arena lives as long as the
        // program.
        unsafe {
            OffsetPageTable::new(&mut *ptr::with_exposed_provenance_mut(root), VirtAddr::new(black_box(0)))
        }
    }
}

/// The contender.
pub struct X64<K: Kind> {
    space: Option<(usize, K::Mapper)>,
    kind: PhantomData<K>,
}

impl<K: Kind> Default for X64<K> {
    fn default() -> Self {
        X64 { space: None, kind: PhantomData }
    }
}

impl<K: Kind> X64<K> {
    fn mapper(&mut self) -> &mut K::Mapper {
        &mut self.space.as_mut().expect("open comes first").1
    }
}

fn new_space<K: Kind>() -> (usize, K::Mapper) {
    let root = peer_pool::alloc_zeroed();
    // SAFETY: the table is fresh from the pool, zeroed and exclusive.
    (root, unsafe { K::over(root) })
}

impl<K: Kind> TableContender for X64<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn cases(&self) -> &'static [TableCase] {
        // It cannot split.
        &[
            TableCase::Map,
            TableCase::Query,
            TableCase::Unmap,
            TableCase::ForkShape,
            TableCase::LargeMap,
            TableCase::LargeUnmap,
            TableCase::Device,
        ]
    }

    fn open(&mut self) {
        self.space = Some(new_space::<K>());
    }

    fn map(&mut self) {
        let mapper = self.mapper();
        for (virt, phys) in contiguous() {
            // SAFETY: the frames are pretended, and no MMU loads the tree.
            unsafe { mapper.map_to(page(virt), frame(phys), FLAGS, &mut Frames) }.expect("map").ignore();
        }
    }

    fn query(&mut self) -> usize {
        let mapper = self.mapper();
        let mut sum = 0_usize;
        for (virt, _) in contiguous() {
            if let Some(phys) = mapper.translate_addr(VirtAddr::new(virt as u64)) {
                sum = sum.wrapping_add(phys.as_u64() as usize);
            }
        }
        sum
    }

    fn unmap(&mut self) {
        let mapper = self.mapper();
        for (virt, _) in contiguous() {
            let (frame, flush) = mapper.unmap(page(virt)).expect("unmap");
            flush.ignore();
            black_box(frame);
        }
    }

    fn device(&mut self) {
        let mapper = self.mapper();
        for (virt, phys) in CasePages::USUAL.devices() {
            for at in (0..DEVICE).map(|k| k * PAGE) {
                // SAFETY: the frames are pretended, and no MMU loads the tree.
                unsafe { mapper.map_to(page(virt + at), frame(phys + at), FLAGS | UNCACHED, &mut Frames) }
                    .expect("map")
                    .ignore();
            }
        }
    }

    fn large_map(&mut self) {
        let mapper = self.mapper();
        for (virt, phys) in CasePages::USUAL.large_pages() {
            let frame = PhysFrame::<Size2MiB>::containing_address(PhysAddr::new(phys as u64));
            // SAFETY: the frames are pretended, and no MMU loads the tree.
            unsafe { mapper.map_to(large(virt), frame, FLAGS, &mut Frames) }.expect("map").ignore();
        }
    }

    fn large_unmap(&mut self) {
        let mapper = self.mapper();
        for (virt, _) in CasePages::USUAL.large_pages() {
            let (frame, flush) = mapper.unmap(large(virt)).expect("unmap");
            flush.ignore();
            black_box(frame);
        }
    }

    fn close(&mut self) {
        if let Some((root, mut mapper)) = self.space.take() {
            for (virt, _) in CasePages::USUAL.large_pages() {
                if let Ok((_, flush)) = mapper.unmap(large(virt)) {
                    flush.ignore();
                }
            }
            for (virt, _) in contiguous() {
                if let Ok((_, flush)) = mapper.unmap(page(virt)) {
                    flush.ignore();
                }
            }
            // SAFETY: no other tree shares these tables and no MMU walks them.
            unsafe { mapper.clean_up(&mut Frames) };
            drop(mapper);
            peer_pool::free(root);
        }
    }

    fn fork_ways(&self) -> &'static [&'static str] {
        &["cleanup-range", "cleanup"]
    }

    fn fork_shape(&mut self, way: usize, shape: &ForkShape) {
        let range = Page::range_inclusive(page(VIRT), page(VIRT + SPARSE * STRIDE - 1));
        for space in shape.spaces() {
            let (root, mut mapper) = new_space::<K>();
            for (virt, phys) in space.pages() {
                // SAFETY: the frames are pretended, and no MMU loads the tree.
                unsafe { mapper.map_to(page(virt), frame(phys), FLAGS, &mut Frames) }.expect("map").ignore();
            }
            // Only tables without a present entry are cleaned up, so the pages are unmapped first.
            for (virt, _) in space.pages() {
                let (frame, flush) = mapper.unmap(page(virt)).expect("unmap");
                flush.ignore();
                black_box(frame);
            }
            if way == 0 {
                // SAFETY: no other tree shares these tables and no MMU walks them.
                unsafe { mapper.clean_up_addr_range(range, &mut Frames) };
            } else {
                // SAFETY: as above.
                unsafe { mapper.clean_up(&mut Frames) };
            }
            drop(mapper);
            peer_pool::free(root);
        }
    }
}
