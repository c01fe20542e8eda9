//! Groups: their sizes, and hints that are refused.
use super::*;
use ptarmigan::format::{Aarch64, Aarch64K16, Aarch64K64, Sv39, Sv39Napot, Sv57Napot, X86_64};
use ptarmigan::quicklist::Quicklists;
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::NoTlb;

const ATTR: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0);

/// A machine without TLBs.
type Plain<'h, F> = HostMachine<'h, F, Quicklists<'h, DirectMap, &'h KernelMap<F, DirectMap>>, NoTlb>;

/// Calls `f` with an empty tree, which may have pages at the end.
fn with_tree<F: Format>(f: impl FnOnce(On<'_, Plain<'_, F>>, &mut Tree<F>)) {
    let host = Host::<F>::new(HostConfig { bytes: 64 << 20, ..HostConfig::default() }).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let machine = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = machine.on(&pin).unwrap();
    let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
    f(on, &mut tree);
    tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
}

/// The binary logarithms of the bytes of all leaves.
fn shifts<F: Format, M: Machine>(on: On<'_, M>, tree: &Tree<F>) -> Vec<u32> {
    let (mut shifts, all) = (Vec::new(), VirtRange::up_to(F::USER_END));
    tree.view().walk_leaves(on, all, |leaf| shifts.push(leaf.shift)).unwrap();
    shifts
}

/// Maps 2^`large` bytes, and a page before and behind, as a group of pages, and of large pages.
fn sizes<F: Format>(pages: u32, large: u32) {
    with_tree::<F>(|on, tree| {
        for (level, shift) in [(Level::PTE, pages), (Level(1), large)] {
            if shift == 0 {
                continue;
            }
            let (page, bytes) = (1u64 << F::shift(level), 1u64 << shift);
            let range = VirtRange::new(bytes - page, 2 * bytes + page).unwrap();
            let frame = Pfn(((bytes - page) >> FRAME_SHIFT) as u32);
            let mut edit = tree.edit(on).unwrap();
            // SAFETY: 1. no program runs in this space.
            unsafe { edit.map_range_large(range, frame, ATTR, Sizes::up_to(level).with_groups()).unwrap() };
            edit.flush();
            assert_eq!(shifts(on, tree), [F::shift(level), shift, F::shift(level)], "{}", F::NAME);
            let leaf = tree.view().query_leaf(on, VirtAddr(bytes + 2 * page + 1)).unwrap();
            let whole = Mapped {
                at: VirtAddr(bytes),
                frame: Pfn((bytes >> FRAME_SHIFT) as u32),
                attr: ATTR,
                level,
                shift,
            };
            assert_eq!(leaf, whole, "{}", F::NAME);
            // Every page has its own frame.
            for at in (range.start..range.end).step_by(page as usize) {
                let own = Pfn((at >> FRAME_SHIFT) as u32);
                assert_eq!(tree.query(on, VirtAddr(at)), Some((own, ATTR)), "{}", F::NAME);
            }
            // A page less: the others are no group any more.
            let gone = VirtRange::new(2 * bytes - page, 2 * bytes).unwrap();
            tree.edit(on).unwrap().unmap_range(gone, Free::Empty, |_, _, _| {});
            let n = (bytes / page) as usize + 1;
            assert_eq!(shifts(on, tree), vec![F::shift(level); n], "{}", F::NAME);
            tree.edit(on).unwrap().unmap_range(range, Free::Empty, |_, _, _| {});
            assert_eq!((tree.tables_below_root(), tree.reserved()), (0, 0));
        }
    });
}

#[test]
fn groups_have_the_sizes_of_the_manuals() {
    sizes::<Aarch64>(16, 25);
    sizes::<Aarch64K16>(21, 30);
    sizes::<Aarch64K64>(21, 0);
    sizes::<Sv39Napot>(16, 0);
    sizes::<Sv57Napot>(16, 0);
}

