//! Hand-written code without abstractions over x86-64 entries: the limit of each shape on this
//! machine, not a product.
//!
//! Single-page cases walk all four levels every time; ranges keep the pointer to the leaf table.
//! For `fork-shape`, [`TableYardstick`] knows which entries it wrote and clears them. So its tables
//! are zero when they are freed and are reused without a memset. [`ZeroingYardstick`] works as the
//! peers do: it zeroes a table on allocation and scans it on teardown.

use std::hint::black_box;
use std::ptr;

use super::contender::{
    CasePages, DEVICE, ForkShape, PAGE, PAGES, PHYS, SPARSE, STRIDE, TableCase, TableContender, VIRT,
    contiguous,
};
use super::peer_pool;

/// Present, writable, user.
const FLAGS: u64 = 7;
/// Marks a leaf above the lowest level.
const LARGE: u64 = 1 << 7;
/// PCD and PWT.
const UNCACHED: u64 = 0x18;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Tables on the known-zero list; one space of `fork-shape` needs 35.
const LISTED: usize = 256;

const USUAL: CasePages = CasePages::USUAL;

type Table = *mut u64;

fn table(address: usize) -> Table {
    ptr::with_exposed_provenance_mut(address)
}

#[inline]
fn target(entry: u64) -> Table {
    table((entry & ADDRESS) as usize)
}

/// Returns the entry for `virt` in a table of this level; level 0 is the leaf.
///
/// # Safety
///
/// `table` is a table of 512 entries.
#[inline]
unsafe fn entry(table: Table, virt: usize, level: usize) -> *mut u64 {
    // SAFETY: the index is below 512.
    unsafe { table.add((virt >> (12 + 9 * level)) & 511) }
}

/// Returns the leaf entry for `virt`, and allocates missing tables with `zeroed`.
///
/// # Safety
///
/// As for [`slot`]; `virt` is in no large page.
#[inline]
unsafe fn leaf(root: Table, virt: usize, zeroed: impl FnMut() -> usize) -> *mut u64 {
    // SAFETY: by the caller.
    unsafe { slot(root, virt, 0, zeroed) }
}

/// Returns the entry for `virt` in a table of level `to`, and allocates missing tables with
/// `zeroed`.
///
/// # Safety
///
/// `root` is the root of a tree built by this function alone, whose leaves are in tables of level
/// `to` or lower, and `zeroed` returns zeroed tables.
#[inline]
unsafe fn slot(root: Table, virt: usize, to: usize, mut zeroed: impl FnMut() -> usize) -> *mut u64 {
    let mut at = root;
    for level in (to + 1..4).rev() {
        // SAFETY: `at` is the root or a table that this function linked.
        unsafe {
            let link = entry(at, virt, level);
            if *link == 0 {
                *link = zeroed() as u64 | FLAGS;
            }
            at = target(*link);
        }
    }
    // SAFETY: `at` is a table of level `to`.
    unsafe { entry(at, virt, to) }
}

/// Frees a tree by scanning all 512 entries of every table above the leaves.
///
/// # Safety
///
/// `root` is the root of a tree of `level + 1` levels that nothing else uses.
unsafe fn drop_tree(root: Table, level: usize) {
    if level > 0 {
        for i in 0..512 {
            // SAFETY: a table has 512 entries, and those of upper levels are 0, link a table, or
            // are marked as large pages.
            unsafe {
                let link = *root.add(i);
                if link & (LARGE | 1) == 1 {
                    drop_tree(target(link), level - 1);
                }
            }
        }
    }
    peer_pool::free(root.addr());
}

/// The yardstick with the known-zero list.
pub struct TableYardstick {
    root: Table,
    zero: Vec<usize>,
}

impl Default for TableYardstick {
    fn default() -> Self {
        TableYardstick { root: ptr::null_mut(), zero: Vec::with_capacity(LISTED) }
    }
}

#[inline]
fn take(zero: &mut Vec<usize>) -> usize {
    zero.pop().unwrap_or_else(peer_pool::alloc_zeroed)
}

#[inline]
fn put(zero: &mut Vec<usize>, table: Table) {
    if zero.len() < LISTED {
        zero.push(table.addr());
    } else {
        peer_pool::free(table.addr());
    }
}

