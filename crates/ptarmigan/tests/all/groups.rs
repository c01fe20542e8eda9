//! Groups of a tree: places without groups, and leaves that may not become one.
use crate::common::{range, va};
use crate::formats::{on_machine, small};
use crate::large::leaves;
use ptarmigan::addr::{FRAME_SHIFT, Pfn, VirtRange};
use ptarmigan::format::{Aarch64, Aarch64K16, Aarch64Upper, Attr, Format, Sv39Napot, X86_64};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::table::{CollapseError, Free, MapError, Mapped, Sizes, Tree, TreeMut};

const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0);

/// A place for a group of leaves of tables of one level.
struct Place {
    level: Level,
    /// Bytes of a leaf.
    page: u64,
    /// Number of leaves.
    n: u64,
    /// Not the first group of its table.
    at: u64,
    /// Aligned for the group, and for no larger one.
    first: Pfn,
}

impl Place {
    fn of<F: Format>(level: Level) -> Self {
        let (page, n) = (1 << F::shift(level), 1 << F::GROUP_BITS[usize::from(level.0)]);
        assert!(n > 1, "{}: tables of level {} have no groups", F::NAME, level.0);
        let first = Pfn(5 * ((n * page) >> FRAME_SHIFT) as u32);
        Place { level, page, n, at: 3 * n * page, first }
    }

    fn leaf(&self, i: u64) -> VirtRange {
        range(self.at + i * self.page, self.at + (i + 1) * self.page)
    }

    fn frame(&self, i: u64) -> Pfn {
        Pfn(self.first.0 + (i * (self.page >> FRAME_SHIFT)) as u32)
    }

    fn all(&self) -> VirtRange {
        range(self.at, self.leaf(self.n).start)
    }

    fn differs(&self, i: u64) -> Result<(), CollapseError> {
        Err(CollapseError::Differs { at: va(self.leaf(i).start) })
    }
}

/// Maps leaf `i` of a place to a frame.
fn put<F: Format, M: Machine>(edit: &mut TreeMut<'_, F, M>, place: &Place, i: u64, frame: Pfn, attr: Attr) {
    // SAFETY: 1. no program runs in the tree.
    unsafe { edit.map_range_large(place.leaf(i), frame, attr, place.level) }.unwrap();
}

/// Whether the place is mapped by one group.
fn is_group<F: Format, M: Machine>(on: On<'_, M>, tree: &Tree<F>, place: &Place) -> bool {
    let leaf = tree.view().query_leaf(on, va(place.at)).unwrap();
    leaf.range() == place.all()
}