/// A hint that would lie is refused, and nothing changes.
fn lies<F: Format>() {
    with_tree::<F>(|on, tree| {
        let (page, n) = (1u64 << F::PAGE_SHIFT, 1u64 << F::GROUP_BITS[0]);
        let (at, frame) = (VirtAddr(4 * n * page), Pfn((8 * n as u32) << F::PAGE_ORDER));
        let mut edit = tree.edit(on).unwrap();
        let flags = AllocFlags::NORMAL;
        for (at, frame, level, expected) in [
            (
                VirtAddr(at.0 + page),
                frame,
                Level::PTE,
                MapError::Misaligned { at: VirtAddr(at.0 + page), page: n * page },
            ),
            (
                at,
                Pfn(frame.0 + (1 << F::PAGE_ORDER)),
                Level::PTE,
                MapError::BadFrame { first: Pfn(frame.0 + (1 << F::PAGE_ORDER)), format: F::NAME },
            ),
            (VirtAddr(F::USER_END), frame, Level::PTE, MapError::OutOfRange { at: VirtAddr(F::USER_END) }),
            (
                VirtAddr(0),
                Pfn(0),
                F::LAYOUT.root(),
                MapError::NoSuchSize { level: F::LAYOUT.root(), format: F::NAME },
            ),
        ] {
            // SAFETY: 1. no program runs in this space.
            let done = unsafe { edit.map_group(at, level, frame, ATTR, flags) };
            assert_eq!(done, Err(expected), "{}", F::NAME);
        }
        let half = VirtRange::new(at.0, at.0 + n / 2 * page).unwrap();
        let rest = VirtRange::new(half.end, at.0 + n * page).unwrap();
        let differs = |i: u64| Err(CollapseError::Differs { at: VirtAddr(at.0 + i * page) });
        assert_eq!(edit.make_group(at, Level::PTE), differs(0));
        // SAFETY: 1. no program runs in this space.
        unsafe { edit.map_range(half, frame, ATTR).unwrap() };
        assert_eq!(edit.make_group(at, Level::PTE), differs(n / 2));
        let behind = Pfn(frame.0 + ((n / 2) as u32) * (1 << F::PAGE_ORDER));
        // SAFETY: 1. no program runs in this space.
        unsafe { edit.map_range(rest, Pfn(behind.0 + (1 << F::PAGE_ORDER)), ATTR).unwrap() };
        assert_eq!(edit.make_group(at, Level::PTE), differs(n / 2), "frames of a gap");
        edit.unmap_range(rest, Free::Never, |_, _, _| {});
        // SAFETY: 1. no program runs in this space.
        unsafe { edit.map_range(rest, behind, ATTR.without(Attr::WRITE)).unwrap() };
        assert_eq!(edit.make_group(at, Level::PTE), differs(n / 2), "other rights");
        edit.protect(VirtAddr(at.0 + 3 * page), ATTR | Attr::ACCESSED).unwrap();
        edit.change_range(rest, |_| ATTR | Attr::DIRTY).unwrap();
        edit.flush();
        assert_eq!(shifts(on, tree), vec![F::PAGE_SHIFT; n as usize], "{}: all pages", F::NAME);
        tree.edit(on).unwrap().make_group(at, Level::PTE).unwrap();
        let leaf = tree.view().query_leaf(on, at).unwrap();
        assert_eq!(leaf.range().len(), n * page);
        assert_eq!(leaf.attr, ATTR | Attr::ACCESSED | Attr::DIRTY, "the bits of all");
        assert_eq!(tree.edit(on).unwrap().make_group(at, Level::PTE), Ok(()), "again");
    });
}

#[test]
fn a_hint_that_would_lie_is_refused() {
    lies::<Aarch64>();
    lies::<Aarch64K16>();
    lies::<Aarch64K64>();
    lies::<Sv39Napot>();
}

/// Without groups, a range has pages alone.
#[test]
fn a_format_without_groups_has_no_hints() {
    fn format<F: Format>() {
        with_tree::<F>(|on, tree| {
            let range = VirtRange::new(0, 1 << 21).unwrap();
            let mut edit = tree.edit(on).unwrap();
            let sizes = Sizes::from(Level::PTE).with_groups();
            // SAFETY: 1. no program runs in this space.
            unsafe { edit.map_range_large(range, Pfn(0), ATTR, sizes).unwrap() };
            edit.flush();
            assert_eq!(shifts(on, tree), [F::PAGE_SHIFT; 512]);
            let none = MapError::NoSuchSize { level: Level::PTE, format: F::NAME };
            let made = tree.edit(on).unwrap().make_group(VirtAddr(0), Level::PTE);
            assert_eq!(made, Err(CollapseError::BadPlace(none)));
        });
    }
    format::<Sv39>();
    format::<X86_64>();
}
