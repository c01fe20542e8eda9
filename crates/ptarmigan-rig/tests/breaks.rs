//! Live entries that an architecture wants broken before others take their places (AArch64), under
//! the sanitizer.
#[macro_use]
#[path = "breaks/format.rs"]
mod format;
#[path = "breaks/soft.rs"]
mod soft;
#[path = "breaks/told.rs"]
mod told;

use format::DEVICE;
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::Attr;
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::hosted::{Delivery, Host, HostConfig, HostMachine};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, Advice, AreaFlags, Space};
use ptarmigan::table::{KernelMap, Tree};
use ptarmigan::tlb::{CostModel, Costs, SpaceId, TlbConfig};
use ptsan::{AccessKind, Adversary, Arch, Config, Kind};
use soft::Soft;
use std::panic::{AssertUnwindSafe, catch_unwind};
use told::{AArch64, Upper};

const PAGE: u64 = 4096;
const DATA: Attr = Attr(1 | 2 | 32 | 64);
const USER: Attr = Attr(DATA.0 | 8);

fn host<F: ptarmigan::format::Format>(cpus: usize) -> Host<F> {
    Host::new(HostConfig { cpus, bytes: 64 << 20, ..HostConfig::default() }).unwrap()
}

/// Findings after a page of the kernel's half, which a CPU holds, was given other attributes.
fn kernel_page_becomes<const BREAK: bool>(pages: u64, add: Attr) -> (u64, u64) {
    let host = host::<Upper<BREAK>>(1);
    let soft = Soft::new(&host, Config { asids: true, ..Config::new(Arch::aarch64_4k(48).upper()) });
    let told = soft.told();
    let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids: 8, ..TlbConfig::new(1) };
    let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let (start, bytes) = (0xffff_ffff_ffc0_0000, 0x40_0000);
    let mut range = host.kernel().claim(on, VirtAddr(start), bytes).unwrap();
    // The kernel's own root, without a space.
    soft.run_in_kernel_tree(host.kernel().root());
    // SAFETY: 1. nobody uses the memory behind these frames.
    unsafe { range.map(on, VirtAddr(start), Pfn(0x1000), pages, DATA, AllocFlags::NORMAL) }.unwrap();
    let read_all = || (0..pages).all(|i| soft.kernel_access(0, start + i * PAGE, AccessKind::Read));
    assert!(read_all());
    range.protect(on, VirtAddr(start), pages, |attr| attr | add).unwrap();
    for i in 0..pages {
        let (frame, attr) = range.query(on, VirtAddr(start + i * PAGE)).unwrap();
        assert_eq!((frame, attr), (Pfn(0x1000 + i as u32), DATA | add), "page {i}");
    }
    assert!(read_all());
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    drop(told);
    soft.with(|san| (san.count(Kind::BreakBeforeMake), san.total()))
}

#[test]
fn a_page_of_the_kernels_becomes_global_or_a_devices_with_a_break() {
    // One page; and more than a batch, in more than one table.
    for pages in [1, 64, 65, 700] {
        for add in [Attr::GLOBAL, DEVICE] {
            assert_eq!(kernel_page_becomes::<true>(pages, add), (0, 0), "{pages} pages: {add:?}");
        }
        // Permissions alone need none.
        assert_eq!(kernel_page_becomes::<true>(pages, Attr::EXEC), (0, 0));
    }
    let (breaks, _) = kernel_page_becomes::<false>(1, Attr::GLOBAL);
    assert_eq!(breaks, 1, "a library that is not told to break is found");
}

/// Changes the pages of a user's tree that a CPU holds, in one edit; findings.
fn user_pages<const BREAK: bool>(
    edit: impl FnOnce(&mut ptarmigan::table::TreeMut<'_, AArch64<BREAK>, UserMachine<'_, '_, BREAK>>),
) -> (u64, Vec<Option<(Pfn, Attr)>>) {
    let host = host::<AArch64<BREAK>>(2);
    let soft = Soft::new(&host, Config { cpus: 2, asids: true, ..Config::new(Arch::aarch64_4k(48)) });
    let told = soft.told();
    let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids: 8, ..TlbConfig::new(2) };
    let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let mut tree = Tree::<AArch64<BREAK>>::new(on, AllocFlags::NORMAL).unwrap();
    let range = VirtRange { start: START, end: START + PAGES * PAGE };
    // SAFETY: 1. no program uses the memory behind these frames.
    unsafe { tree.edit(on).unwrap().map_range(range, Pfn(0x1000), USER).unwrap() };
    tree.activate(on).unwrap();
    for i in 0..PAGES {
        assert!(soft.access(0, START + i * PAGE, AccessKind::Read));
    }
    edit(&mut tree.edit(on).unwrap());
    let after = (0..PAGES).map(|i| tree.query(on, VirtAddr(START + i * PAGE))).collect();
    tree.deactivate(on).unwrap();
    tree.end(on, |_, _, _| {}).unwrap();
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
    drop(told);
    soft.with(|san| san.finish());
    (soft.with(|san| san.total()), after)
}

