//! Attributes that entries of a format cannot have are refused, and nothing changes; all others
//! come back as they were given.
use crate::formats::{on_machine, small};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, Aarch64Stage2, Aarch64Upper, Access, Attr, Cause, Ept, Format,
    FormatExt, I386, Ia64, Inexpressible, KernelFetch, Keyed, LoongArch64, Npt, Ppc32, Sev, Sparc64, Sv32,
    Sv39, Sv39x4, Sv48, Sv48x4, Sv57, Tdx, X86_64, X86_64La57, X86Pae,
};
use ptarmigan::frames::AllocFlags;
use ptarmigan::space::{AreaFlags, FaultError, Space};
use ptarmigan::table::{Free, KernelRangeError, KernelSlots, MapError, SlotsError, Tree};
use ptarmigan::vmalloc::{AreaError, Vmalloc};
use ptarmigan::window::DirectMap;

const NORMAL: AllocFlags = AllocFlags::NORMAL;
const VA: u64 = 0x40_0000;
const PFN: Pfn = Pfn(64);

/// All combinations of the attributes that every format has, each alone and with each of the
/// others, and with each number that stands for a memory type or might; and the types with each of
/// the others.
fn attributes() -> impl Iterator<Item = Attr> {
    let others = || (8..32).map(|bit| 1 << bit).filter(|bit| bit & Attr::MEMORY.0 == 0);
    let types = || (1..8).map(|n| n << Attr::MEMORY.0.trailing_zeros());
    let alone = std::iter::once(0).chain(others()).chain(types());
    let all = alone.flat_map(|other| (0..256).map(move |bits| Attr(other | bits)));
    let both = types().flat_map(move |memory| others().map(move |other| memory | other));
    all.chain(both.flat_map(|both| [1, 9, 11, 13, 31].map(|bits| Attr(both | bits))))
}

/// Asks a tree for all attributes, in every way that there is, and returns the numbers of those
/// that it took and refused.
fn trees<F: Format>() -> [u32; 2] {
    let mut counts = [0; 2];
    on_machine::<F, _>(small(), |_, on| {
        let mut tree = Tree::<F>::new(on, NORMAL).unwrap();
        let page = 1u64 << F::PAGE_SHIFT;
        let at = |n: u64| VirtAddr(VA + n * page);
        let range = |n: u64| VirtRange::new(at(n).0, at(n + 1).0).unwrap();
        let plain = Attr::READ | Attr::USER;
        let special = plain | Attr::SPECIAL;
        let mut edit = tree.edit(on).unwrap();
        for given in attributes() {
            let says = F::expresses_in_tree(given);
            let mapped = says.map_err(MapError::from);
            counts[usize::from(says.is_err())] += 1;
            // SAFETY: 1. no program runs in the tree.
            unsafe {
                assert_eq!(edit.map(at(0), PFN, given, NORMAL), mapped);
                assert_eq!(edit.map_range(range(1), PFN, given), mapped);
                assert_eq!(edit.cursor(range(2)).map(PFN, given, NORMAL), mapped);
                edit.map_range(VirtRange::new(at(3).0, at(6).0).unwrap(), PFN, plain).unwrap();
                edit.map(at(6), PFN, special, NORMAL).unwrap();
            }
            assert_eq!(edit.protect(at(3), given), says.map(|()| Some(plain)));
            assert_eq!(edit.cursor(range(4)).protect(given), says.map(|()| Some(plain)));
            // The second of two pages is to have them: the first is unchanged, too.
            let both = VirtRange::new(at(5).0, at(7).0).unwrap();
            let change = |old| if old == special { given } else { Attr::EXEC | old };
            assert_eq!(edit.change_range(both, change), says);
            let [first, last] = if says.is_ok() { [plain | Attr::EXEC, given] } else { [plain, special] };
            let new = says.ok().map(|()| given);
            let expected = [new, new, new, new.or(Some(plain)), new.or(Some(plain)), Some(first), Some(last)];
            for (n, expected) in (0..).zip(expected) {
                let found = edit.query(at(n)).map(|(_, attr)| attr);
                assert_eq!(found, expected, "{} page {n} of {given} ({:#x})", F::NAME, given.0);
            }
            edit.unmap_range(VirtRange::new(at(0).0, at(7).0).unwrap(), Free::Never, |_, _, _| {});
        }
        edit.flush();
        tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
    });
    counts
}

