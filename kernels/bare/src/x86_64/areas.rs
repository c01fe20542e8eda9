//! Checks areas of the kernel's half on the real MMU: each page keeps its own value in every space;
//! guard pages and freed areas fault.

use ptarmigan::addr::VirtAddr;
use ptarmigan::bootmem::BootMemory;
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::table::Tree;
use ptarmigan::vmalloc::{Area, Vmalloc};
use ptarmigan::window::DirectMap;

use ptarmigan_kernel_base::say;

use super::machine::{AnnouncedMachine, here, pin, read, write};

const START: VirtAddr = VirtAddr(0xffff_c000_0000_0000);
const BYTES: u64 = 4 << 20;
const PAGE: u64 = 4096;
const AREAS: u64 = 6;
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0);

/// Calls `visit` for each page of an area, with a value of its own.
fn each_page(area: &Area<'_>, mut visit: impl FnMut(u64, u64)) {
    for page in 0..area.pages() {
        let address = area.start().0 + page * PAGE;
        visit(address, address ^ 0x5a5a_5a5a);
    }
}

/// Runs the checks; panics at the first that fails.
pub fn check(m: &AnnouncedMachine, boot: &mut BootMemory) {
    let pin = pin(m);
    let on = here(m, &pin);
    let spaces = [(); 2].map(|()| {
        Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap_or_else(|e| panic!("no root table: {e}"))
    });
    assert!(spaces[0].activate(on).is_ok());
    let range = m.kernel_map().claim(on, START, BYTES).unwrap_or_else(|e| panic!("no range: {e}"));
    let areas = Vmalloc::<X86_64, DirectMap>::new(boot, range);
    let mut areas = areas.unwrap_or_else(|refused| panic!("no areas: {}", refused.error));

    // Made in one space, with its root in the register, and used in the other.
    let made = core::array::from_fn::<_, { AREAS as usize }, _>(|i| {
        let area = areas.alloc(on, 1 + i as u64 * 7, RW, AllocFlags::NORMAL);
        let area = area.unwrap_or_else(|e| panic!("no area: {e}"));
        each_page(&area, |address, value| assert!(write(address, value), "an area is not mapped"));
        area
    });
    assert!(spaces[1].activate(on).is_ok());
    for area in &made {
        each_page(area, |address, value| assert_eq!(read(address), Some(value), "another frame's content"));
        let end = area.start().0 + area.pages() * PAGE;
        assert_eq!((read(area.start().0 - 8), read(end)), (None, None), "a guard page can be read");
    }

    // A page that is read-only keeps its content.
    let changed = areas.protect(on, &made[1], |attr| attr.without(Attr::WRITE));
    assert!(changed.is_ok() && !write(made[1].start().0, 0), "a write to what may be read only");
    each_page(&made[1], |address, value| assert_eq!(read(address), Some(value)));

    let mut pages = 0;
    for area in made {
        pages += area.pages();
        let (first, last) = (area.start().0, area.start().0 + (area.pages() - 1) * PAGE);
        assert!(areas.free(on, area).is_ok());
        assert_eq!((read(first), read(last)), (None, None), "an area can be read that has been freed");
    }
    let range = areas.into_range().unwrap_or_else(|refused| panic!("{}", refused.error));
    assert!(range.release(on, |_, _| panic!("a page is left")).is_ok());
    for space in spaces {
        assert!(space.end(on, |_, _, _| panic!("a page of nobody's")).is_ok());
    }
    say!("{AREAS} areas of {pages} pages, with guard pages");
}
