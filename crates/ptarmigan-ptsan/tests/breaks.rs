//! Live entries that an architecture wants broken before others take their places (AArch64), under
//! the sanitizer.
mod driver;

use driver::{Found, host, random};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::{Aarch64, Aarch64Upper, Attr, Format, MemoryType, X86_64};
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::{Layered, Quicklists};
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::table::{KernelMap, Tree, TreeMut};
use ptarmigan::tlb::TlbConfig;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Delivery, HostMachine};
use ptarmigan_ptsan::{Broadcasting, Fencing, Interrupting, MmuTraits, SoftMmu, Told};
use ptsan::{Arch, Config, Kind};
use std::panic::{AssertUnwindSafe, catch_unwind};

const PAGE: u64 = 4096;
const DEVICE: Attr = Attr(0).with_memory(MemoryType::Device);
const DATA: Attr = Attr(1 | 2 | 32 | 64);
const USER: Attr = Attr(DATA.0 | 8);

/// The user's format, told; without `BREAK`, the library is not told to break before it makes.
type AArch64<const BREAK: bool> = Told<Aarch64, BREAK>;
/// The kernel's.
type Upper<const BREAK: bool> = Told<Aarch64Upper, BREAK>;
/// The MMUs of the machine.
type Soft<'h, F> = SoftMmu<'h, F, Broadcasting>;

/// Findings after a page of the kernel's half, which a CPU holds, was given other attributes.
fn kernel_page_becomes<const BREAK: bool>(pages: u64, add: Attr) -> (u64, u64) {
    let host = host::<Upper<BREAK>>(1);
    let soft = Soft::like(&host, Config { asids: true, ..Config::new(Arch::aarch64_4k(48).upper()) });
    soft.told(|| {
        let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
        let tlb = TlbConfig { asids: 8, ..TlbConfig::new(1) };
        let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let (start, bytes) = (0xffff_ffff_ffc0_0000, 0x40_0000);
        let mut range = host.kernel().claim(on, VirtAddr(start), bytes).unwrap();
        // The kernel's own root, without a space.
        soft.load_kernel_root(0, host.kernel().root());
        // SAFETY: 1. nobody uses the memory behind these frames.
        unsafe { range.map(on, VirtAddr(start), Pfn(0x1000), pages, DATA, AllocFlags::NORMAL) }.unwrap();
        let read_all = || (0..pages).all(|i| soft.access(0, start + i * PAGE, ptsan::Access::READ.kernel()));
        assert!(read_all());
        range.protect(on, VirtAddr(start), pages, |attr| attr | add).unwrap();
        for i in 0..pages {
            let (frame, attr) = range.query(on, VirtAddr(start + i * PAGE)).unwrap();
            assert_eq!((frame, attr), (Pfn(0x1000 + i as u32), DATA | add), "page {i}");
        }
        assert!(read_all());
        range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    });
    soft.with(|san, _| (san.count(Kind::BreakBeforeMake), san.total()))
}

#[test]
fn a_kernel_page_becomes_global_or_device_memory_with_a_break() {
    // One page; and more than a batch, in more than one table.
    for pages in [1, 64, 65, 700] {
        for add in [Attr::GLOBAL, DEVICE] {
            assert_eq!(kernel_page_becomes::<true>(pages, add), (0, 0), "{pages} pages: {add:?}");
        }
        // Permissions alone need no break.
        assert_eq!(kernel_page_becomes::<true>(pages, Attr::EXEC), (0, 0));
    }
    let (breaks, _) = kernel_page_becomes::<false>(1, Attr::GLOBAL);
    assert_eq!(breaks, 1, "a library that is not told to break is found");
}

