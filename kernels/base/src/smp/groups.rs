//! Checks groups of leaves with a hint ([`Format::GROUP_BITS`]) on the machine's own MMU: pages of
//! a tree that this CPU has loaded, each read and written at its address.
//!
//! On RISC-V the hint is part of the translation: an entry of a group tells the size of the group
//! where other entries tell their frame. So each page must show its own frame: in a group, after a
//! part of the group has changed, and when pages have become a group.

use core::convert::Infallible;
use core::fmt::Display;
use core::ops::Range;
use core::ptr;

use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr, VirtRange};
use ptarmigan::cpu::NodeId;
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::{AllocFlags, Dirty, End, Frame, Request, ZoneClass};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::table::{Free, Sizes, Tree, TreeMut};

use super::PAGE;
use crate::direct::direct;
use crate::{fail, fail_if, say};

/// Where the pages are.
const AT: u64 = 0x40_0000;
const ATTR: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);
/// The attributes of a page that nobody writes to.
const READ_ONLY: Attr = Attr(Attr::READ.0 | Attr::ACCESSED.0);
/// Binary logarithm of the frames that pages may show, twice as many as there are pages.
const ORDER: u8 = 6;
const FRAMES: u64 = 1 << ORDER;
/// Pages: two groups of 16.
const PAGES: u64 = FRAMES / 2;
const GROUP: u64 = PAGES / 2;
/// Part of the number in a frame that was written at the address of a page.
const WRITTEN: u64 = 1 << 32;

/// A wrong entry that a run makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// One of a group has the hint, and its own frame's number where the group's size belongs.
    Size,
    /// One that was of a group has no hint any more, and the group's size in its frame's number.
    Unfold,
}

fn must<R, E: Display>(what: &str, result: Result<R, E>) -> R {
    result.unwrap_or_else(|e| fail(format_args!("groups: {what}: {e}")))
}

fn address(page: u64) -> VirtAddr {
    VirtAddr(AT + page * PAGE)
}

fn range(pages: &Range<u64>) -> VirtRange {
    must("pages", VirtRange::new(address(pages.start).0, address(pages.end).0))
}

/// A tree with pages in groups, and the frames that they show.
struct GroupedTree<'m, F: Format, M: Machine> {
    on: On<'m, M>,
    tree: Tree<F>,
    first: Pfn,
}

impl<F: Format, M: Machine> GroupedTree<'_, F, M> {
    fn edit<R, E: Display>(
        &mut self,
        what: &str,
        change: impl FnOnce(&mut TreeMut<'_, F, M>) -> Result<R, E>,
    ) -> R {
        let mut edit = must(what, self.tree.edit(self.on));
        let result = must(what, change(&mut edit));
        edit.flush();
        result
    }

    /// Has pages show the frames from `frame` on, in groups where they fit.
    fn map(&mut self, pages: Range<u64>, frame: u64) {
        let first = Pfn(self.first.0 + frame as u32);
        let sizes = Sizes::up_to(Level::PTE).with_groups();
        // SAFETY: 1. The frames are those of `check`, and no program runs in the tree's space.
        self.edit("a mapping", |edit| unsafe { edit.map_range_large(range(&pages), first, ATTR, sizes) });
    }

    fn unmap(&mut self, pages: Range<u64>) {
        self.edit("unmapping", |edit| {
            edit.unmap_range(range(&pages), Free::Empty, |_, _, _| {});
            Ok::<_, Infallible>(())
        });
    }

    fn protect(&mut self, page: u64, attr: Attr) {
        self.edit("new attributes", |edit| edit.protect(address(page), attr));
    }

    /// Checks that the library takes pages for parts of a group, or for pages alone.
    fn expect(&self, pages: impl IntoIterator<Item = u64>, in_group: bool) {
        let wanted = F::PAGE_SHIFT + if in_group { u32::from(F::GROUP_BITS[0]) } else { 0 };
        for page in pages {
            let shift = self.tree.view().query_leaf(self.on, address(page)).map_or(0, |leaf| leaf.shift);
            fail_if(
                shift != wanted,
                format_args!("groups: the leaf of page {page} has 2^{shift} bytes, not 2^{wanted}"),
            );
        }
    }

    /// Writes what `change` makes of the entry of a page, past the library. No TLB knows the page.
    fn spoil(&self, page: u64, change: impl FnOnce(u64) -> u64) {
        let va = address(page).0;
        let mut table = self.tree.root();
        for level in (1..F::LAYOUT.levels).rev().map(Level) {
            let link = entry(table, F::index(level, va));
            // SAFETY: 1. It is an entry of a table of the tree, which no code changes meanwhile.
            let next = F::linked(level, unsafe { link.read_volatile() });
            table = next.unwrap_or_else(|| fail(format_args!("groups: page {page} has no table")));
        }
        let leaf = entry(table, F::index(Level::PTE, va));
        // SAFETY: 1. As above; only this CPU's MMU uses the entry.
        unsafe { leaf.write_volatile(change(leaf.read_volatile())) };
    }

    /// Returns the first word of a frame.
    fn word(&self, frame: u64) -> *mut u64 {
        direct(self.first.addr().0 + frame * PAGE)
    }

    /// Reads each page, and writes to it if `writes` says so; `shown` is the frame that a page has
    /// to show.
    fn check(&self, when: &str, shown: impl Fn(u64) -> u64, writes: impl Fn(u64) -> bool) {
        for frame in 0..FRAMES {
            // SAFETY: 1. The frame is one of `check`'s, in the direct map.
            unsafe { self.word(frame).write_volatile(frame) };
        }
        for page in 0..PAGES {
            let at: *mut u64 = ptr::with_exposed_provenance_mut(address(page).0 as usize);
            // SAFETY: 1. The page is mapped in the space that this CPU has loaded, to one of
            // `check`'s frames. If it is mapped wrongly, the run ends.
            let seen = unsafe { at.read_volatile() };
            fail_if(
                seen != shown(page),
                format_args!("groups: {when}, page {page} shows frame {seen:#x}, not {:#x}", shown(page)),
            );
            if writes(page) {
                // SAFETY: 1. As above.
                unsafe { at.write_volatile(seen | WRITTEN) };
            }
        }
        for frame in 0..FRAMES {
            let is_written = (0..PAGES).any(|page| shown(page) == frame && writes(page));
            let wanted = frame | if is_written { WRITTEN } else { 0 };
            // SAFETY: 1. As above.
            let found = unsafe { self.word(frame).read_volatile() };
            fail_if(
                found != wanted,
                format_args!("groups: {when}, frame {frame:#x} has {found:#x}, not {wanted:#x}"),
            );
        }
    }
}

