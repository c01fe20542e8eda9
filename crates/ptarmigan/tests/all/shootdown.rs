//! Shootdowns between CPUs: which are asked, which requests are skipped or grow, lazy CPUs, numbers
//! of spaces, parked chains, and machines that do not keep their promises.
use crate::common;
use common::{Unnumbered, Watch, forgets_on, small, va, watched_with};
use ptarmigan::addr::{PhysAddr, VirtRange};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::{Formats, X86_64};
use ptarmigan::gather::Gather;
use ptarmigan::machine::{Machine, On};
use ptarmigan::quicklist::Layered;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::tlb::{
    Generation, Invalidation, Mmu, Root, Scope, Shootdown, SpaceId, SpaceTlb, Structures, Tlb, TlbConfig,
};
use ptarmigan_hosted::test::{Call, Loaded, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostMachine};
use ptsan::Kind;
use std::sync::Mutex;

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

/// Returns the flushes of spaces since the last time. CPUs may have become lazy; no other call may
/// have come.
pub fn flushes(mmu: &TestMmu<'_>) -> Vec<(u16, Scope)> {
    let scope = |call| match call {
        Call::Invalidate(cpu, what) => Some((cpu.0, what.scope)),
        Call::Lazy(..) | Call::Resume(..) => None,
        other => panic!("{other:?}"),
    };
    mmu.take_calls().into_iter().filter_map(scope).collect()
}

/// Whether CPU 1 left a space, or was told to forget a part of one.
fn disturbs_1(call: &Call) -> bool {
    matches!(call, Call::Unload(CpuId(1), _) | Call::Invalidate(CpuId(1), _))
}

fn leaves(cpu: u16) -> impl Fn(&Call) -> bool {
    move |call| matches!(call, Call::Unload(at, _) if at.0 == cpu)
}

/// A change of `n` pages from `start` on.
fn change<M: Machine>(on: On<'_, M>, space: &SpaceTlb, start: u64, n: u64) {
    let mut gather = Gather::new(on, space, 12).unwrap();
    gather.changed(start, start + n * PAGE);
    gather.finish();
}

/// The scope of a [`change`] of one page, whose size nobody told.
fn changed_page(at: u64) -> Scope {
    Scope::Range { start: at, end: at + PAGE, stride: 12, mixed: true }
}

/// The CPU begins to run in a space without tables.
fn run_in<S: Shootdown>(tlb: &Tlb<S>, pin: &Pinned<'_>, space: &SpaceTlb) {
    // SAFETY: 1. there is no MMU that would walk tables.
    unsafe { tlb.activate(pin, space, PhysAddr(0x1000)).unwrap() };
}

macro_rules! machine {
    ($cpus:expr, $config:expr, |$host:ident, $m:ident, $slots:ident, $told:ident| $body:block) => {
        let $host = Host::<X86_64>::new(small($cpus, 1, 16)).unwrap();
        let $told = TestMmu::new();
        let config: TlbConfig = $config;
        let policy = $host.plain().unwrap();
        let $m = HostMachine::with_tlb(&$host, policy, &$told, config, Delivery::AtOnce).unwrap();
        let $slots = $host.slots();
        $body
    };
}

#[test]
fn a_cpu_that_is_behind_flushes_all_and_one_ahead_nothing() {
    machine!(2, TlbConfig::new(2), |host, m, slots, told| {
        let space = m.tlb().new_space();
        let (pin_a, pin_b) = (slots[0].pin(), slots[1].pin());
        let (a, b) = (m.on(&pin_a).unwrap(), m.on(&pin_b).unwrap());
        run_in(m.tlb(), &pin_a, &space);
        run_in(m.tlb(), &pin_b, &space);
        told.take_calls();
        change(a, &space, 0x4000, 1);
        let page = changed_page(0x4000);
        assert_eq!(flushes(&told), [(1, page), (0, page)]);
        // CPU 1 misses one while it is lazy, and is one step behind when the next comes, which is
        // then not enough.
        m.tlb().rest(&pin_b, &space).unwrap();
        change(a, &space, 0x5000, 1);
        assert_eq!(flushes(&told), [(0, changed_page(0x5000))], "lazy CPUs are spared");
        run_in(m.tlb(), &pin_b, &space);
        assert!(
            matches!(told.take_calls()[..], [Call::Load(CpuId(1), Loaded { keep: false, .. })]),
            "it catches up"
        );
        change(b, &space, 0x6000, 1);
        assert_eq!(told.take_calls().len(), 2);
        assert_eq!(m.tlb().counts().upgraded, 0);
        let _ = host;
    });
}