/// As a page of the kernel's half has them: no code notes an access there.
fn noted(attr: Attr) -> Attr {
    let used = [Attr::READ, Attr::WRITE, Attr::EXEC].into_iter().any(|access| attr.has(access));
    let attr = if used { attr | Attr::ACCESSED } else { attr };
    if attr.has(Attr::WRITE) { attr | Attr::DIRTY } else { attr }
}

/// The same for the kernel's half.
fn kernels<F: Format>() {
    on_machine::<F, _>(small(), |host, on| {
        let bytes = 1u64 << F::shift(ptarmigan::page::Level(1));
        // The host has the first part of the half for itself.
        let steps = [1u64 << F::shift(F::LAYOUT.root()), bytes];
        let places =
            steps.into_iter().flat_map(|step| (0..64).map(move |n| F::KERNEL_START.wrapping_add(n * step)));
        let mut claims = places.filter_map(|at| host.kernel().claim(on, VirtAddr(at), bytes).ok());
        let mut range = claims.next().unwrap();
        let plain = Attr::READ;
        for given in attributes() {
            let says = F::expresses(given);
            let at = range.start();
            let second = VirtAddr(at.0 + (1 << F::PAGE_SHIFT));
            // SAFETY: 1. nobody uses the pages.
            unsafe {
                let mapped = range.map(on, at, PFN, 1, given, NORMAL);
                assert_eq!(mapped, says.map_err(MapError::from), "{given}");
                range.map(on, second, PFN, 1, plain, NORMAL).unwrap();
            }
            let changed = range.protect(on, second, 1, |_| given);
            assert_eq!(changed, says.map_err(KernelRangeError::Inexpressible));
            let expected = |first: bool| {
                if says.is_ok() { Some(noted(given)) } else { (!first).then_some(noted(plain)) }
            };
            let found = |at| range.query(on, at).map(|(_, attr)| attr);
            assert_eq!([found(at), found(second)], [expected(true), expected(false)]);
            range.unmap(on, at, 2, |_, _| {}).unwrap();
        }
        // A window of slots, and areas.
        let wrong = Attr::KERNEL_EXEC;
        let refused = F::expresses(Attr::READ | Attr::WRITE | wrong).unwrap_err();
        let mut boot = host.boot(4096).unwrap();
        let slots = KernelSlots::new(&mut boot, on, range, wrong);
        let Err(slots) = slots else { panic!("slots with attributes that there are not") };
        assert_eq!(slots.error, SlotsError::Map(MapError::Inexpressible(refused)));
        let mut boot = host.boot(Vmalloc::<F, DirectMap>::bytes(bytes)).unwrap();
        let mut areas = Vmalloc::new(&mut boot, slots.value).unwrap_or_else(|_| panic!("a range"));
        let free = host.frames().counts().free;
        let error = AreaError::Map(MapError::Inexpressible(F::expresses(Attr::WRITE).unwrap_err()));
        assert_eq!(areas.alloc(on, 3, Attr::WRITE, NORMAL).map(|_| ()), Err(error));
        assert_eq!((host.frames().counts().free, areas.counts().areas), (free, 0), "nothing was taken");
        let area = areas.alloc(on, 3, Attr::READ | Attr::WRITE, NORMAL).unwrap();
        let change = areas.protect(on, &area, |attr| attr.without(Attr::READ));
        assert!(matches!(change, Err(AreaError::Range(KernelRangeError::Inexpressible(_)))), "{change:?}");
        areas.free(on, area).map_err(|refused| refused.error).unwrap();
        let range = areas.into_range().map_err(|_| "areas are left").unwrap();
        range.release(on, |_, _| panic!("a page is left")).map_err(|(e, _)| e).unwrap();
    });
}

