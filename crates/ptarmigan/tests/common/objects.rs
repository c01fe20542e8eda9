//! A machine with objects, whose pages lie in blocks of frames.
use ptarmigan::addr::Pfn;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{DataFrames, Dirty, Frame, Frames, NoFrame};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::parking::Parking;
use ptarmigan::setup::Objects;
use ptarmigan::space::{SpaceMachine, ZeroBlock};
use ptarmigan::tlb::Tlb;
use ptarmigan_hosted::Host;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The object that has its pages in blocks of the size of a large page.
pub const IN_BLOCKS: u32 = 1;
/// The object that shows the same frames and says so page by page.
pub const IN_PAGES: u32 = 2;

/// The frames of the objects.
pub struct Store {
    blocks: Vec<Frame<Dirty>>,
    /// Binary logarithm of the pages of a block.
    bits: u32,
    /// Binary logarithm of the frames of a page.
    page_order: u8,
    /// Pages that the objects have at most.
    most: u64,
    /// Pages that the objects have: they may be cut short.
    pages: AtomicU64,
}

impl Store {
    /// Takes `blocks` blocks of the host's memory, each of the size of a large page of `F`, or of
    /// 4 MiB if that is less. The objects have half a block less.
    pub fn new<F: Format>(host: &Host<F>, blocks: usize) -> Self {
        let bits = F::shift(Level(1)).min(22) - F::PAGE_SHIFT;
        let order = bits as u8 + F::PAGE_ORDER;
        let blocks = (0..blocks).map(|_| host.frames().take(request(order)).expect("a free block").dirty());
        let blocks: Vec<_> = blocks.collect();
        let half = if blocks.is_empty() { 0 } else { 1 << (bits - 1) };
        let most = ((blocks.len() as u64) << bits) - half;
        Store { blocks, bits, page_order: F::PAGE_ORDER, most, pages: AtomicU64::new(most) }
    }

    /// Gives the blocks back: no space shows one any more.
    pub fn end<F: Format>(self, host: &Host<F>) {
        self.blocks.into_iter().for_each(|block| host.frames().give(block));
    }

    /// Returns how many pages the objects have.
    pub fn pages(&self) -> u64 {
        self.pages.load(SeqCst)
    }

    /// Returns how many pages the objects have at most.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Gives the objects so many pages. Spaces that show others have to unmap them.
    pub fn resize(&self, pages: u64) {
        assert!(pages <= self.most);
        self.pages.store(pages, SeqCst);
    }

    /// Returns the first frame of a page.
    pub fn page(&self, page: u64) -> Option<Pfn> {
        let block = self.blocks.get((page >> self.bits) as usize).filter(|_| page < self.pages())?;
        let frames = ((page & ((1 << self.bits) - 1)) as u32) << self.page_order;
        Some(Pfn(block.pfn().0 + frames))
    }
}

fn request(order: u8) -> ptarmigan::frames::Request {
    use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
    let (class, end, node) = (ZoneClass::Low, End::Low, ptarmigan::cpu::NodeId(0));
    Request { node, order, zero: false, class, end, flags: AllocFlags::NORMAL }
}

// SAFETY: 1. the blocks are the test's for as long as a space shows them, and no data frames. Each
// is aligned to its size.
unsafe impl Objects for Store {
    fn frame(&self, _: u32, page: u64) -> Option<Pfn> {
        self.page(page)
    }
    fn fault_around(&self) -> u32 {
        8
    }
    fn frames_at_hand(&self, _: u32, first: u64, frames: &mut [Pfn]) {
        for (page, frame) in (first..).zip(frames).filter(|(page, _)| !page.is_multiple_of(3)) {
            *frame = self.page(page).unwrap_or(Pfn::NONE);
        }
    }
    fn block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        let is_block = object == IN_BLOCKS && pages == 1 << self.bits;
        // The library looks whether it is aligned.
        let first = self.page(page).filter(|_| is_block)?;
        self.page(page + u64::from(pages) - 1).map(|_| first)
    }
}

/// The machine `inner`, with objects.
pub struct WithObjects<'a, M, O> {
    pub inner: M,
    pub objects: &'a O,
}

// SAFETY: 1. to 3. the parts are those of `inner`, which nobody else uses.
unsafe impl<M: Machine, O: Sync> Machine for WithObjects<'_, M, O> {
    const HIGH_TABLES: bool = M::HIGH_TABLES;
    type Window = M::Window;
    type Policy = M::Policy;
    type Shootdown = M::Shootdown;

    fn frames(&self) -> &Frames {
        self.inner.frames()
    }
    fn data(&self) -> &DataFrames {
        self.inner.data()
    }
    fn window(&self) -> &Self::Window {
        self.inner.window()
    }
    fn policy(&self) -> &Self::Policy {
        self.inner.policy()
    }
    fn tlb(&self) -> &Tlb<Self::Shootdown> {
        self.inner.tlb()
    }
    fn parking(&self) -> &Parking {
        self.inner.parking()
    }
    unsafe fn clear_data(&self, pin: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        // SAFETY: passed on.
        unsafe { self.inner.clear_data(pin, frame) }
    }
    unsafe fn copy_data(&self, pin: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        // SAFETY: passed on.
        unsafe { self.inner.copy_data(pin, from, to) }
    }
}

// SAFETY: 1. and 3. as `inner`. 2. by the objects, whose pages are those of its format.
unsafe impl<M: SpaceMachine, O: Objects> SpaceMachine for WithObjects<'_, M, O> {
    const PAGE_SHIFT: u32 = M::PAGE_SHIFT;

    fn zero_frame(&self) -> Pfn {
        self.inner.zero_frame()
    }
    fn zero_block(&self) -> Option<&ZeroBlock> {
        self.inner.zero_block()
    }
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.objects.frame(object, page)
    }
    fn fault_around(&self) -> u32 {
        self.objects.fault_around()
    }
    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        self.objects.frames_at_hand(object, first, frames);
    }
    fn backing_block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        self.objects.block(object, page, pages)
    }
}