impl TableContender for TableYardstick {
    fn name(&self) -> &'static str {
        "yardstick"
    }

    fn open(&mut self) {
        self.root = table(peer_pool::alloc_zeroed());
    }

    fn map(&mut self) {
        for (virt, phys) in contiguous() {
            // SAFETY: `root` is the tree of `open`.
            unsafe {
                let leaf = leaf(self.root, virt, peer_pool::alloc_zeroed);
                assert!(*leaf == 0);
                leaf.write_volatile(phys as u64 | FLAGS);
            }
        }
    }

    fn query(&mut self) -> usize {
        let mut sum = 0_usize;
        'pages: for (virt, _) in contiguous() {
            let mut at = self.root;
            for level in (1..4).rev() {
                // SAFETY: `at` is the root or a linked table.
                let link = unsafe { *entry(at, virt, level) };
                if link & 1 == 0 {
                    continue 'pages;
                }
                at = target(link);
            }
            // SAFETY: `at` is a leaf table.
            let leaf = unsafe { *entry(at, virt, 0) };
            sum = sum.wrapping_add((leaf & ADDRESS) as usize);
        }
        sum
    }

    fn unmap(&mut self) {
        for (virt, _) in contiguous() {
            // SAFETY: `root` is the tree of `open`.
            unsafe {
                let leaf = leaf(self.root, virt, peer_pool::alloc_zeroed);
                assert!(*leaf & 1 != 0);
                black_box(*leaf);
                leaf.write_volatile(0);
            }
        }
    }

    fn map_range(&mut self) {
        for i in (0..PAGES).step_by(512) {
            // SAFETY: `root` is the tree of `open`, the range starts at a leaf table's border, and
            // a leaf has 512 entries.
            unsafe {
                let first = leaf(self.root, VIRT + i * PAGE, peer_pool::alloc_zeroed);
                for k in 0..512 {
                    let leaf = first.add(k);
                    assert!(*leaf == 0);
                    leaf.write_volatile((PHYS + (i + k) * PAGE) as u64 | FLAGS);
                }
            }
        }
    }

    fn unmap_range(&mut self) {
        for i in (0..PAGES).step_by(512) {
            // SAFETY: as in `map_range`.
            unsafe {
                let first = leaf(self.root, VIRT + i * PAGE, peer_pool::alloc_zeroed);
                for k in 0..512 {
                    let leaf = first.add(k);
                    black_box(*leaf);
                    leaf.write_volatile(0);
                }
            }
        }
    }

    fn large_map(&mut self) {
        for i in (0..USUAL.large()).step_by(512) {
            // SAFETY: `root` is the tree of `open`, the range starts at the border of a table of
            // level 1, and such a table has 512 entries.
            unsafe {
                let first = slot(self.root, VIRT + i * STRIDE, 1, peer_pool::alloc_zeroed);
                for k in 0..512 {
                    let leaf = first.add(k);
                    assert!(*leaf == 0);
                    leaf.write_volatile((PHYS + (i + k) * STRIDE) as u64 | FLAGS | LARGE);
                }
            }
        }
    }

    fn large_unmap(&mut self) {
        for i in (0..USUAL.large()).step_by(512) {
            // SAFETY: as in `large_map`.
            unsafe {
                let first = slot(self.root, VIRT + i * STRIDE, 1, peer_pool::alloc_zeroed);
                for k in 0..512 {
                    let leaf = first.add(k);
                    black_box(*leaf);
                    leaf.write_volatile(0);
                }
            }
        }
    }

    fn device(&mut self) {
        for (virt, phys) in USUAL.devices() {
            // SAFETY: `root` is the tree of `open`, and the pages of a device lie in one table.
            unsafe {
                let first = leaf(self.root, virt, peer_pool::alloc_zeroed);
                for k in 0..DEVICE {
                    let leaf = first.add(k);
                    assert!(*leaf == 0);
                    leaf.write_volatile((phys + k * PAGE) as u64 | FLAGS | UNCACHED);
                }
            }
        }
    }

    fn large_split(&mut self) {
        for (virt, _) in USUAL.large_pages().take(USUAL.split()) {
            // SAFETY: `root` is the tree of `open`. A table has 512 entries, and all are written
            // before it is linked.
            unsafe {
                let large = slot(self.root, virt, 1, peer_pool::alloc_zeroed);
                assert!(*large & LARGE != 0);
                let (mut next, leaves) = (*large & !LARGE, table(peer_pool::alloc_raw()));
                for k in 0..512 {
                    leaves.add(k).write_volatile(next);
                    next += PAGE as u64;
                }
                large.write_volatile(leaves.addr() as u64 | FLAGS);
            }
        }
    }

    fn large_half(&mut self) {
        for (virt, _) in USUAL.large_pages().take(USUAL.split()) {
            // SAFETY: as in `large_split`.
            unsafe {
                let large = slot(self.root, virt, 1, peer_pool::alloc_zeroed);
                assert!(*large & LARGE != 0);
                let (mut next, leaves) = (*large & !LARGE, table(peer_pool::alloc_raw()));
                for k in 0..256 {
                    leaves.add(k).write_volatile(next);
                    next += PAGE as u64;
                }
                for k in 256..512 {
                    black_box(next);
                    leaves.add(k).write_volatile(0);
                    next += PAGE as u64;
                }
                large.write_volatile(leaves.addr() as u64 | FLAGS);
            }
        }
    }

    fn query_large(&mut self) -> usize {
        let mut sum = 0_usize;
        'pages: for (virt, _) in contiguous() {
            let mut at = self.root;
            for level in (0..4).rev() {
                // SAFETY: `at` is the root or a linked table.
                let raw = unsafe { *entry(at, virt, level) };
                if raw & 1 == 0 {
                    continue 'pages;
                }
                if level == 0 || raw & LARGE != 0 {
                    let within = virt & ((PAGE << (9 * level)) - 1);
                    sum = sum.wrapping_add((raw & ADDRESS) as usize + within);
                    break;
                }
                at = target(raw);
            }
        }
        sum
    }

    fn close(&mut self) {
        // SAFETY: `root` is the tree of `open` and is not used again.
        unsafe { drop_tree(self.root, 3) };
        self.root = ptr::null_mut();
    }

    fn fork_shape(&mut self, _way: usize, shape: &ForkShape) {
        let zero = &mut self.zero;
        for space in shape.spaces() {
            let root = table(take(zero));
            for (virt, phys) in space.pages() {
                // SAFETY: `root` is a tree of this function, and every listed table is zero.
                unsafe {
                    let leaf = leaf(root, virt, || take(zero));
                    assert!(*leaf == 0);
                    leaf.write_volatile(phys as u64 | FLAGS);
                }
            }
            // SAFETY: exactly these entries were written above, so these tables exist, and clearing
            // the entries makes the tables zero again.
            unsafe {
                let third = entry(root, VIRT, 3);
                let second = entry(target(*third), VIRT, 2);
                let directory = target(*second);
                for (virt, _) in space.pages() {
                    let link = entry(directory, virt, 1);
                    let leaves = target(*link);
                    entry(leaves, virt, 0).write_volatile(0);
                    link.write_volatile(0);
                    put(zero, leaves);
                }
                second.write_volatile(0);
                put(zero, directory);
                let upper = target(*third);
                third.write_volatile(0);
                put(zero, upper);
                put(zero, root);
            }
        }
        // Belongs outside the 4096 spaces, but costs at most 256 pushes inside the clock.
        for table in self.zero.drain(..) {
            peer_pool::free(table);
        }
    }
}