#[test]
fn a_tree_has_the_attributes_that_it_was_given_or_refuses_them() {
    fn both<F: Format>() {
        let [took, refused] = trees::<F>();
        assert!(took >= 5 * 8 && refused > took, "{}: {took} and {refused}", F::NAME);
    }
    both::<X86_64>();
    both::<X86_64La57>();
    both::<Keyed<X86_64>>();
    both::<Sev<X86_64, 47>>();
    both::<Tdx<Keyed<X86_64>, 51>>();
    both::<X86Pae>();
    both::<I386>();
    both::<Sv32>();
    both::<Sv39>();
    both::<Sv48>();
    both::<Sv57>();
    both::<Aarch64>();
    both::<Aarch64K16>();
    both::<Aarch64K64>();
    both::<LoongArch64>();
    both::<Sparc64>();
    both::<Ia64>();
    both::<Aarch64Stage2>();
    both::<Ept>();
    both::<Npt>();
    both::<Sv39x4>();
    both::<Sv48x4>();
}

#[test]
fn the_kernel_half_has_its_attributes_or_refuses_them() {
    kernels::<X86_64>();
    kernels::<X86_64La57>();
    kernels::<I386>();
    kernels::<Sv32>();
    kernels::<Sv39>();
    kernels::<Aarch64Upper>();
}

#[test]
fn a_refusal_names_the_format_and_what_to_do() {
    let why = |e: Result<(), Inexpressible>| e.unwrap_err().cause();
    assert_eq!(why(X86_64::expresses(Attr::WRITE | Attr::USER)), Cause::Needs(Attr::READ));
    assert_eq!(why(Ept::expresses(Attr::READ)), Cause::Needs(Attr::USER));
    assert_eq!(why(Ppc32::expresses(Attr::READ | Attr::GLOBAL)), Cause::Without(Attr::GLOBAL));
    let fetched = Attr::READ | Attr::EXEC | Attr::USER | Attr::KERNEL_EXEC;
    assert_eq!(why(X86_64::expresses(fetched)), Cause::Without(Attr::KERNEL_EXEC));
    assert_eq!(Aarch64::expresses(fetched), Ok(()));
    // EL1 executes no page that EL0 may write.
    assert_eq!(why(Aarch64::expresses(fetched | Attr::WRITE)), Cause::Without(Attr::KERNEL_EXEC));
    assert_eq!(why(X86_64::expresses(Attr::READ | Attr(1 << 31))), Cause::Missing(Attr(1 << 31)));
    assert_eq!(
        Aarch64Stage2::expresses(Attr::READ | Attr::EXEC).unwrap_err().to_string(),
        "AArch64 4K stage 2 has no page with r-x-----: it needs u as well"
    );
    let write_only = MapError::from(Sv39::expresses(Attr::WRITE | Attr::USER).unwrap_err());
    assert_eq!(write_only.to_string(), "Sv39 has no page with -w-u----: it needs r as well");
    let most = if cfg!(target_pointer_width = "64") { 24 } else { 20 };
    assert_eq!(size_of::<Result<(), MapError>>(), most, "it is returned for each page");
}

#[test]
fn the_nearest_attributes_can_do_what_was_asked_for() {
    let code = Attr::EXEC | Attr::USER | Attr::GLOBAL;
    assert_eq!(X86_64::nearest(code), code | Attr::READ);
    assert_eq!(Ppc32::nearest(code), Attr::READ | Attr::EXEC | Attr::USER);
    assert_eq!(Aarch64::nearest(code), code);
    // The kernel reads what it executes on AArch64.
    assert_eq!(Aarch64::nearest(Attr::EXEC), Attr::EXEC | Attr::READ);
    assert_eq!(Ept::nearest(Attr::WRITE), Attr::READ | Attr::WRITE | Attr::USER);
    assert_eq!((X86_64::RIGHTS.refuses_execution(), I386::RIGHTS.refuses_execution()), (true, false));
    assert_eq!(Aarch64::RIGHTS.kernel_fetch(), KernelFetch::Marked);
    assert_eq!(Sv39::RIGHTS.kernel_fetch(), KernelFetch::Never);
}