/// Changes the pages of a user's tree that a CPU holds, in one edit; findings.
fn user_pages<const BREAK: bool>(
    edit: impl FnOnce(&mut TreeMut<'_, AArch64<BREAK>, UserMachine<'_, '_, BREAK>>),
) -> (u64, Vec<Option<(Pfn, Attr)>>) {
    let host = host::<AArch64<BREAK>>(2);
    let soft = Soft::like(&host, Config { cpus: 2, asids: true, ..Config::new(Arch::aarch64_4k(48)) });
    let after = soft.told(|| {
        let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
        let tlb = TlbConfig { asids: 8, ..TlbConfig::new(2) };
        let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let mut tree = Tree::<AArch64<BREAK>>::new(on, AllocFlags::NORMAL).unwrap();
        let range = VirtRange::new(START, START + PAGES * PAGE).unwrap();
        // SAFETY: 1. no program uses the memory behind these frames.
        unsafe { tree.edit(on).unwrap().map_range(range, Pfn(0x1000), USER).unwrap() };
        tree.activate(on).unwrap();
        for i in 0..PAGES {
            assert!(soft.access(0, START + i * PAGE, ptsan::Access::READ));
        }
        edit(&mut tree.edit(on).unwrap());
        let after: Vec<_> = (0..PAGES).map(|i| tree.query(on, VirtAddr(START + i * PAGE))).collect();
        tree.deactivate(on).unwrap();
        tree.end(on, |_, _, _| {}).unwrap();
        machine.drain(&slots);
        after
    });
    host.audit().unwrap();
    soft.with(|san, _| san.finish());
    (soft.with(|san, _| san.total()), after)
}

type Lists<'h, F> = Quicklists<'h, DirectMap, &'h KernelMap<F, DirectMap>>;
type UserMachine<'h, 's, const BREAK: bool> = HostMachine<
    'h,
    AArch64<BREAK>,
    Layered<&'s Soft<'h, AArch64<BREAK>>, Lists<'h, AArch64<BREAK>>>,
    &'s Soft<'h, AArch64<BREAK>>,
>;

const START: u64 = 0x4000_0000 + 500 * PAGE;
const PAGES: u64 = 150;

#[test]
fn pages_of_a_tree_change_their_memory_type_with_a_break() {
    let all = VirtRange::new(START, START + PAGES * PAGE).unwrap();
    let device = |found: &[Option<(Pfn, Attr)>], n: usize| {
        for (i, page) in found.iter().enumerate() {
            let attr = if i < n { USER | DEVICE } else { USER };
            assert_eq!(*page, Some((Pfn(0x1000 + i as u32), attr)), "page {i}");
        }
    };
    let (total, found) = user_pages::<true>(|edit| edit.change_range(all, |attr| attr | DEVICE).unwrap());
    assert_eq!(total, 0);
    device(&found, PAGES as usize);
    let (total, found) = user_pages::<true>(|edit| {
        assert_eq!(edit.protect(VirtAddr(START), USER | DEVICE), Ok(Some(USER)));
    });
    assert_eq!(total, 0);
    device(&found, 1);
    let (total, _) = user_pages::<false>(|edit| edit.change_range(all, |attr| attr | DEVICE).unwrap());
    assert!(total > 0, "a library that is not told to break is found");
}

/// The sanitizer takes a group that comes back without the hint for the same pages: so the test
/// asks the TLB.
#[test]
fn a_group_loses_its_hint_with_a_flush_of_all_its_pages() {
    let host = host::<AArch64<true>>(1);
    let soft = Soft::like(&host, Config { asids: true, ..Config::new(Arch::aarch64_4k(48)) });
    soft.told(|| {
        let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
        let tlb = TlbConfig { asids: 8, ..TlbConfig::new(1) };
        let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let mut tree = Tree::<AArch64<true>>::new(on, AllocFlags::NORMAL).unwrap();
        let mut edit = tree.edit(on).unwrap();
        let at = VirtAddr(0x4000_0000);
        // SAFETY: 1. no program uses the memory behind these frames.
        unsafe { edit.map_group(at, Level::PTE, Pfn(0x1000), USER, AllocFlags::NORMAL).unwrap() };
        edit.flush();
        tree.activate(on).unwrap();
        let in_tlb = || {
            let found = |i| {
                let va = at.0 + i * PAGE;
                soft.with(|san, memory| san.translate(memory, 0, va, ptsan::Access::READ)).unwrap().from_tlb
            };
            (0..16).filter(|i| found(*i)).count()
        };
        in_tlb();
        assert_eq!(in_tlb(), 16);
        let mut edit = tree.edit(on).unwrap();
        edit.split(VirtAddr(at.0 + 5 * PAGE), Level::PTE).unwrap();
        assert_eq!(in_tlb(), 0, "of pages without the hint");
        edit.flush();
        tree.edit(on).unwrap().make_group(at, Level::PTE).unwrap();
        // One walk is for all pages of a group.
        assert_eq!(in_tlb(), 15, "of a group that was made");
        tree.deactivate(on).unwrap();
        tree.end(on, |_, _, _| {}).unwrap();
        machine.drain(&slots);
    });
    soft.with(|san, _| san.finish());
    assert_eq!(soft.with(|san, _| san.total()), 0);
}

#[test]
fn a_page_unmapped_and_remapped_by_one_edit_is_flushed_between() {
    let again = |edit: &mut TreeMut<'_, _, UserMachine<'_, '_, true>>| {
        edit.unmap(VirtAddr(START)).unwrap();
        // SAFETY: 1. no program uses the memory behind these frames.
        unsafe { edit.map(VirtAddr(START), Pfn(0x2000), USER, AllocFlags::NORMAL).unwrap() };
    };
    let (total, found) = user_pages::<true>(again);
    assert_eq!((total, found[0]), (0, Some((Pfn(0x2000), USER))));
}