fn entry(table: PhysAddr, index: usize) -> *mut u64 {
    direct::<u64>(table.0).wrapping_add(index)
}

/// Maps groups of pages of format `F`, changes parts of them, makes groups of pages again, and
/// reads and writes each page meanwhile. `makes` says which mistakes this run makes.
pub fn check<F: Format, M: Machine>(on: On<'_, M>, makes: impl Fn(Mistake) -> bool) {
    let request = Request {
        node: NodeId(0),
        order: ORDER,
        zero: false,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    let first = must("frames", on.frames().take(request)).dirty().into_raw();
    let tree = must("a tree", Tree::<F>::new(on, AllocFlags::NORMAL));
    let mut groups = GroupedTree { on, tree, first };
    let all = |_| true;

    groups.map(0..PAGES, 0);
    groups.expect([0, 9, PAGES - 1], true);
    if makes(Mistake::Size) {
        groups.spoil(9, |raw| raw | F::unhinted(Level::PTE, F::index(Level::PTE, address(9).0), raw));
    }
    must("a switch", groups.tree.activate(on));
    groups.check("in groups", |page| page, all);

    // A part of a group changes; the other group stays one.
    groups.protect(3, READ_ONLY);
    groups.expect([0, 3, GROUP - 1], false);
    groups.expect([GROUP], true);
    if makes(Mistake::Unfold) {
        let named = Pfn(first.0 + GROUP as u32 / 2);
        groups.spoil(4, |_| F::leaf(Level::PTE, named, ATTR));
    }
    groups.check("in a part of a group", |page| page, |page| page != 3);

    // A page of it goes, and shows another frame.
    groups.unmap(5..6);
    groups.map(5..6, PAGES + 5);
    let moved = |page| if page == 5 { PAGES + 5 } else { page };
    groups.check("beside a page that moved", moved, |page| page != 3);

    // The pages become a group again.
    groups.unmap(5..6);
    groups.map(5..6, 5);
    groups.protect(3, ATTR);
    groups.expect(0..GROUP, false);
    groups.edit("a group of pages", |edit| edit.make_group(address(0), Level::PTE));
    groups.expect(0..PAGES, true);
    groups.check("in a group of pages", |page| page, all);

    // Parts of both groups go; then all, and groups of other frames come.
    let gap = GROUP - 4..GROUP + 4;
    groups.unmap(gap.clone());
    groups.map(gap.clone(), PAGES + gap.start);
    groups.expect([0, GROUP - 4, GROUP, PAGES - 1], false);
    let moved = |page| if gap.contains(&page) { PAGES + page } else { page };
    groups.check("between parts of groups", moved, all);
    groups.unmap(0..PAGES);
    groups.map(0..PAGES, PAGES);
    groups.expect([0, PAGES - 1], true);
    groups.check("in other groups", |page| PAGES + page, all);

    groups.unmap(0..PAGES);
    must("a switch", groups.tree.deactivate(on));
    must("the end", groups.tree.end(on, |_, _, _| {}).map_err(|refused| refused.error));
    // SAFETY: 1. It came from `take`, and no tree shows it any more. 2. `Dirty` makes no claim
    // about the content.
    on.frames().give(unsafe { Frame::<Dirty>::from_raw(on.frames().machine(), first, ORDER) });
    say!("pages in groups of {} KiB show their frames", (GROUP * PAGE) >> 10);
}