/// Returns what reading and executing a page of an area for execution alone comes to, and the
/// attributes of the page then.
fn executes<F: Format>() -> (bool, Attr) {
    on_machine::<F, _>(small(), |_, on| {
        let mut space = Space::<F>::new(on).unwrap();
        let page = 1u64 << F::PAGE_SHIFT;
        let range = VirtRange::new(VA, VA + page).unwrap();
        let at = VirtAddr(VA);
        let both = AreaFlags::READ.with(AreaFlags::WRITE);
        space.edit(on).unwrap().mmap(range, both, 0).unwrap();
        space.fault(on, at, Access::Write).unwrap();
        space.edit(on).unwrap().mprotect(range, AreaFlags::EXEC).unwrap();
        let attr = |space: &Space<F>| space.tree().query(on, at).unwrap().1;
        let changed = attr(&space);
        // A page that comes by a fault has the same.
        let fresh = VirtRange::new(VA + 8 * page, VA + 9 * page).unwrap();
        space.edit(on).unwrap().mmap(fresh, AreaFlags::EXEC, 0).unwrap();
        space.fault(on, VirtAddr(fresh.start), Access::Exec).unwrap();
        let (_, came) = space.tree().query(on, VirtAddr(fresh.start)).unwrap();
        let rights = Attr::READ | Attr::WRITE | Attr::EXEC | Attr::USER;
        assert_eq!((came.0 ^ changed.0) & rights.0, 0, "{}: {came} and {changed}", F::NAME);
        assert_eq!(Attr(came.0 & rights.0), AreaFlags::EXEC.attr::<F>(), "{}", F::NAME);
        assert_eq!(space.fault(on, at, Access::Write), Err(FaultError::Denied(at)));
        space.fault(on, at, Access::Exec).unwrap();
        let read = match space.fault(on, at, Access::Read) {
            Ok(_) => true,
            Err(e) => {
                assert_eq!(e, FaultError::Denied(at));
                false
            }
        };
        // Fork passes it on as it is, and the parent's page stays.
        let mut child = space.edit(on).unwrap().fork().unwrap();
        assert_eq!(attr(&child), changed);
        child.edit(on).unwrap().mprotect(range, both).unwrap();
        child.fault(on, at, Access::Write).unwrap();
        assert!(attr(&child).has(Attr::READ | Attr::WRITE) && !attr(&child).has(Attr::EXEC));
        child.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
        assert_eq!(attr(&space), changed);
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
        (read, Attr(changed.0 & rights.0))
    })
}

#[test]
fn an_execute_only_area_is_not_read_where_the_format_has_it() {
    let only = (false, Attr::EXEC | Attr::USER);
    let read_too = (true, Attr::READ | Attr::EXEC | Attr::USER);
    assert_eq!([executes::<Sv32>(), executes::<Sv39>(), executes::<Sv57>()], [only; 3]);
    assert_eq!([executes::<Aarch64>(), executes::<Aarch64K16>(), executes::<LoongArch64>()], [only; 3]);
    assert_eq!([executes::<Ept>(), executes::<Aarch64Stage2>(), executes::<Sv39x4>()], [only; 3]);
    assert_eq!([executes::<X86_64>(), executes::<I386>(), executes::<Npt>()], [read_too; 3]);
    assert_eq!([executes::<Sparc64>(), executes::<Ia64>(), executes::<X86Pae>()], [read_too; 3]);
}

