//! Unmapping whose flush is left to the CPUs that it concerns: the pages that wait, for whom, and
//! the calls that do not wait.
use crate::common;
use crate::shootdown::flushes;
use common::{Watch, forgets_on, small, va, watched_with};
use ptarmigan::addr::{PhysAddr, VirtRange};
use ptarmigan::format::{MemoryType, X86_64};
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::space::{Access, Advice, AreaFlags, Done, Space, SpaceMachine, Unmapping};
use ptarmigan::table::Sizes;
use ptarmigan::tlb::{Scope, TlbConfig};
use ptarmigan_hosted::test::{self, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostMachine};
use ptsan::Kind;

/// An operation on a space.
type Call<'c> = &'c dyn Fn(&mut Space<X86_64>);

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;
const AT: u64 = 0x40_0000;
/// A flush of all of the space, on CPU 1.
const FULL: (u16, Scope) = (1, Scope::Full);

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

/// Whether it is [`FULL`].
fn is_full(call: &test::Call) -> bool {
    matches!(call, test::Call::Invalidate(cpu, what) if (cpu.0, what.scope) == FULL)
}

/// Maps and writes `n` pages.
fn fill<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<X86_64>, at: u64, n: u64) {
    space.edit(on).unwrap().mmap(pages(at, n), RW, 0).unwrap();
    for i in 0..n {
        space.fault(on, va(at + i * PAGE), Access::Write).unwrap();
    }
}