type Lists<'h, F> = ptarmigan::quicklist::Quicklists<
    'h,
    ptarmigan::window::DirectMap,
    &'h KernelMap<F, ptarmigan::window::DirectMap>,
>;
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
    let all = VirtRange { start: START, end: START + PAGES * PAGE };
    let device = |found: &[Option<(Pfn, Attr)>], n: usize| {
        for (i, page) in found.iter().enumerate() {
            let attr = if i < n { USER | DEVICE } else { USER };
            assert_eq!(*page, Some((Pfn(0x1000 + i as u32), attr)), "page {i}");
        }
    };
    let (total, found) = user_pages::<true>(|edit| edit.change_range(all, |attr| attr | DEVICE));
    assert_eq!(total, 0);
    device(&found, PAGES as usize);
    let (total, found) = user_pages::<true>(|edit| {
        assert_eq!(edit.protect(VirtAddr(START), USER | DEVICE), Some(USER));
    });
    assert_eq!(total, 0);
    device(&found, 1);
    let (total, _) = user_pages::<false>(|edit| edit.change_range(all, |attr| attr | DEVICE));
    assert!(total > 0, "a library that is not told to break is found");
}

#[test]
fn a_page_that_is_unmapped_and_mapped_again_by_one_edit_is_flushed_in_between() {
    let again = |edit: &mut ptarmigan::table::TreeMut<'_, _, UserMachine<'_, '_, true>>| {
        edit.unmap(VirtAddr(START)).unwrap();
        // SAFETY: 1. no program uses the memory behind these frames.
        unsafe { edit.map(VirtAddr(START), Pfn(0x2000), USER, AllocFlags::NORMAL).unwrap() };
    };
    let (total, found) = user_pages::<true>(again);
    assert_eq!((total, found[0]), (0, Some((Pfn(0x2000), USER))));
}

#[test]
fn what_unwinds_in_the_middle_leaves_the_old_entries() {
    let all = VirtRange { start: START, end: START + PAGES * PAGE };
    let calls = std::cell::Cell::new(0);
    let (total, found) = user_pages::<true>(|edit| {
        let change = |attr| {
            calls.set(calls.get() + 1);
            assert!(calls.get() < 100, "enough");
            attr | DEVICE
        };
        assert!(catch_unwind(AssertUnwindSafe(|| edit.change_range(all, change))).is_err());
    });
    assert_eq!(total, 0);
    for (i, page) in found.iter().enumerate() {
        let (frame, attr) = page.unwrap();
        assert_eq!((frame, attr.without(DEVICE)), (Pfn(0x1000 + i as u32), USER), "page {i}");
    }
}

#[test]
fn a_kernel_tree_has_a_root_of_its_own_beside_spaces_of_another_format() {
    let host = host::<AArch64<true>>(1);
    let soft = Soft::new(&host, Config { asids: true, ..Config::new(Arch::aarch64_4k(48)) });
    let upper = Soft::new(&host, Config::new(Arch::aarch64_4k(48).upper()));
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
    upper.run_in_kernel_tree(map.root());
    assert!(upper.kernel_access(0, start, AccessKind::Write));
    assert!(!upper.kernel_access(0, start + PAGE, AccessKind::Read));
    assert_eq!(upper.with(|san| san.total()), 0);
    // The machine's flushes go to the other sanitizer.
    upper.with(|san| san.leave(0));
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
    // A space has no entry of the kernel's.
    let space = Space::<AArch64<true>>::new(on).unwrap();
    space.end(on).unwrap();
    assert!(map.end(host.frames()).is_ok());
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
}

#[test]
fn nothing_is_found_in_random_operations() {
    for seed in 1..12 {
        for asids in [0, 3, 200] {
            let found = random::<true>(seed, 2000, asids);
            assert_eq!(found.total, 0, "seed {seed}, {asids} numbers:\n{}", found.report);
            assert!(found.work.0 > 50 && found.work.1 > 10, "{:?}", found.work);
        }
    }
    let found = random::<false>(1, 4000, 200);
    assert!(found.report.contains("break-before-make"), "{}", found.report);
}

/// A generator of numbers.
struct Rng(u64);