/// Marks a page of a space that is written, copied, moved and passed on, and one of the zero frame.
fn marks<F: Format>() {
    let all: Vec<Attr> = [Attr::SOFT0, Attr::SOFT1, Attr::SOFT2, Attr::SOFT3].into();
    let (has, none) = all.split_at(F::RIGHTS.soft_bits() as usize);
    on_machine::<F, _>(small(), |_, on| {
        let mut space = Space::<F>::new(on).unwrap();
        let page = 1u64 << F::PAGE_SHIFT;
        let range = |first: u64, n: u64| VirtRange::new(VA + first * page, VA + (first + n) * page).unwrap();
        let both = AreaFlags::READ.with(AreaFlags::WRITE);
        let soft = |space: &Space<F>, n: u64| {
            space.tree().query(on, VirtAddr(VA + n * page)).unwrap().1.only(Attr::SOFT)
        };
        space.edit(on).unwrap().mmap(range(0, 3), both, 0).unwrap();
        space.fault(on, VirtAddr(VA), Access::Write).unwrap();
        space.fault(on, VirtAddr(VA + page), Access::Read).unwrap();
        for missing in none.iter().chain(&[Attr::READ, Attr::KERNEL_EXEC, Attr(1 << 12), Attr(1 << 15)]) {
            let refused = F::expresses_soft(*missing).unwrap_err();
            let error = Err(ptarmigan::space::AreaError::Inexpressible(refused));
            assert_eq!(space.edit(on).unwrap().mark_pages(range(0, 2), *missing, Attr(0)), error);
            assert_eq!(space.edit(on).unwrap().mark_pages(range(0, 2), Attr(0), *missing), error);
        }
        for mark in has {
            // The third page is not there yet.
            space.edit(on).unwrap().mark_pages(range(0, 3), *mark, Attr::default()).unwrap();
            assert_eq!([soft(&space, 0), soft(&space, 1)], [*mark; 2], "{}", F::NAME);
            // Permissions go and come back.
            for flags in [AreaFlags(0), AreaFlags::READ, both] {
                space.edit(on).unwrap().mprotect(range(0, 2), flags).unwrap();
                assert_eq!([soft(&space, 0), soft(&space, 1)], [*mark; 2], "{} {flags:?}", F::NAME);
            }
            // The parent copies, and the child writes to the frame that it has for itself then.
            let mut child = space.edit(on).unwrap().fork().unwrap();
            space.fault(on, VirtAddr(VA), Access::Write).unwrap();
            child.fault(on, VirtAddr(VA), Access::Write).unwrap();
            assert_eq!([soft(&space, 0), soft(&child, 0)], [*mark; 2], "{}", F::NAME);
            // The zero frame is replaced.
            child.fault(on, VirtAddr(VA + page), Access::Write).unwrap();
            assert_eq!([soft(&space, 1), soft(&child, 1)], [*mark; 2], "{}", F::NAME);
            child.edit(on).unwrap().mremap(range(0, 2), range(40, 2), false).unwrap();
            assert_eq!([soft(&child, 40), soft(&child, 41)], [*mark; 2], "{}", F::NAME);
            child.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
            space.fault(on, VirtAddr(VA + 2 * page), Access::Read).unwrap();
            assert_eq!(soft(&space, 2), Attr(0));
            space.edit(on).unwrap().mark_pages(range(0, 3), Attr(0), *mark).unwrap();
            assert_eq!([soft(&space, 0), soft(&space, 1)], [Attr(0); 2], "{}", F::NAME);
            space.edit(on).unwrap().munmap(range(1, 2)).unwrap();
            space.edit(on).unwrap().mmap(range(1, 2), both, 0).unwrap();
            space.fault(on, VirtAddr(VA + page), Access::Read).unwrap();
        }
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
    });
}

#[test]
fn a_bit_of_the_callers_own_stays_with_its_page_in_a_space() {
    marks::<X86_64>();
    marks::<X86Pae>();
    marks::<I386>();
    marks::<Sv32>();
    marks::<Sv39>();
    marks::<Aarch64>();
    marks::<Aarch64K64>();
    marks::<LoongArch64>();
    marks::<Sparc64>();
    marks::<Ia64>();
    marks::<Aarch64Stage2>();
    marks::<Ept>();
    marks::<Npt>();
    marks::<Sv48x4>();
}