#[test]
fn what_unwinds_in_the_middle_leaves_the_old_entries() {
    let all = VirtRange::new(START, START + PAGES * PAGE).unwrap();
    let calls = std::cell::Cell::new(0u64);
    let (total, found) = user_pages::<true>(|edit| {
        let change = |attr| {
            calls.set(calls.get() + 1);
            // Each page has been asked for once before any changes.
            assert!(calls.get() < PAGES + 100, "enough");
            attr | DEVICE
        };
        assert!(catch_unwind(AssertUnwindSafe(|| edit.change_range(all, change))).is_err());
    });
    assert_eq!(total, 0);
    for (i, page) in found.iter().enumerate() {
        let (frame, attr) = page.unwrap();
        assert_eq!((frame, attr.without(Attr::MEMORY)), (Pfn(0x1000 + i as u32), USER), "page {i}");
    }
}

#[test]
fn a_kernel_tree_beside_spaces_of_another_format_has_its_root() {
    let host = host::<AArch64<true>>(1);
    let soft = Soft::like(&host, Config { asids: true, ..Config::new(Arch::aarch64_4k(48)) });
    let upper = Soft::like(&host, Config::new(Arch::aarch64_4k(48).upper()));
    let policy = Layered::new(&upper, Layered::new(&soft, host.quicklists().unwrap()).unwrap()).unwrap();
    let machine = HostMachine::new(&host, policy, &soft).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let request = Request {
        node: pin.node(),
        order: 0,
        zero: true,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    };
    // SAFETY: 1. the window of a host reaches all of its frames.
    let map = unsafe { KernelMap::<Upper<true>, _>::new(host.frames(), host.window(), request) }.unwrap();
    let start = 0xffff_0000_0000_0000;
    let mut range = map.claim(on, VirtAddr(start), 0x20_0000).unwrap();
    // SAFETY: 1. nobody uses the memory behind the frame.
    unsafe { range.map(on, VirtAddr(start), Pfn(0x1000), 1, DATA, AllocFlags::NORMAL) }.unwrap();
    upper.load_kernel_root(0, map.root());
    assert!(upper.access(0, start, ptsan::Access::WRITE.kernel()));
    assert!(!upper.access(0, start + PAGE, ptsan::Access::READ.kernel()));
    assert_eq!(upper.with(|san, _| san.total()), 0);
    // The machine's flushes go to the other sanitizer.
    upper.with(|san, _| san.leave(0));
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    // A space has no entry of the kernel's.
    let space = Space::<AArch64<true>>::new(on).unwrap();
    space.end(on).unwrap();
    assert!(map.end(host.frames()).is_ok());
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
}