impl Rng {
    /// From a seed.
    fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// What a run found: findings, and the report.
struct Found {
    /// Findings.
    total: u64,
    /// The report, with the most important finding first.
    report: String,
    /// Faults that were served, and accesses that were let through.
    work: (u64, u64),
}

const CPUS: usize = 2;

/// Random maps, unmaps, changes, forks and accesses by several spaces on two CPUs.
fn random<const BREAK: bool>(seed: u64, steps: u32, asids: u16) -> Found {
    let host =
        Host::<AArch64<BREAK>>::new(HostConfig { cpus: CPUS, bytes: 64 << 20, ..HostConfig::default() })
            .unwrap();
    let config = Config {
        cpus: CPUS,
        asids: asids != 0,
        adversary: Some(Adversary::new(seed)),
        barriers: true,
        accessed_dirty: true,
        ..Config::new(Arch::aarch64_4k(48))
    };
    let soft = Soft::new(&host, config);
    let told = soft.told();
    let policy = Layered::new(&soft, host.quicklists().unwrap()).unwrap();
    let tlb = TlbConfig { asids, costs: CostModel::Costs(Costs::new(1, 64)), ..TlbConfig::new(CPUS) };
    let machine = HostMachine::with_tlb(&host, policy, &soft, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let mut rng = Rng::new(seed);
    let mut spaces: Vec<Space<AArch64<BREAK>>> = Vec::new();
    let mut on_cpu: [Option<SpaceId>; CPUS] = [None; CPUS];
    let mut work = (0, 0);
    for _ in 0..steps {
        let cpu = rng.below(CPUS as u64) as usize;
        let pin = slots[cpu].pin();
        let on = machine.on(&pin).unwrap();
        if spaces.len() < 4 {
            spaces.push(Space::new(on).unwrap());
        }
        let at = rng.below(spaces.len() as u64) as usize;
        // Three leaf tables, two of which share the table above.
        let place = |n: u64| [0x4000_0000, 0x4020_0000, 0x80_0000_0000][n as usize % 3];
        let start = place(rng.below(3)) + rng.below(12) * PAGE;
        let range = VirtRange { start, end: start + (1 + rng.below(12)) * PAGE };
        let wide = VirtRange { start: 0x4000_0000, end: 0x4040_0000 };
        let flags = [AreaFlags(3), AreaFlags(3), AreaFlags(1), AreaFlags(3), AreaFlags(5), AreaFlags(0)]
            [rng.below(6) as usize];
        match rng.below(40) {
            0 => {
                let space = spaces.swap_remove(at);
                on_cpu.iter_mut().filter(|on| **on == Some(space.tlb().id())).for_each(|on| *on = None);
                space.end(on).unwrap();
            }
            1 if spaces.len() < 7 => {
                let child = spaces[at].edit(on).unwrap().fork().unwrap();
                spaces.push(child);
            }
            2 | 3 => spaces[at].edit(on).unwrap().munmap(range).unwrap(),
            4 => spaces[at].edit(on).unwrap().munmap(wide).unwrap(),
            5 => _ = spaces[at].edit(on).unwrap().madvise(range, Advice::DontNeed),
            6 => _ = spaces[at].edit(on).unwrap().mprotect(range, flags),
            13 => {
                let to = place(rng.below(3)) + rng.below(12) * PAGE;
                let to = VirtRange { start: to, end: to + range.len() };
                let _ = spaces[at].edit(on).unwrap().mremap(range, to, false);
            }
            14 => {
                let to = VirtRange { start: 0xc000_0000, end: 0xc040_0000 };
                let (from, to) = if rng.below(2) == 0 { (wide, to) } else { (to, wide) };
                let _ = spaces[at].edit(on).unwrap().mremap(from, to, false);
            }
            15 => spaces[at].edit(on).unwrap().mmap(wide, flags, 0).unwrap(),
            7..=9 => spaces[at].edit(on).unwrap().mmap(range, flags, 0).unwrap(),
            10..=12 => {
                if let Some(old) = on_cpu[cpu].and_then(|id| spaces.iter().find(|s| s.tlb().id() == id))
                    && old.tlb().id() != spaces[at].tlb().id()
                {
                    old.deactivate(on).unwrap();
                }
                spaces[at].activate(on).unwrap();
                on_cpu[cpu] = Some(spaces[at].tlb().id());
            }
            _ => {
                let Some(at) = on_cpu[cpu].and_then(|id| spaces.iter().position(|s| s.tlb().id() == id))
                else {
                    continue;
                };
                let (access, kind) = [(Access::Read, AccessKind::Read), (Access::Write, AccessKind::Write)]
                    [rng.below(2) as usize];
                // The access; the fault; the access again.
                if soft.access(cpu, start, kind) {
                    work.1 += 1;
                } else if spaces[at].fault(on, VirtAddr(start), access).is_ok() {
                    work.0 += 1;
                    assert!(
                        soft.access(cpu, start, kind),
                        "served, and faults again: {access:?} at {start:#x}"
                    );
                }
            }
        }
    }
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    for space in spaces {
        space.end(on).unwrap();
    }
    machine.drain(&slots);
    drop(machine);
    host.audit().unwrap();
    drop(told);
    soft.with(|san| {
        san.finish();
        Found { total: san.total(), report: san.to_string(), work }
    })
}
