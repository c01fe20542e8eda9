//! Leaf tables in high memory: where they are, how they are reached, and `userpte=`.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{Format, I386, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::params::{AutoParams, UserPte};
use ptarmigan::quicklist::{ListsConfig, Memory, Policy};
use ptarmigan::space::{Access, AreaFlags, SharedSpace, Space};
use ptarmigan::table::KernelMap;
use ptarmigan::tlb::TlbConfig;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{CpuSlot, Delivery, Host, HostConfig, HostMachine, HostTables, NoTlb};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const RW: AreaFlags = AreaFlags::READ.with(AreaFlags::WRITE);

type Lists<'h, F> = ptarmigan::quicklist::Quicklists<'h, &'h HostTables, &'h KernelMap<F, DirectMap>>;
type High<'h, F> = HostMachine<'h, F, Lists<'h, F>, NoTlb, &'h HostTables>;

fn host<F: Format>(bytes: u64, low: u64, cpus: usize) -> Host<F> {
    Host::new(HostConfig { bytes, low, cpus, ..HostConfig::default() }).expect("a host")
}

/// Runs `f` on a machine whose tables are placed as `userpte` says, and checks that every frame is
/// back and every window closed.
fn on<F: Format>(host: &Host<F>, userpte: UserPte, f: impl FnOnce(&High<'_, F>, &HostTables, Vec<CpuSlot>)) {
    let tables = HostTables::new(host, userpte).expect("windows");
    let cpus = host.config().cpus;
    {
        // SAFETY: 1. it was made for this host.
        let source = unsafe { tables.source(host) };
        let lists = host.quicklists_of(ListsConfig::new(cpus), source).expect("lists");
        // SAFETY: 1. the window was made for this host, and reaches all of its memory.
        let machine = unsafe {
            HostMachine::with_window(host, lists, NoTlb, TlbConfig::new(cpus), Delivery::AtOnce, &tables)
        };
        let machine = machine.expect("a machine");
        f(&machine, &tables, host.slots());
        machine.drain(&host.slots());
        assert_eq!(machine.policy().counts().live(), 0);
        assert_eq!(machine.policy().counts().cached(), 0);
    }
    assert_eq!(tables.open_now(), 0);
    host.audit().expect("every frame is back");
}

/// Runs programs that fault, fork, unmap, move and end. Returns the numbers of tables on the way.
fn programs<M: Machine<Policy = P> + ptarmigan::space::SpaceMachine, P: Policy, F: Format>(
    on: On<'_, M>,
) -> Vec<u32> {
    let mut tables = Vec::new();
    let mut space = Space::<F>::new(on).expect("a space");
    let area = |at: u64, pages: u64| VirtRange::new(at * MIB, at * MIB + pages * PAGE).unwrap();
    for at in [16, 64, 300, 700] {
        space.edit(on).unwrap().mmap(area(at, 3000), RW, 0).expect("an area");
        for page in (0..3000).step_by(7) {
            space.fault(on, VirtAddr(at * MIB + page * PAGE), Access::Write).expect("a page");
        }
        tables.push(space.tree().tables_below_root());
    }
    let mut child = space.edit(on).unwrap().fork().expect("a child");
    for page in (0..3000).step_by(35) {
        child.fault(on, VirtAddr(64 * MIB + page * PAGE), Access::Write).expect("a copy");
        space.fault(on, VirtAddr(300 * MIB + page * PAGE), Access::Write).expect("a copy");
    }
    child.edit(on).unwrap().munmap(area(64, 1500)).unwrap();
    tables.push(child.tree().tables_below_root());
    child.edit(on).unwrap().mprotect(area(300, 3000), AreaFlags::READ).unwrap();
    child.edit(on).unwrap().mremap(area(700, 2000), area(1100, 2000), false).expect("room");
    tables.push(child.tree().tables_below_root());
    child.end(on).unwrap();
    space.end(on).unwrap();
    tables
}

fn same_tables_wherever_they_are<F: Format>() {
    let host = host::<F>(256 * MIB, 64 * MIB, 1);
    let mut all = Vec::new();
    let auto = UserPte::Auto(AutoParams::default());
    for userpte in [UserPte::NoHigh, UserPte::High, auto] {
        on(&host, userpte, |machine, windows, slots| {
            let pin = slots[0].pin();
            all.push(programs::<_, _, F>(machine.on(&pin).unwrap()));
            let counts = machine.policy().counts();
            let leaf = counts.levels[Level::PTE.at()].allocs;
            if userpte == UserPte::High {
                assert_eq!(counts.high.allocs, leaf, "every leaf table is in high memory");
                assert!(windows.opened() > leaf);
            } else {
                assert_eq!((counts.high.allocs, windows.opened()), (0, 0));
            }
        });
    }
    assert!(all[0].iter().all(|n| *n > 0));
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0], all[2]);
}

#[test]
fn x86_64_has_the_same_tables_wherever_they_are() {
    same_tables_wherever_they_are::<X86_64>();
}