/// Makes pages of a space read-only or writable again, which a CPU holds. Returns the flushes that
/// each change took.
fn flushes_of_mprotect<const BREAK: bool>() -> (usize, usize) {
    let host = host::<AArch64<BREAK>>(2);
    let soft = Soft::like(&host, Config { cpus: 2, asids: true, ..Config::new(Arch::aarch64_4k(48)) });
    let flushes = soft.told(|| {
        let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
        let tlb = TlbConfig { asids: 8, ..TlbConfig::new(2) };
        let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let range = VirtRange::new(START, START + PAGES * PAGE).unwrap();
        let mut space = Space::<AArch64<BREAK>>::new(on).unwrap();
        space.activate(on).unwrap();
        space.edit(on).unwrap().mmap(range, AreaFlags(3), 0).unwrap();
        let pages = || (0..PAGES).map(|i| START + i * PAGE);
        for page in pages() {
            space.fault(on, VirtAddr(page), Access::Write).unwrap();
            assert!(soft.access(0, page, ptsan::Access::WRITE));
        }
        let mut change = |flags| {
            let before = machine.tlb().counts();
            space.edit(on).unwrap().mprotect(range, flags).unwrap();
            let after = machine.tlb().counts();
            (after.page + after.range + after.full) - (before.page + before.range + before.full)
        };
        let loses = change(AreaFlags(1));
        for page in pages() {
            assert!(soft.access(0, page, ptsan::Access::READ));
            assert!(!soft.access(0, page, ptsan::Access::WRITE));
        }
        let gains = change(AreaFlags(3));
        for page in pages() {
            assert!(soft.access(0, page, ptsan::Access::WRITE), "{page:#x}: a CPU keeps what denied");
        }
        space.end(on).unwrap();
        machine.drain(&slots);
        (loses, gains)
    });
    host.audit().unwrap();
    soft.with(|san, _| {
        san.finish();
        san.assert_clean();
    });
    flushes
}

#[test]
fn pages_that_only_gain_permissions_are_not_flushed() {
    assert_eq!(flushes_of_mprotect::<true>(), (1, 0));
    assert_eq!(flushes_of_mprotect::<false>(), (1, 0));
}

/// Random calls on two CPUs, with all stores told.
fn told<F: Format, T: MmuTraits, const BREAK: bool>(seed: u64, asids: u16, arch: Arch) -> Found {
    let config = Config { cpus: 2, barriers: true, accessed_dirty: true, ..Config::new(arch) };
    random::<Told<F, BREAK>, T>(seed, 2000, asids, config)
}

/// Random calls on MMUs like `T` that walk `F` have no findings.
fn is_silent<F: Format, T: MmuTraits>(arch: &Arch) {
    for seed in 1..12 {
        for asids in [0, 3, 200] {
            let found = told::<F, T, true>(seed, asids, arch.clone());
            assert_eq!(found.findings, 0, "seed {seed}, {asids} numbers:\n{}", found.report);
            let (served, passed) = (found.served, found.passed);
            assert!(served > 50 && passed > 10, "{served} faults, {passed} accesses");
        }
    }
}

#[test]
fn random_calls_break_before_they_make() {
    is_silent::<Aarch64, Broadcasting>(&Arch::aarch64_4k(48));
    let found = (1..9)
        .filter(|seed| {
            let found = told::<Aarch64, Broadcasting, false>(*seed, 200, Arch::aarch64_4k(48));
            found.report.contains("break-before-make")
        })
        .count();
    assert_eq!(found, 8, "runs of eight in which breaks that are left out are noticed");
}

#[test]
fn random_calls_on_a_format_without_breaks_have_no_finding() {
    is_silent::<X86_64, Interrupting>(&Arch::x86_64());
    is_silent::<X86_64, Fencing>(&Arch::x86_64());
    // There are no breaks to be left out.
    for seed in 1..9 {
        let found = told::<X86_64, Interrupting, false>(seed, 200, Arch::x86_64());
        assert_eq!(found.findings, 0, "seed {seed}:\n{}", found.report);
    }
}
