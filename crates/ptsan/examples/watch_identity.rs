//! Kernel code as it is: a released mapper under an identity map, with the instructions that load
//! CR3 and flush. The second page is unmapped without a flush.
//!
//! `cargo run -p ptsan --features watch --example watch_identity`
use ptsan::watch::{Ended, Error, Watch};
use ptsan::{Access, Arch, Config, Content, Sanitizer};
use x86_64::registers::control::{Cr3, Cr3Flags};
use x86_64::structures::paging::{
    FrameAllocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags, PhysFrame, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

/// The kernel's allocator of table frames: the only code that knows of the sanitizer.
struct Frames<'a>(&'a Watch, u64);

// SAFETY: each frame is allocated once.
unsafe impl FrameAllocator<Size4KiB> for Frames<'_> {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.with(|san, ram| san.table_allocated(ram, self.1, 4096, None, Content::Zero));
        self.1 += 4096;
        PhysFrame::from_start_address(PhysAddr::new(self.1 - 4096)).ok()
    }
}

fn kernel(mut frames: Frames<'_>, program: impl Fn(u64)) {
    let root = frames.allocate_frame().expect("a frame");
    let table = std::ptr::with_exposed_provenance_mut::<PageTable>(root.start_address().as_u64() as usize);
    // SAFETY: physical addresses are addresses here, the root is an empty table, and only this
    // mapper stores to the tables.
    let mut mapper = unsafe { OffsetPageTable::new(&mut *table, VirtAddr::new(0)) };
    // SAFETY: the kernel does not run on the tables: the register is emulated.
    unsafe { Cr3::write(root, Cr3Flags::empty()) };
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE | PageTableFlags::USER_ACCESSIBLE;
    for address in [0x40_0000, 0x40_1000] {
        let page = Page::<Size4KiB>::containing_address(VirtAddr::new(address));
        // SAFETY: the program has no other pages.
        unsafe { mapper.map_to(page, root + 8, flags, &mut frames) }.expect("maps").flush();
        program(address);
        let (_, flush) = mapper.unmap(page).expect("mapped");
        if address == 0x40_0000 {
            flush.flush()
        } else {
            flush.ignore()
        }
        program(address);
    }
    x86_64::instructions::hlt();
}

fn main() -> Result<(), Error> {
    let watch = Watch::identity(1 << 16, Sanitizer::new(Config::new(Arch::x86_64())))?;
    let program = |address| watch.with(|san, ram| _ = san.translate(ram, 0, address, Access::READ));
    // SAFETY: 1. The kernel leaves no value behind that must be dropped. 2. The instructions that
    // it executes are emulated.
    let ended = unsafe { watch.run_on(0, || kernel(Frames(&watch, watch.memory().start()), program)) }?;
    assert!(matches!(ended, Ended::Halted { .. }), "the kernel ends with hlt");
    println!("{} stores, {watch}", watch.stores());
    Ok(())
}