/// A space that two CPUs run in, and that unmaps later; `park` frames may be parked.
macro_rules! two {
    ($park:expr, |$m:ident, $a:ident, $b:ident, $space:ident, $told:ident| $body:block) => {
        let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
        let $told = TestMmu::new();
        let config = TlbConfig { park: $park, ..TlbConfig::new(2) };
        let policy = host.plain().unwrap();
        let $m = HostMachine::with_tlb(&host, policy, &$told, config, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let (pin_a, pin_b) = (slots[0].pin(), slots[1].pin());
        let ($a, $b) = ($m.on(&pin_a).unwrap(), $m.on(&pin_b).unwrap());
        let mut $space = Space::<X86_64>::new($a).unwrap();
        $space.edit($a).unwrap().set_unmapping(Unmapping::Deferred);
        $space.activate($a).unwrap();
        $space.activate($b).unwrap();
        $body
        $space.deactivate($b).unwrap();
        $space.end($a).unwrap();
        $m.drain(&slots);
        host.audit().unwrap();
    };
}

#[test]
fn pages_wait_for_the_cpus_in_the_space_and_none_is_interrupted() {
    two!(64, |m, a, b, space, told| {
        fill(a, &mut space, AT, 4);
        told.take_calls();
        space.edit(a).unwrap().munmap(pages(AT, 4)).unwrap();
        let forgotten = told.take_calls();
        assert!(forgotten.iter().all(forgets_on(0)), "{forgotten:?}");
        assert_eq!(m.parking().parked(a.pin()), 7, "three tables and four pages");
        let counts = m.tlb().counts();
        assert_eq!((counts.asked, counts.remote, counts.deferred), (0, 0, 1));
        assert_eq!(a.collect(), 0, "CPU 1 may use them still");
        m.tlb().catch_up(b.pin(), Some(space.tlb())).unwrap();
        assert_eq!(flushes(&told), [FULL]);
        assert_eq!((a.collect(), m.tlb().counts().caught_up), (7, 1));
        // Once is enough, and it is where the others are.
        m.tlb().catch_up(b.pin(), Some(space.tlb())).unwrap();
        fill(a, &mut space, AT, 1);
        space.edit(a).unwrap().madvise(pages(AT, 1), Advice::DontNeed).unwrap();
        let page = Scope::Page { at: AT, shift: 12 };
        assert_eq!(flushes(&told), [(1, page), (0, page)]);
    });
}

#[test]
fn a_cpu_that_loads_another_root_has_caught_up() {
    two!(64, |m, a, b, space, told| {
        let other = Space::<X86_64>::new(a).unwrap();
        fill(a, &mut space, AT, 1);
        space.edit(a).unwrap().munmap(pages(AT, 1)).unwrap();
        other.activate(b).unwrap();
        assert_eq!(a.collect(), 4);
        space.activate(b).unwrap();
        // So has one that rests, when it is idle.
        fill(a, &mut space, AT, 1);
        space.edit(a).unwrap().munmap(pages(AT, 1)).unwrap();
        space.rest(b).unwrap();
        b.idle();
        assert_eq!((a.collect(), m.tlb().counts().asked), (4, 0));
        space.activate(b).unwrap();
        told.take_calls();
        other.end(a).unwrap();
    });
}

#[test]
fn no_area_reuses_addresses_before_all_cpus_have_flushed_them() {
    two!(64, |m, a, b, space, told| {
        // Another area keeps the tables.
        fill(a, &mut space, AT + 8 * PAGE, 1);
        let below = AT + 4 * PAGE;
        let calls: [Call<'_>; 4] = [
            &|space| space.edit(a).unwrap().mmap(pages(AT, 4), RW, 0).unwrap(),
            &|space| space.edit(a).unwrap().mmap(pages(AT + PAGE, 1), RW, 0).unwrap(),
            &|space| {
                space.edit(a).unwrap().mremap(pages(AT + 8 * PAGE, 1), pages(AT, 1), false).unwrap();
                space.edit(a).unwrap().mremap(pages(AT, 1), pages(AT + 8 * PAGE, 1), false).unwrap();
            },
            &|space| space.edit(a).unwrap().mremap(pages(AT - PAGE, 1), pages(AT - PAGE, 2), false).unwrap(),
        ];
        for (i, call) in calls.iter().enumerate() {
            fill(a, &mut space, AT - PAGE, 1);
            fill(a, &mut space, AT, 4);
            told.take_calls();
            space.edit(a).unwrap().munmap(pages(AT, 4)).unwrap();
            assert!(!told.take_calls().iter().any(is_full));
            let edit = space.edit(a).unwrap();
            assert_eq!(edit.find_gap(4 * PAGE, below).unwrap().end, AT - PAGE, "it looks elsewhere");
            assert_eq!(edit.find_gap(2 * PAGE, AT + 7 * PAGE).unwrap().start, AT + 5 * PAGE);
            // Lengths are rounded up to pages; one that cannot be has no gap.
            let (one, none) = (edit.find_gap(PAGE + 1, AT + 7 * PAGE), edit.find_gap(u64::MAX, below));
            assert_eq!((one, none), (edit.find_gap(2 * PAGE, AT + 7 * PAGE), None));
            call(&mut space);
            assert!(told.take_calls().iter().any(is_full), "call {i}");
            assert_eq!((m.parking().parked(a.pin()), a.collect()), (0, 0));
            space.edit(a).unwrap().munmap(pages(AT - PAGE, 5)).unwrap();
            m.tlb().catch_up(b.pin(), Some(space.tlb())).unwrap();
            assert_eq!(space.edit(a).unwrap().find_gap(PAGE, below).unwrap().end, below, "free again");
            a.collect();
        }
        // Elsewhere, nobody is asked.
        fill(a, &mut space, AT, 4);
        space.edit(a).unwrap().munmap(pages(AT, 4)).unwrap();
        told.take_calls();
        fill(a, &mut space, AT + 4 * PAGE, 1);
        assert!(!told.take_calls().iter().any(is_full));
    });
}

#[test]
fn a_heap_and_a_stack_that_grow_have_all_forget_first() {
    two!(64, |_m, a, _b, space, told| {
        let heap = |space: &mut Space<X86_64>, pages| {
            space.edit(a).unwrap().brk(va(AT + pages * PAGE)).unwrap();
        };
        heap(&mut space, 0);
        heap(&mut space, 2);
        space.fault(a, va(AT + PAGE), Access::Write).unwrap();
        heap(&mut space, 1);
        told.take_calls();
        heap(&mut space, 2);
        assert!(told.take_calls().iter().any(is_full));
        let stack = AT + (4 << 20);
        fill(a, &mut space, stack - PAGE, 1);
        let flags = RW.with(AreaFlags::GROWS_DOWN);
        space.edit(a).unwrap().mmap(pages(stack, 1), flags, 0).unwrap();
        space.edit(a).unwrap().munmap(pages(stack - PAGE, 1)).unwrap();
        told.take_calls();
        space.fault(a, va(stack - PAGE), Access::Write).unwrap();
        assert!(told.take_calls().iter().any(is_full));
        // One that is moved, or given more room where it is.
        for down in [8, 0] {
            fill(a, &mut space, stack - 12 * PAGE, 2);
            space.edit(a).unwrap().munmap(pages(stack - 12 * PAGE, 2)).unwrap();
            told.take_calls();
            let place = VirtRange::new(stack - 16 * PAGE, stack + PAGE - down * PAGE).unwrap();
            space.edit(a).unwrap().move_stack(place, RW).unwrap();
            assert!(told.take_calls().first().is_some_and(is_full), "before anything else");
            space.edit(a).unwrap().munmap(VirtRange::new(place.start, place.end - PAGE).unwrap()).unwrap();
            space.edit(a).unwrap().move_stack(pages(stack - PAGE, 2), RW).unwrap();
        }
    });
}

#[test]
fn a_fault_on_a_present_page_does_the_flushes_left_to_the_cpu() {
    two!(64, |_m, a, b, space, told| {
        // The CPU may know links of tables that others have replaced.
        let at = AT + (2 << 20);
        let all = VirtRange::new(at, at + (2 << 20)).unwrap();
        let device = |space: &mut Space<X86_64>, sizes| {
            let (memory, first) = (MemoryType::WriteBack, PhysAddr(2 << 30));
            // SAFETY: 1. no program runs in the space.
            unsafe { space.edit(a).unwrap().map_physical_large(all, RW, first, memory, sizes) }.unwrap();
        };
        let calls: [Call<'_>; 4] = [
            &|space| space.edit(a).unwrap().mmap(pages(at, 1), RW, 0).unwrap(),
            &|space| space.edit(a).unwrap().mmap(all, RW.with(AreaFlags::LARGE), 0).unwrap(),
            &|space| device(space, Sizes::PAGES),
            &|space| device(space, Sizes::up_to(Level(1))),
        ];
        for (i, call) in calls.iter().enumerate() {
            fill(a, &mut space, AT, 1);
            space.edit(a).unwrap().munmap(pages(AT, 1)).unwrap();
            call(&mut space);
            space.fault(a, va(at), Access::Write).unwrap();
            told.take_calls();
            assert_eq!(space.fault(b, va(at), Access::Write), Ok(Done::Spurious));
            assert_eq!(flushes(&told), [FULL], "call {i}");
            space.edit(a).unwrap().munmap(all).unwrap();
        }
    });
}

#[test]
fn what_shows_in_another_way_is_flushed_at_once() {
    two!(64, |m, a, _b, space, told| {
        let calls: [Call<'_>; 5] = [
            &|space| space.edit(a).unwrap().madvise(pages(AT, 1), Advice::DontNeed).unwrap(),
            &|space| space.edit(a).unwrap().mprotect(pages(AT, 1), AreaFlags::READ).unwrap(),
            &|space| space.edit(a).unwrap().mmap(pages(AT, 1), RW, 0).unwrap(),
            &|space| {
                space.edit(a).unwrap().mremap(pages(AT, 1), pages(AT + 9 * PAGE, 1), false).unwrap();
            },
            &|space| {
                let child = space.edit(a).unwrap().fork().unwrap();
                child.end(a).unwrap();
            },
        ];
        for (i, call) in calls.iter().enumerate() {
            fill(a, &mut space, AT, 1);
            let asked = m.tlb().counts().asked;
            call(&mut space);
            assert!(m.tlb().counts().asked > asked, "call {i}");
            assert_eq!((m.parking().parked(a.pin()), m.tlb().counts().deferred), (0, 0));
            space.edit(a).unwrap().set_unmapping(Unmapping::AtOnce);
            space.edit(a).unwrap().munmap(pages(AT, 16)).unwrap();
            space.edit(a).unwrap().set_unmapping(Unmapping::Deferred);
        }
        // Shared areas, whose frames the space does not hold.
        space.edit(a).unwrap().mmap(pages(AT, 1), RW.with(AreaFlags::SHARED), 7).unwrap();
        space.fault(a, va(AT), Access::Write).unwrap();
        told.take_calls();
        space.edit(a).unwrap().munmap(pages(AT, 1)).unwrap();
        assert!(told.take_calls().iter().any(forgets_on(1)));
        // Where no frame waits, there is no bound to what would be left.
        space.edit(a).unwrap().mmap(pages(AT, 2), RW, 0).unwrap();
        space.fault(a, va(AT + PAGE), Access::Read).unwrap();
        space.edit(a).unwrap().mprotect(pages(AT, 2), AreaFlags::READ).unwrap();
        assert_eq!(m.tlb().counts().deferred, 0);
    });
}

#[test]
fn many_small_ones_join_and_beyond_the_bound_all_are_asked_once() {
    two!(256, |m, a, _b, space, told| {
        // An area keeps the tables.
        fill(a, &mut space, AT, 1);
        let one = |space: &mut Space<X86_64>, i: u64| {
            let at = AT + (1 + i) * PAGE;
            fill(a, space, at, 1);
            space.edit(a).unwrap().munmap(pages(at, 1)).unwrap();
        };
        for i in 0..256 {
            one(&mut space, i);
        }
        assert_eq!((m.parking().parked(a.pin()), m.tlb().counts().asked), (256, 0));
        assert_eq!(m.tlb().counts().deferred, 256);
        told.take_calls();
        one(&mut space, 256);
        assert_eq!(told.take_calls().iter().filter(|call| is_full(call)).count(), 1);
        let counts = m.tlb().counts();
        assert_eq!((counts.asked, counts.forced, m.parking().parked(a.pin())), (1, 1, 0));
    });
}

#[test]
fn a_frame_that_waits_is_nobody_elses_alone() {
    two!(64, |m, a, b, space, told| {
        fill(a, &mut space, AT, 1);
        let mut child = space.edit(a).unwrap().fork().unwrap();
        space.edit(a).unwrap().munmap(pages(AT, 1)).unwrap();
        // CPU 1 may read the page still: the child must not write to it in place.
        assert_eq!(child.fault(a, va(AT), Access::Write), Ok(Done::Copied));
        m.tlb().catch_up(b.pin(), Some(space.tlb())).unwrap();
        a.collect();
        child.end(a).unwrap();
        told.take_calls();
    });
}

/// Random calls on spaces that two CPUs run in, under the sanitizer.
#[test]
fn random_spaces_use_no_frame_again_that_a_cpu_may_know() {
    for seed in 1..=4 {
        let cpus = 2;
        let host = Host::<X86_64>::new(small(cpus, 1, 32)).unwrap();
        let watch = Watch::with_asids(&host, true);
        let asids = if seed % 2 == 0 { 3 } else { 0 };
        let config = TlbConfig { asids, park: 64, ..TlbConfig::new(cpus) };
        let m = watched_with(&watch, host.quicklists().unwrap(), config, Delivery::Adverse(seed));
        let slots = host.slots();
        let mut rng = fastrand::Rng::with_seed(seed);
        let on = |cpu: usize| slots[cpu].pin();
        let first = on(0);
        let mut spaces: [Space<X86_64>; 2] = std::array::from_fn(|_| {
            let mut space = Space::new(m.on(&first).unwrap()).unwrap();
            space.edit(m.on(&first).unwrap()).unwrap().set_unmapping(Unmapping::Deferred);
            space
        });
        let mut runs = [usize::MAX; 2];
        for _ in 0..4000 {
            let cpu = rng.usize(..cpus);
            let pin = on(cpu);
            let a = m.on(&pin).unwrap();
            let at = rng.usize(..2);
            let area = pages(AT + rng.u64(..3) * (2 << 20) + rng.u64(..4) * PAGE, 1 + rng.u64(..4));
            match rng.u64(..10) {
                0..3 => spaces[at].edit(a).unwrap().munmap(area).unwrap(),
                3 => spaces[at].edit(a).unwrap().mmap(area, RW, 0).unwrap(),
                4 => _ = spaces[at].edit(a).unwrap().madvise(area, Advice::DontNeed),
                5 => _ = a.collect(),
                6 => {
                    let space = spaces.get(runs[cpu]).map(Space::tlb);
                    m.tlb().catch_up(&pin, space.filter(|_| rng.bool())).unwrap();
                }
                _ => {
                    if runs[cpu] != at {
                        if let Some(old) = spaces.get(runs[cpu]) {
                            old.deactivate(a).unwrap();
                        }
                        spaces[at].activate(a).unwrap();
                        runs[cpu] = at;
                    }
                    if spaces[at].fault(a, va(area.start), Access::Write).is_ok() {
                        watch.translate(cpu, area.start, ptsan::Access::WRITE).unwrap();
                    }
                }
            }
        }
        let counts = m.tlb().counts();
        assert!(counts.deferred > 40 && counts.caught_up > 20, "{counts:?}");
        for (cpu, at) in runs.into_iter().enumerate() {
            if let Some(space) = spaces.get(at) {
                space.deactivate(m.on(&on(cpu)).unwrap()).unwrap();
            }
        }
        for space in spaces {
            space.end(m.on(&first).unwrap()).unwrap();
        }
        m.drain(&slots);
        assert_eq!(watch.count(Kind::StaleUse), 0, "{}", watch.report());
        assert_eq!(watch.finish(), Default::default(), "seed {seed}: {}", watch.report());
        host.audit().unwrap();
    }
}