#[test]
fn pae_has_the_same_tables_wherever_they_are() {
    same_tables_wherever_they_are::<X86Pae>();
}

#[test]
fn i386_has_the_same_tables_wherever_they_are() {
    same_tables_wherever_they_are::<I386>();
}

#[test]
fn a_fault_opens_a_high_table_twice_at_most() {
    let host = host::<X86Pae>(256 * MIB, 64 * MIB, 1);
    on(&host, UserPte::High, |machine, windows, slots| {
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let mut space = Space::<X86Pae>::new(on).unwrap();
        let area = VirtRange::new(16 * MIB, 80 * MIB).unwrap();
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        // Tables at hand, so that no page has to be cleared.
        for at in (area.start..area.end).step_by(2 << 20) {
            space.fault(on, VirtAddr(at), Access::Read).unwrap();
        }
        space.edit(on).unwrap().munmap(area).unwrap();
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        let mut most = 0;
        for at in (area.start..area.end).step_by(64 << 10) {
            for access in [Access::Read, Access::Write] {
                let before = windows.opened();
                space.fault(on, VirtAddr(at), access).unwrap();
                most = most.max(windows.opened() - before);
            }
        }
        // Debug builds also look whether a table that is handed out is zero.
        assert!(most <= 2 + usize::from(cfg!(debug_assertions)), "{most} windows for a fault");
        space.end(on).unwrap();
    });
}

#[test]
fn tables_are_low_where_high_memory_is_full() {
    let host = host::<X86Pae>(64 * MIB, 62 * MIB, 1);
    on(&host, UserPte::High, |machine, _, slots| {
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let mut space = Space::<X86Pae>::new(on).unwrap();
        let area = VirtRange::new(16 * MIB, 1616 * MIB).unwrap();
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for at in (area.start..area.end).step_by(2 << 20) {
            space.fault(on, VirtAddr(at), Access::Read).unwrap();
        }
        let counts = machine.policy().counts();
        assert!(counts.high.live() > 100, "{:?}", counts.high);
        assert!(counts.levels[0].live() >= 800 && counts.high.live() < 700, "{counts:?}");
        space.end(on).unwrap();
    });
}

/// Maps one page in each table's span of a program after the other, until memory runs out. Returns
/// the number of tables of the programs that got all that they wanted.
fn sparse_programs(machine: &High<'_, X86Pae>, slots: &[CpuSlot], most: usize) -> (usize, u64) {
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let area = VirtRange::new(16 * MIB, 1040 * MIB).unwrap();
    let (mut spaces, mut tables) = (Vec::new(), 0);
    for _ in 0..most {
        let Ok(mut space) = Space::<X86Pae>::new(on) else { break };
        let mapped = space.edit(on).unwrap().mmap(area, RW, 0).is_ok();
        let all = mapped
            && (area.start..area.end)
                .step_by(2 << 20)
                .all(|at| space.fault(on, VirtAddr(at), Access::Read).is_ok());
        tables += u64::from(space.tree().tables_below_root());
        spaces.push(space);
        if !all {
            spaces.pop().unwrap().end(on).unwrap();
            break;
        }
    }
    let done = spaces.len();
    spaces.into_iter().for_each(|space| space.end(on).unwrap());
    (done, tables)
}

#[test]
fn auto_goes_on_where_low_memory_alone_would_not_do() {
    const PROGRAMS: usize = 40;
    let host = host::<X86Pae>(160 * MIB, 32 * MIB, 1);
    let mut done = Vec::new();
    for userpte in [UserPte::NoHigh, UserPte::High, UserPte::Auto(AutoParams::default())] {
        on(&host, userpte, |machine, _, slots| {
            done.push(sparse_programs(machine, &slots, PROGRAMS));
            let counts = machine.policy().counts();
            match userpte {
                UserPte::NoHigh => assert_eq!(counts.high.allocs, 0),
                UserPte::High => assert_eq!(counts.high.allocs, counts.levels[0].allocs),
                UserPte::Auto(_) => {
                    let low = counts.levels[0].allocs - counts.high.allocs;
                    assert!(low > 500 && counts.high.allocs > 2000, "{counts:?}");
                }
            }
        });
    }
    let [nohigh, high, auto] = done[..] else { panic!("three runs") };
    assert!(nohigh.0 < PROGRAMS, "low memory alone does not do: {nohigh:?}");
    assert_eq!(high.0, PROGRAMS);
    assert_eq!(auto, high, "the same programs with the same tables");
}