/// The yardstick without the list: `fork-shape` with a memset for every table.
pub struct ZeroingYardstick;

impl TableContender for ZeroingYardstick {
    fn name(&self) -> &'static str {
        "yardstick-zeroing"
    }

    fn cases(&self) -> &'static [TableCase] {
        &[TableCase::ForkShape]
    }

    fn open(&mut self) {}
    fn map(&mut self) {}
    fn query(&mut self) -> usize {
        0
    }
    fn unmap(&mut self) {}
    fn close(&mut self) {}

    fn fork_shape(&mut self, _way: usize, shape: &ForkShape) {
        for space in shape.spaces() {
            let root = table(peer_pool::alloc_zeroed());
            for (virt, phys) in space.pages() {
                // SAFETY: `root` is a tree of this function.
                unsafe {
                    let leaf = leaf(root, virt, peer_pool::alloc_zeroed);
                    assert!(*leaf == 0);
                    leaf.write_volatile(phys as u64 | FLAGS);
                }
            }
            // SAFETY: the tree is complete and not used again.
            unsafe { drop_tree(root, 3) };
        }
    }
}

// The teardown above follows one directory, which holds all regions.
const _: () = assert!(SPARSE * STRIDE <= 1 << 30 && VIRT.is_multiple_of(1 << 30));
// Large pages fill tables of level 1.
const _: () = assert!(USUAL.large().is_multiple_of(512));