#[test]
fn pages_of_an_area_have_its_protection_key() {
    on_machine::<Keyed<X86_64>, _>(small(), |_, on| {
        let mut space = Space::<Keyed<X86_64>>::new(on).unwrap();
        let range = |first: u64, n: u64| VirtRange::new(VA + first * 4096, VA + (first + n) * 4096).unwrap();
        let both = AreaFlags::READ.with(AreaFlags::WRITE);
        let keyed = |n| both.with_key(n).unwrap();
        let key = |space: &Space<Keyed<X86_64>>, n: u64| {
            space.tree().query(on, VirtAddr(VA + n * 4096)).unwrap().1.key_number()
        };
        space.edit(on).unwrap().mmap(range(0, 4), keyed(5), 0).unwrap();
        space.fault(on, VirtAddr(VA), Access::Write).unwrap();
        space.fault(on, VirtAddr(VA + 4096), Access::Read).unwrap();
        assert_eq!([key(&space, 0), key(&space, 1)], [5; 2]);
        // The key stays with other permissions, and none.
        for flags in [AreaFlags(0), AreaFlags::READ, both] {
            space.edit(on).unwrap().mprotect(range(0, 2), flags).unwrap();
            assert_eq!([key(&space, 0), key(&space, 1)], [5; 2], "{flags:?}");
        }
        // The zero frame is replaced; a fork passes the key on, and copies keep it.
        space.fault(on, VirtAddr(VA + 4096), Access::Write).unwrap();
        let mut child = space.edit(on).unwrap().fork().unwrap();
        child.fault(on, VirtAddr(VA + 4096), Access::Write).unwrap();
        space.fault(on, VirtAddr(VA + 4096), Access::Write).unwrap();
        assert_eq!([key(&space, 1), key(&child, 1), key(&child, 0)], [5; 3]);
        child.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
        // Another key for one of the pages: pages that come later have that of their area.
        space.edit(on).unwrap().mprotect_with_key(range(1, 2), keyed(15)).unwrap();
        space.fault(on, VirtAddr(VA + 2 * 4096), Access::Read).unwrap();
        space.fault(on, VirtAddr(VA + 3 * 4096), Access::Read).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| key(&space, n)), [5, 15, 15, 5]);
        assert_eq!(space.areas().len(), 3);
        space.edit(on).unwrap().mprotect_with_key(range(1, 2), both).unwrap();
        assert_eq!([0, 1, 2, 3].map(|n| key(&space, n)), [5, 0, 0, 5]);
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
    });
    assert_eq!((AreaFlags::READ.with_key(16), Attr::key(16)), (None, None));
    on_machine::<X86_64, _>(small(), |_, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        let range = VirtRange::new(VA, VA + 4096).unwrap();
        let keyed = AreaFlags::READ.with_key(5).unwrap();
        let mut edit = space.edit(on).unwrap();
        let refused = |e: Result<(), ptarmigan::space::AreaError>| match e {
            Err(ptarmigan::space::AreaError::Inexpressible(e)) => e.to_string(),
            other => panic!("{other:?}"),
        };
        let says = "x86-64 has no page with r--u----+key5: it does not know +key5";
        assert_eq!(refused(edit.mmap(range, keyed, 0)), says);
        assert!(edit.areas().is_empty());
        edit.mmap(range, AreaFlags::READ, 0).unwrap();
        assert_eq!(refused(edit.mprotect_with_key(range, keyed)), says);
        edit.mprotect_with_key(range, AreaFlags::READ).unwrap();
        assert_eq!(edit.areas().find(on, VA).unwrap().flags, AreaFlags::READ);
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
    });
}

#[test]
fn an_encrypted_space_has_private_pages_and_a_tree_shares_some() {
    on_machine::<Sev<X86_64, 36>, _>(small(), |_, on| {
        let mut space = Space::<Sev<X86_64, 36>>::new(on).unwrap();
        let range = VirtRange::new(VA, VA + 4096).unwrap();
        space.edit(on).unwrap().mmap(range, AreaFlags::READ.with(AreaFlags::WRITE), 0).unwrap();
        space.fault(on, VirtAddr(VA), Access::Write).unwrap();
        let (_, attr) = space.tree().query(on, VirtAddr(VA)).unwrap();
        assert!(attr.has(Attr::READ | Attr::WRITE) && !attr.has(Attr::SHARED), "{attr}");
        space.end(on).unwrap_or_else(|refused| panic!("{}", refused.error));
        let mut tree = Tree::<Sev<X86_64, 36>>::new(on, NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let shared = Attr::READ | Attr::WRITE | Attr::USER | Attr::SHARED;
        // SAFETY: 1. no program runs in the tree.
        let map = |edit: &mut ptarmigan::table::TreeMut<'_, _, _>, pfn| unsafe {
            edit.map(VirtAddr(VA), Pfn(pfn), shared, NORMAL)
        };
        // The frame of which the bit would be a part of the address.
        let bad = MapError::BadFrame { first: Pfn(1 << 24), format: "x86-64 with SEV" };
        assert_eq!(map(&mut edit, 1 << 24), Err(bad));
        assert_eq!(map(&mut edit, (1 << 24) - 1), Ok(()));
        assert_eq!(edit.query(VirtAddr(VA)), Some((Pfn((1 << 24) - 1), shared)));
        edit.change_range(range, |attr| attr.without(Attr::SHARED)).unwrap();
        assert_eq!(edit.query(VirtAddr(VA)).unwrap().1, shared.without(Attr::SHARED));
        edit.flush();
        tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
    });
}