#[test]
fn a_request_that_a_larger_flush_has_overtaken_is_skipped() {
    // CPU 1 is asked twice while its thread is busy: its answer to the first brings it past the
    // second.
    machine!(3, TlbConfig::new(3), |host, m, slots, told| {
        let space = m.tlb().new_space();
        let (tlb, ready) = (m.tlb(), std::sync::Barrier::new(3));
        drop(slots);
        std::thread::scope(|scope| {
            for cpu in [0, 2] {
                let (host, m, space, ready) = (&host, &m, &space, &ready);
                scope.spawn(move || {
                    let slot = host.slot(cpu).unwrap();
                    run_in(tlb, &slot.pin(), space);
                    ready.wait();
                    change(m.on(&slot.pin()).unwrap(), space, 0x4000 + cpu as u64 * PAGE, 1);
                    ready.wait();
                    tlb.deactivate(&slot.pin(), space).unwrap();
                });
            }
            let slot = host.slot(1).unwrap();
            run_in(tlb, &slot.pin(), &space);
            ready.wait();
            // Both have raised the generation before this CPU answers either.
            while space.generation() != Generation(2) {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            while !told.calls().iter().any(forgets_on(1)) {
                tlb.serve(&slot.pin());
            }
            // The others may be waiting for the second answer still.
            let until = std::time::Instant::now() + std::time::Duration::from_millis(20);
            while std::time::Instant::now() < until {
                tlb.serve(&slot.pin());
            }
            ready.wait();
        });
        assert!(tlb.counts().skipped > 0);
        let calls = told.take_calls();
        let on_1: Vec<_> = calls.iter().filter(|call| forgets_on(1)(call)).map(Call::scope).collect();
        assert_eq!(on_1, [Some(Scope::Full)], "one flush for both");
    });
}

#[test]
fn a_lazy_cpu_goes_to_another_root_when_tables_are_freed() {
    machine!(2, TlbConfig::new(2), |host, m, slots, told| {
        let (pin_a, pin_b) = (slots[0].pin(), slots[1].pin());
        let (a, b) = (m.on(&pin_a).unwrap(), m.on(&pin_b).unwrap());
        let mut space = Space::<X86_64>::new(a).unwrap();
        space.edit(a).unwrap().mmap(pages(0x40_0000, 4), RW, 0).unwrap();
        space.fault(a, va(0x40_0000), Access::Write).unwrap();
        space.activate(a).unwrap();
        space.activate(b).unwrap();
        space.rest(b).unwrap();
        told.take_calls();
        space.edit(a).unwrap().munmap(pages(0x40_0000, 4)).unwrap();
        assert!(told.take_calls().iter().any(leaves(1)));
        // It is in no mask any more: the next flush leaves it alone, and coming back it loads the
        // root.
        space.edit(a).unwrap().mmap(pages(0x40_0000, 4), RW, 0).unwrap();
        space.fault(a, va(0x40_0000), Access::Write).unwrap();
        space.edit(a).unwrap().munmap(pages(0x40_0000, 4)).unwrap();
        assert!(!told.take_calls().iter().any(disturbs_1));
        space.activate(b).unwrap();
        assert!(matches!(told.take_calls()[..], [Call::Load(CpuId(1), _)]));
        space.end(a).unwrap();
        m.drain(&slots);
        host.audit().unwrap();
    });
}

#[test]
fn a_space_keeps_its_number_until_another_takes_it() {
    for asids in [1u16, 2, 6, 40] {
        machine!(1, TlbConfig { asids, ..TlbConfig::new(1) }, |host, m, slots, told| {
            let pin = slots[0].pin();
            let on = m.on(&pin).unwrap();
            let spaces: Vec<SpaceTlb> = (0..asids).map(|_| m.tlb().new_space()).collect();
            for space in &spaces {
                run_in(m.tlb(), &pin, space);
                m.tlb().deactivate(&pin, space).unwrap();
            }
            let first = told.take_calls();
            let numbers: std::collections::BTreeSet<u16> = first
                .iter()
                .filter_map(|t| match t {
                    Call::Load(_, root) => {
                        assert!(!root.keep, "a number that is new to a space keeps nothing");
                        Some(root.asid)
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(numbers, (1..=asids).collect(), "consecutive spaces use all numbers");
            // All of them come back to their old translations; but for the one that was changed
            // meanwhile.
            run_in(m.tlb(), &pin, &spaces[0]);
            assert!(matches!(told.take_calls()[..], [Call::Load(_, root)] if root.keep), "{asids}");
            change(on, &spaces[0], 0x4000, 1);
            m.tlb().deactivate(&pin, &spaces[0]).unwrap();
            run_in(m.tlb(), &pin, &spaces[0]);
            assert!(
                matches!(told.take_calls().last(), Some(Call::Load(_, root)) if root.keep),
                "it took part"
            );
            m.tlb().deactivate(&pin, &spaces[0]).unwrap();
            change(on, &spaces[0], 0x4000, 1);
            told.take_calls();
            run_in(m.tlb(), &pin, &spaces[0]);
            assert!(matches!(told.take_calls()[..], [Call::Load(_, root)] if !root.keep), "it missed one");
            m.tlb().deactivate(&pin, &spaces[0]).unwrap();
            // More spaces than numbers: a displaced space keeps no translation.
            let others: Vec<SpaceTlb> = (0..320).map(|_| m.tlb().new_space()).collect();
            for space in &others {
                run_in(m.tlb(), &pin, space);
                m.tlb().deactivate(&pin, space).unwrap();
            }
            told.take_calls();
            for space in &spaces {
                run_in(m.tlb(), &pin, space);
                m.tlb().deactivate(&pin, space).unwrap();
            }
            assert!(!told.take_calls().iter().any(|t| matches!(t, Call::Load(_, root) if root.keep)));
            let _ = host;
        });
    }
}

#[test]
fn before_generations_wrap_every_cpu_has_given_the_space_up() {
    // CPU 1 knows the space under a number, in a generation; a whole round later the same
    // generation must not look like the one it knows.
    machine!(2, TlbConfig { asids: 4, ..TlbConfig::new(2) }, |host, m, slots, told| {
        let (pin_a, pin_b) = (slots[0].pin(), slots[1].pin());
        let a = m.on(&pin_a).unwrap();
        let quarter = 1usize << (usize::BITS - 2);
        for start in [0, quarter, 2 * quarter, 3 * quarter] {
            let space = m.tlb().new_space_at(Generation(start.wrapping_sub(3)));
            run_in(m.tlb(), &pin_a, &space);
            run_in(m.tlb(), &pin_b, &space);
            m.tlb().deactivate(&pin_b, &space).unwrap();
            change(a, &space, 0x4000, 1);
            change(a, &space, 0x4000, 1);
            told.take_calls();
            change(a, &space, 0x4000, 1);
            assert_eq!(flushes(&told), [(0, Scope::Full)], "the whole space, at {start:#x}");
            run_in(m.tlb(), &pin_b, &space);
            let last = told.take_calls().pop();
            assert!(matches!(last, Some(Call::Load(_, root)) if !root.keep), "nothing is kept");
            // And on the other side order still holds.
            change(a, &space, 0x5000, 1);
            let page = changed_page(0x5000);
            assert_eq!(flushes(&told), [(1, page), (0, page)]);
            m.tlb().deactivate(&pin_a, &space).unwrap();
            m.tlb().deactivate(&pin_b, &space).unwrap();
        }
        let _ = host;
    });
}

#[test]
fn chains_are_parked_until_lazy_cpus_let_go_or_too_many_wait() {
    machine!(3, TlbConfig { park: 20, ..TlbConfig::new(3) }, |host, m, slots, told| {
        let (pin_a, pin_b, pin_c) = (slots[0].pin(), slots[1].pin(), slots[2].pin());
        let (a, b, c) = (m.on(&pin_a).unwrap(), m.on(&pin_b).unwrap(), m.on(&pin_c).unwrap());
        let mut space = Space::<X86_64>::new(a).unwrap();
        let other = Space::<X86_64>::new(a).unwrap();
        space.activate(a).unwrap();
        let fill = |space: &mut Space<X86_64>, n: u64| {
            space.edit(a).unwrap().mmap(pages(0x40_0000, n), RW, 0).unwrap();
            for i in 0..n {
                space.fault(a, va(0x40_0000 + i * PAGE), Access::Write).unwrap();
            }
        };
        space.activate(b).unwrap();
        space.rest(b).unwrap();
        fill(&mut space, 4);
        told.take_calls();
        let live = m.policy().counts_live();
        space.edit(a).unwrap().munmap(pages(0x40_0000, 4)).unwrap();
        assert!(!told.take_calls().iter().any(disturbs_1));
        assert_eq!(m.parking().parked(&pin_a), 7, "three tables and four pages wait");
        assert_eq!(m.policy().counts_live(), live, "the policy has none of them");
        // The lazy CPU goes on to something else, by itself.
        other.activate(b).unwrap();
        a.collect();
        assert_eq!(m.parking().parked(&pin_a), 0);
        assert_eq!(m.policy().counts_live(), live - 3);
        other.deactivate(b).unwrap();
        // Coming back to the space itself is letting go, too: its old translations are flushed.
        space.activate(b).unwrap();
        space.rest(b).unwrap();
        fill(&mut space, 4);
        space.edit(a).unwrap().munmap(pages(0x40_0000, 4)).unwrap();
        assert_eq!(m.parking().parked(&pin_a), 7);
        told.take_calls();
        space.activate(b).unwrap();
        assert!(matches!(told.take_calls()[..], [Call::Load(CpuId(1), _)]));
        a.collect();
        assert_eq!(m.parking().parked(&pin_a), 0);
        // More than 20 frames: the excess is flushed by force.
        space.activate(c).unwrap();
        space.rest(b).unwrap();
        space.rest(c).unwrap();
        let forced = m.tlb().counts().forced;
        for _ in 0..2 {
            fill(&mut space, 4);
            space.edit(a).unwrap().munmap(pages(0x40_0000, 4)).unwrap();
        }
        assert_eq!((m.parking().parked(&pin_a), m.tlb().counts().forced), (14, forced));
        told.take_calls();
        fill(&mut space, 6);
        space.edit(a).unwrap().munmap(pages(0x40_0000, 6)).unwrap();
        assert_eq!(m.tlb().counts().forced, forced + 1);
        let moved = told.take_calls();
        assert!([1, 2].into_iter().all(|cpu| moved.iter().any(leaves(cpu))), "{moved:?}");
        assert_eq!(m.parking().parked(&pin_a), 0, "which the chains before it were waiting for, too");
        // A space that ends leaves its top behind for a lazy CPU.
        space.activate(b).unwrap();
        space.rest(b).unwrap();
        let roots = m.policy().counts_live();
        space.end(a).unwrap();
        assert_eq!(m.parking().parked(&pin_a), 1, "the root");
        assert_eq!(m.policy().counts_live(), roots);
        assert_eq!(a.unpark(), 1);
        assert_eq!(m.policy().counts_live(), roots - 1);
        other.end(a).unwrap();
        m.drain(&slots);
        host.audit().unwrap();
    });
}

trait Live {
    fn counts_live(&self) -> usize;
}

impl<P: ptarmigan::quicklist::Policy> Live for P {
    fn counts_live(&self) -> usize {
        self.counts().live()
    }
}

/// The faults of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    /// An interrupt is answered without an invalidation.
    Dropped,
    /// The answer is given first, the invalidation comes after a while.
    Late,
    /// Paging-structure caches are not dropped for lazy CPUs: the root stays.
    NotMoved,
    /// A number is said to be up to date when it is not.
    Kept,
}

/// The software MMUs of the sanitizer, on CPU 1 of a machine that lies.
struct Lying<'w, 'h> {
    truthful: common::WatchedTlb<'w, 'h, X86_64>,
    lie: Lie,
    late: Mutex<Vec<Invalidation>>,
}

// SAFETY: it breaks the promises on purpose; only the sanitizer walks these tables, and it survives
// that.
unsafe impl Mmu for Lying<'_, '_> {
    const FORMATS: Formats = Formats::ANY;
    const STRUCTURES: Structures = Structures::AnyInvalidation;
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, request: &Invalidation) {
        match self.lie {
            Lie::Dropped if pin.cpu() == CpuId(1) => {}
            Lie::Late if pin.cpu() == CpuId(1) => self.late.lock().unwrap().push(*request),
            _ => self.truthful.invalidate(pin, request),
        }
    }
    fn invalidate_kernel(&self, pin: &Pinned<'_>, scope: &Scope) {
        self.truthful.invalidate_kernel(pin, scope);
    }
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        let keep = root.keep || self.lie == Lie::Kept;
        let mut root = *root;
        root.keep = keep;
        self.truthful.load(pin, &root);
    }
    fn lazy(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.truthful.lazy(pin, space);
    }
    fn resume(&self, pin: &Pinned<'_>, space: SpaceId) {
        self.truthful.resume(pin, space);
    }
    fn unload(&self, pin: &Pinned<'_>, space: SpaceId) {
        if self.lie != Lie::NotMoved || pin.cpu() != CpuId(1) {
            self.truthful.unload(pin, space);
        }
    }
}

/// Plays a shootdown of freed tables with a CPU that runs in the space, one that is lazy, and a
/// switch between spaces with numbers; returns the number of findings.
fn play(lie: Lie) -> u64 {
    let host = Host::<X86_64>::new(small(2, 1, 16)).unwrap();
    let watch = Watch::with_asids(&host, true);
    let lying = Lying { truthful: watch.tlb(), lie, late: Mutex::default() };
    let policy = Layered::new(common::WatchPages(&watch), host.quicklists().unwrap()).unwrap();
    let config = TlbConfig { asids: 4, ..TlbConfig::new(2) };
    let m = HostMachine::with_tlb(&host, policy, lying, config, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let (pin_a, pin_b) = (slots[0].pin(), slots[1].pin());
    let (a, b) = (m.on(&pin_a).unwrap(), m.on(&pin_b).unwrap());
    let mut space = Space::<X86_64>::new(a).unwrap();
    let other = Space::<X86_64>::new(a).unwrap();
    let area = pages(0x40_0000, 4);
    for round in 0..3 {
        space.activate(a).unwrap();
        space.activate(b).unwrap();
        space.edit(a).unwrap().mmap(area, RW, 0).unwrap();
        space.fault(a, va(0x40_0000), Access::Write).unwrap();
        for cpu in 0..2 {
            watch.translate(cpu, 0x40_0000, ptsan::Access::WRITE).unwrap();
        }
        match round {
            // CPU 1 runs in the space.
            0 => space.edit(a).unwrap().munmap(area).unwrap(),
            // It is lazy.
            1 => {
                space.rest(b).unwrap();
                space.edit(a).unwrap().munmap(area).unwrap();
            }
            // It is elsewhere, and comes back.
            _ => {
                space.deactivate(b).unwrap();
                other.activate(b).unwrap();
                space.edit(a).unwrap().munmap(area).unwrap();
                other.deactivate(b).unwrap();
                space.activate(b).unwrap();
            }
        }
        if round != 1 {
            // The program on CPU 1 touches the page again.
            _ = watch.translate(1, 0x40_0000, ptsan::Access::READ);
        }
        for late in m.tlb().hardware().mmu().late.lock().unwrap().drain(..) {
            m.tlb().hardware().mmu().truthful.invalidate(&pin_b, &late);
        }
        space.deactivate(b).unwrap();
    }
    space.end(a).unwrap();
    other.end(a).unwrap();
    m.drain(&slots);
    if lie == Lie::None {
        watch.assert_clean();
    }
    watch.total()
}

#[test]
fn the_sanitizer_finds_every_machine_that_lies() {
    assert_eq!(play(Lie::None), 0);
    for lie in [Lie::Dropped, Lie::Late, Lie::NotMoved, Lie::Kept] {
        assert!(play(lie) > 0, "{lie:?} was not found");
    }
}

#[test]
fn spaces_that_come_and_go_under_few_asids_leave_nothing_stale() {
    for (asids, park) in [(1, 0), (3, 0), (2, 64)] {
        let cpus = 2;
        let host = Host::<X86_64>::new(small(cpus, 1, 32)).unwrap();
        let watch = Watch::with_asids(&host, true);
        let config = TlbConfig { asids, park, ..TlbConfig::new(cpus) };
        let m = watched_with(&watch, host.quicklists().unwrap(), config, Delivery::Adverse(9));
        let slots = host.slots();
        let mut rng = fastrand::Rng::with_seed(u64::from(asids) * 7 + u64::from(park));
        let mut spaces: Vec<Space<X86_64>> = Vec::new();
        let mut runs: Vec<Option<SpaceId>> = vec![None; cpus];
        for _ in 0..4000 {
            let cpu = rng.usize(..cpus);
            let pin = slots[cpu].pin();
            let on = m.on(&pin).unwrap();
            if spaces.len() < 5 {
                spaces.push(Space::new(on).unwrap());
            }
            let at = rng.usize(..spaces.len());
            let id = spaces[at].tlb().id();
            let area = pages(0x40_0000 + rng.u64(..3) * (2 << 20), 1 + rng.u64(..4));
            match rng.u64(..12) {
                0 => {
                    spaces.swap_remove(at).end(on).unwrap();
                    for place in runs.iter_mut().filter(|p| **p == Some(id)) {
                        *place = None;
                    }
                }
                1 => spaces[at].edit(on).unwrap().munmap(area).unwrap(),
                2 => spaces[at].edit(on).unwrap().mmap(area, RW, 0).unwrap(),
                3 => {
                    if let Some(space) = runs[cpu].and_then(|id| spaces.iter().find(|s| s.tlb().id() == id)) {
                        space.rest(on).unwrap();
                    }
                }
                4 => _ = on.collect(),
                _ => {
                    if runs[cpu] != Some(id)
                        && let Some(old) = runs[cpu].and_then(|id| spaces.iter().find(|s| s.tlb().id() == id))
                    {
                        old.deactivate(on).unwrap();
                    }
                    spaces[at].activate(on).unwrap();
                    runs[cpu] = Some(id);
                    if spaces[at].fault(on, va(area.start), Access::Write).is_ok() {
                        watch.translate(cpu, area.start, ptsan::Access::WRITE).unwrap();
                    }
                }
            }
        }
        for space in spaces {
            space.end(m.on(&slots[0].pin()).unwrap()).unwrap();
        }
        m.drain(&slots);
        assert_eq!(watch.count(Kind::StaleUse), 0);
        assert_eq!(watch.finish(), Default::default(), "{asids} numbers, {park} parked: {}", watch.report());
        host.audit().unwrap();
    }
}

/// Plays two spaces on a CPU whose MMU keeps their translations under number 0; returns the
/// findings about stale pages, and all others.
fn play_without_numbers(load_fence: bool, unload_fence: bool) -> [u64; 2] {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let watch = Watch::with_asids(&host, true);
    let mmu = Unnumbered { watch: &watch, load_fence, unload_fence };
    let policy = Layered::new(common::WatchPages(&watch), host.quicklists().unwrap()).unwrap();
    let config = TlbConfig { asids: 0, ..TlbConfig::new(1) };
    let m = HostMachine::with_tlb(&host, policy, mmu, config, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = m.on(&pin).unwrap();
    let spaces = [(); 2].map(|()| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.edit(on).unwrap().mmap(pages(0x40_0000, 1), RW, 0).unwrap();
        space.fault(on, va(0x40_0000), Access::Write).unwrap();
        space
    });
    // From one to the other, without the kernel's root in between.
    for space in &spaces {
        space.activate(on).unwrap();
        _ = watch.translate(0, 0x40_0000, ptsan::Access::WRITE);
    }
    let stale = watch.count(Kind::StaleUse) + watch.count(Kind::FlushMissing);
    // To the kernel's root; then the tables go.
    for space in spaces {
        space.deactivate(on).unwrap();
        space.end(on).unwrap();
    }
    m.drain(&slots);
    if load_fence && unload_fence {
        watch.assert_clean();
    }
    [stale, watch.total() - stale]
}

#[test]
fn without_numbers_each_change_of_the_root_needs_its_fence() {
    assert_eq!(play_without_numbers(true, true), [0, 0]);
    let [stale, _] = play_without_numbers(false, true);
    assert!(stale > 0, "the other space's page is not seen");
    let [stale, held] = play_without_numbers(true, false);
    assert!(stale == 0 && held > 0, "the kernel's root does not hold tables that have gone");
}