#[test]
fn many_tables_of_a_space_are_high_while_low_memory_is_short() {
    let host = host::<X86Pae>(256 * MIB, 64 * MIB, 1);
    let params = AutoParams { share: 1, reserve: 1, margin: 49, beta: 100 };
    on(&host, UserPte::Auto(params), |machine, _, slots| {
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let share = machine.table_share();
        assert_eq!(share, 163, "one of a hundred of 16,384 frames");
        let mut space = Space::<X86Pae>::new(on).unwrap();
        let area = VirtRange::new(16 * MIB, 1040 * MIB).unwrap();
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for at in (area.start..area.end).step_by(2 << 20) {
            space.fault(on, VirtAddr(at), Access::Read).unwrap();
        }
        let counts = machine.policy().counts();
        let low = counts.levels[0].allocs - counts.high.allocs;
        assert_eq!(low, share as usize, "low memory is not ample: half of it is the margin");
        space.end(on).unwrap();
    });
}

#[test]
fn threads_fault_in_one_space_with_high_tables() {
    let host = host::<X86Pae>(256 * MIB, 64 * MIB, 4);
    on(&host, UserPte::High, |machine, _, mut slots| {
        slots.truncate(1);
        let space = {
            let pin = slots[0].pin();
            let on = machine.on(&pin).unwrap();
            let mut space = Space::<X86Pae>::new(on).unwrap();
            let area = VirtRange::new(16 * MIB, 216 * MIB).unwrap();
            space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
            SharedSpace::new(space)
        };
        std::thread::scope(|scope| {
            let space = &space;
            for t in 1..4 {
                let host = &host;
                scope.spawn(move || {
                    let slot = host.slot(t).expect("a CPU");
                    let pin = slot.pin();
                    let on = machine.on(&pin).unwrap();
                    for i in 0..4000u64 {
                        let at = 16 * MIB + (i * 13 + t as u64 * 7) % 50_000 * PAGE;
                        space.fault(on, VirtAddr(at), Access::Write).unwrap();
                    }
                });
            }
        });
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        space.into_inner().end(on).unwrap();
        let counts = machine.policy().counts();
        assert_eq!(counts.high.allocs, counts.levels[0].allocs);
    });
}

#[test]
fn memory_says_what_is_in_high_memory() {
    let host = host::<X86Pae>(256 * MIB, 64 * MIB, 1);
    on(&host, UserPte::High, |machine, _, slots| {
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let free = |memory: &Memory| memory.low_free + memory.high_free;
        let before = machine.policy().memory();
        let mut space = Space::<X86Pae>::new(on).unwrap();
        let area = VirtRange::new(16 * MIB, 116 * MIB).unwrap();
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for at in (area.start..area.end).step_by(2 << 20) {
            space.fault(on, VirtAddr(at), Access::Read).unwrap();
        }
        let after = machine.policy().memory();
        assert_eq!(after.high_page_tables, 50 * PAGE);
        // Roots of 32 bytes are parts of a frame.
        let small = after.page_tables % PAGE;
        assert_eq!(after.page_tables - small, 53 * PAGE);
        let taken = free(&before) - free(&after);
        let areas = taken - (after.tables - after.tables % PAGE);
        assert!(areas <= 2 * PAGE, "a frame for roots and one for areas: {areas}");
        assert_eq!(after.total, after.low_total + after.high_total);
        let text = machine.policy().meminfo().to_string();
        assert!(text.contains("HighPageTables:      200 kB\n"), "{text}");
        assert!(text.contains("Node 0 HighTotal:        196608 kB\n"), "{text}");
        space.end(on).unwrap();
        let ended = machine.policy().memory();
        assert_eq!((ended.page_tables, ended.high_page_tables), (0, 0));
        assert!(ended.high_quicklists > 0 && ended.quicklists >= ended.high_quicklists);
    });
}

#[test]
fn without_high_memory_all_tables_are_low() {
    let all_low = host::<X86Pae>(64 * MIB, u64::MAX, 1);
    on(&all_low, UserPte::High, |machine, windows, slots| {
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        let mut space = Space::<X86Pae>::new(on).unwrap();
        let area = VirtRange::new(16 * MIB, 18 * MIB).unwrap();
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        space.fault(on, VirtAddr(area.start), Access::Write).unwrap();
        assert_eq!((machine.policy().counts().high.allocs, windows.opened()), (0, 0));
        let text = machine.policy().meminfo().to_string();
        assert!(!text.contains("High"), "{text}");
        space.end(on).unwrap();
    });
}

#[test]
fn the_allocator_alone_says_who_asks_for_high_memory() {
    let host = host::<X86Pae>(256 * MIB, 64 * MIB, 1);
    on(&host, UserPte::High, |machine, _, slots| {
        let pin = slots[0].pin();
        let on = machine.on(&pin).unwrap();
        use ptarmigan::frames::HighUse;
        for (level, high, is_high) in [
            (Level::PTE, HighUse::Never, false),
            (Level::PTE, HighUse::May, true),
            (Level(1), HighUse::May, false),
        ] {
            let page = on.alloc(level, AllocFlags::NORMAL.with_high(high)).unwrap();
            assert_eq!(on.frames().is_high(page.addr().pfn()), is_high, "{level:?} {high:?}");
            // SAFETY: 1. taken just now.
            unsafe { on.free_unlinked(page) };
        }
    });
}