/// Makes groups of leaves all of which are right but one.
fn one_differs<F: Format>(level: Level) {
    let place = Place::of::<F>(level);
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        // The frame and the rights of the odd leaf, if it is there.
        let frame_too_high = |i| Some((place.frame(i + 1), RW));
        let fewer_rights = |i| Some((place.frame(i), RW.without(Attr::WRITE)));
        let missing = |_| None;
        let wrongs: [&dyn Fn(u64) -> Option<(Pfn, Attr)>; 3] = [&frame_too_high, &fewer_rights, &missing];
        for odd in [0, 1, place.n / 2, place.n - 1] {
            for (kind, wrong) in wrongs.iter().enumerate() {
                let mut edit = tree.edit(on).unwrap();
                for i in 0..place.n {
                    let right = Some((place.frame(i), RW));
                    if let Some((frame, attr)) = if i == odd { wrong(i) } else { right } {
                        put(&mut edit, &place, i, frame, attr);
                    }
                }
                // The first leaf is what the others are compared with.
                let named = if (odd, kind) == (0, 1) { 1 } else { odd };
                edit.flush();
                let before = leaves(on, &tree);
                let mut edit = tree.edit(on).unwrap();
                assert_eq!(
                    edit.make_group(va(place.at), level),
                    place.differs(named),
                    "{} {odd} {kind}",
                    F::NAME
                );
                edit.flush();
                assert_eq!(leaves(on, &tree), before);
                tree.edit(on).unwrap().unmap_range(place.all(), Free::Empty, |_, _, _| {});
            }
        }
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn the_first_leaf_that_does_not_fit_a_group_is_named() {
    one_differs::<Aarch64>(Level::PTE);
    one_differs::<Aarch64>(Level(1));
    one_differs::<Aarch64K16>(Level(1));
    one_differs::<Sv39Napot>(Level::PTE);
}

/// Makes a group of leaves that fit, beside two that are no part of it.
fn all_fit<F: Format>(level: Level) {
    let place = Place::of::<F>(level);
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        let beside = range(place.at - place.page, place.leaf(place.n).end);
        // Frames that are aligned for this group alone, and for larger ones.
        for first in [place.first, Pfn(place.first.0 / 5 * 8)] {
            let before = Pfn(first.0 - (place.page >> FRAME_SHIFT) as u32);
            let mut edit = tree.edit(on).unwrap();
            // SAFETY: 1. no program runs in the tree.
            unsafe { edit.map_range_large(beside, before, RW, level) }.unwrap();
            edit.flush();
            assert!(!is_group(on, &tree, &place));
            for _ in 0..2 {
                assert_eq!(tree.edit(on).unwrap().make_group(va(place.at), level), Ok(()), "{}", F::NAME);
                let found = leaves(on, &tree);
                let ranges: Vec<_> = found.iter().map(|leaf| leaf.range()).collect();
                let alone = |at| range(at, at + place.page);
                assert_eq!(ranges, [alone(beside.start), place.all(), alone(place.all().end)], "{}", F::NAME);
                assert_eq!((found[1].frame, found[1].attr), (first, RW));
            }
            tree.edit(on).unwrap().unmap_range(beside, Free::Empty, |_, _, _| {});
        }
        // Frames that follow each other from one on that is not aligned.
        let mut edit = tree.edit(on).unwrap();
        // SAFETY: 1. no program runs in the tree.
        unsafe { edit.map_range_large(place.all(), place.frame(1), RW, level) }.unwrap();
        assert_eq!(edit.make_group(va(place.at), level), place.differs(0), "{}", F::NAME);
        drop(edit);
        assert!(!is_group(on, &tree, &place));
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn leaves_that_fit_become_a_group_and_no_others_do() {
    all_fit::<Aarch64>(Level::PTE);
    all_fit::<Aarch64>(Level(1));
    all_fit::<Aarch64K16>(Level::PTE);
    all_fit::<Sv39Napot>(Level::PTE);
}

/// Asks for groups at every page of the place of one, and of tables without leaves.
fn places<F: Format>(level: Level) {
    let place = Place::of::<F>(level);
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let root = F::LAYOUT.root();
        let map = |edit: &mut TreeMut<'_, F, _>, at, level| {
            // SAFETY: 1. no program runs in the tree.
            unsafe { edit.map_group(va(at), level, place.first, RW, AllocFlags::NORMAL) }
        };
        let no_size = MapError::NoSuchSize { level: root, format: F::NAME };
        assert_eq!(map(&mut edit, 0, root), Err(no_size));
        assert_eq!(edit.make_group(va(0), root), Err(CollapseError::BadPlace(no_size)));
        for i in 1..place.n {
            let at = place.leaf(i).start;
            let misaligned = MapError::Misaligned { at: va(at), page: place.n * place.page };
            assert_eq!(map(&mut edit, at, level), Err(misaligned), "{}", F::NAME);
            assert_eq!(edit.make_group(va(at), level), Err(CollapseError::BadPlace(misaligned)));
        }
        assert_eq!(map(&mut edit, place.at, level), Ok(()), "{}", F::NAME);
        drop(edit);
        assert!(is_group(on, &tree, &place));
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn places_that_have_no_group_are_refused() {
    places::<Aarch64>(Level::PTE);
    places::<Aarch64>(Level(1));
    places::<Aarch64K16>(Level::PTE);
    places::<Sv39Napot>(Level::PTE);
    on_machine::<X86_64, _>(small(), |_, on| {
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        for level in [0, 1, 2, 3, 4, 200].map(Level) {
            let no_size = MapError::NoSuchSize { level, format: X86_64::NAME };
            // SAFETY: 1. no program runs in the tree.
            let mapped = unsafe { edit.map_group(va(0), level, Pfn(0), RW, AllocFlags::NORMAL) };
            assert_eq!(mapped, Err(no_size));
            assert_eq!(edit.make_group(va(0), level), Err(CollapseError::BadPlace(no_size)));
        }
        drop(edit);
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn a_larger_page_stays_and_smaller_ones_become_no_group() {
    let (pages, large) = (Place::of::<Aarch64>(Level::PTE), Place::of::<Aarch64>(Level(1)));
    on_machine::<Aarch64, _>(small(), |_, on| {
        let mut tree = Tree::<Aarch64>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        assert_eq!(
            edit.make_group(va(large.at), Level::PTE),
            Err(CollapseError::Differs { at: va(large.at) })
        );
        put(&mut edit, &large, 0, large.frame(0), RW);
        let part = large.at + 3 * pages.n * pages.page;
        assert_eq!(edit.make_group(va(part), Level::PTE), Ok(()), "a part of a larger page");
        edit.flush();
        assert_eq!(tree.view().query_leaf(on, va(part)).unwrap().range(), large.leaf(0));
        // Pages in the place of the second large page of a group, and of the first.
        let mut edit = tree.edit(on).unwrap();
        (1..large.n).for_each(|i| put(&mut edit, &large, i, large.frame(i), RW));
        for i in [1, 0] {
            edit.split(va(large.leaf(i).start), Level::PTE).unwrap();
            assert_eq!(edit.make_group(va(large.at), Level(1)), large.differs(i));
        }
        drop(edit);
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

/// Takes bits from a group, which is one leaf to the caller.
fn bits_go<F: Format>(level: Level) {
    let place = Place::of::<F>(level);
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let full = RW | Attr::ACCESSED | Attr::DIRTY;
        // SAFETY: 1. no program runs in the tree.
        unsafe { edit.map_group(va(place.at), level, place.first, full, AllocFlags::NORMAL) }.unwrap();
        let mut attr = full;
        for bit in [Attr::ACCESSED, Attr::DIRTY, Attr::WRITE, Attr::ACCESSED, Attr::DIRTY, Attr::WRITE] {
            let mut told = Vec::new();
            let mut note = |leaf: Mapped| told.push((leaf.range(), leaf.frame, leaf.attr));
            match bit {
                Attr::ACCESSED => edit.take_accessed(place.all(), note),
                Attr::DIRTY => edit.take_dirty(place.all(), F::LAYOUT.root(), &mut note).unwrap(),
                _ => edit.write_protect(place.all(), F::LAYOUT.root(), &mut note).unwrap(),
            }
            let expected = attr.has(bit).then_some((place.all(), place.first, attr));
            assert_eq!(told, Vec::from_iter(expected), "{} {bit:?}", F::NAME);
            attr = attr.without(bit);
        }
        drop(edit);
        let found = leaves(on, &tree);
        assert_eq!((found.len(), found[0].range(), found[0].attr), (1, place.all(), attr), "{}", F::NAME);
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

#[test]
fn a_group_tells_of_its_bits_once_and_loses_them() {
    bits_go::<Sv39Napot>(Level::PTE);
    bits_go::<Aarch64>(Level::PTE);
    bits_go::<Aarch64>(Level(1));
}

#[test]
fn large_pages_of_the_kernels_become_a_group() {
    let level = Level(1);
    let Place { page, n, first, .. } = Place::of::<Aarch64Upper>(level);
    let (attr, start) = (Attr::READ | Attr::WRITE, 0xffff_c000_0000_0000);
    on_machine::<Aarch64Upper, _>(small(), |host, on| {
        let mut range = host.kernel().claim(on, va(start), n * page).unwrap();
        let pages = (n * page) >> Aarch64Upper::PAGE_SHIFT;
        let sizes = Sizes::up_to(level);
        // SAFETY: 1. no code uses the addresses.
        unsafe { range.map_range_large(on, va(start), first, pages, attr, sizes, AllocFlags::NORMAL) }
            .unwrap();
        assert_eq!(range.query_leaf(on, va(start)).unwrap().range().len(), page);
        assert_eq!(range.make_group(on, va(start), level), Ok(()));
        assert_eq!(range.query_leaf(on, va(start)).unwrap().range().len(), n * page);
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    });
}
