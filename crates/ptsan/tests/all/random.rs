//! Random histories: correct ones give no finding, and a missing flush that matters gives one.
use crate::common;

use common::{Machine, PAGE, RO, RW};
use proptest::prelude::*;
use ptsan::{Access, Adversary, Arch, Config, Flush, Kind, StructureScope};
use std::collections::BTreeMap;

const CPUS: usize = 3;
const SPACES: u64 = 2;
const DATA: u64 = 0x80_0000;

/// Pages that share tables at every level, and pages that share no table.
const PAGES: [u64; 8] = [0x1000, 0x2000, 0x5000, 0x20_0000, 0x21_f000, 0x4000_0000, 0x4020_0000, 0xc000_0000];

#[derive(Clone, Debug)]
enum Op {
    Map { space: u64, page: usize, frame: u64, write: bool },
    Unmap { space: u64, page: usize },
    Switch { cpu: usize, space: u64 },
    Lazy { cpu: usize },
    Resume { cpu: usize },
    Leave { cpu: usize },
    Access { cpu: usize, page: usize, write: bool },
    Probe { cpu: usize, page: usize },
    Rebuild { space: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let (cpu, space, page) = (0..CPUS, 1..=SPACES, 0..PAGES.len());
    prop_oneof![
        6 => (space.clone(), page.clone(), 0..4u64, any::<bool>())
            .prop_map(|(space, page, frame, write)| Op::Map { space, page, frame, write }),
        4 => (space.clone(), page.clone()).prop_map(|(space, page)| Op::Unmap { space, page }),
        3 => (cpu.clone(), space.clone()).prop_map(|(cpu, space)| Op::Switch { cpu, space }),
        1 => cpu.clone().prop_map(|cpu| Op::Lazy { cpu }),
        1 => cpu.clone().prop_map(|cpu| Op::Resume { cpu }),
        1 => cpu.clone().prop_map(|cpu| Op::Leave { cpu }),
        8 => (cpu.clone(), page.clone(), any::<bool>())
            .prop_map(|(cpu, page, write)| Op::Access { cpu, page, write }),
        4 => (cpu, page).prop_map(|(cpu, page)| Op::Probe { cpu, page }),
        1 => space.prop_map(|space| Op::Rebuild { space }),
    ]
}

fn arch() -> impl Strategy<Value = Arch> {
    (any::<bool>(), 0..3u8, any::<bool>()).prop_map(|(pae, scope, break_before_make)| Arch {
        break_before_make,
        structures: match scope {
            0 => StructureScope::AnyInvalidation,
            1 => StructureScope::Tagged,
            _ => StructureScope::None,
        },
        ..if pae { Arch::x86_pae() } else { Arch::x86_64() }
    })
}

/// The mapped pages, as the simplest possible model.
type Model = BTreeMap<(u64, usize), (u64, bool)>;

fn start(arch: Arch, asids: bool, adversary: Option<(u64, u16)>) -> Machine {
    // PAE has no ASIDs.
    let asids = asids && !arch.top_registers;
    let adversary = adversary.map(|(seed, rate)| Adversary { seed, rate });
    let config = Config { cpus: CPUS, asids, eager_walkers: true, adversary, ..Config::new(arch) };
    let mut m = Machine::with(config);
    for space in 1..=SPACES {
        m.space(space);
    }
    m
}

fn run(m: &mut Machine, model: &mut Model, op: Op) {
    match op {
        Op::Map { space, page, frame, write } => {
            m.map(space, PAGES[page], (DATA + frame * PAGE) | if write { RW } else { RO });
            model.insert((space, page), (frame, write));
        }
        Op::Unmap { space, page } => {
            if model.remove(&(space, page)).is_some() {
                m.unmap(space, PAGES[page]);
            }
        }
        Op::Switch { cpu, space } => m.switch(cpu, space),
        Op::Lazy { cpu } if m.loaded(cpu).is_some() => m.san.lazy(cpu),
        Op::Resume { cpu } if m.loaded(cpu).is_some() => m.san.resume(cpu),
        Op::Leave { cpu } => m.leave(cpu),
        Op::Access { cpu, page, write } => {
            let Some(space) = m.loaded(cpu) else { return };
            let access = if write { Access::WRITE } else { Access::READ };
            let want = model.get(&(space, page)).filter(|e| e.1 || !write).map(|e| DATA + e.0 * PAGE + 5);
            assert_eq!(m.access(cpu, PAGES[page] + 5, access).ok().map(|t| t.phys), want);
        }
        Op::Probe { cpu, page } if m.loaded(cpu).is_some() => m.probe(cpu, PAGES[page]),
        Op::Rebuild { space } => {
            m.destroy(space);
            m.space(space);
            model.retain(|k, _| k.0 != space);
        }
        Op::Lazy { .. } | Op::Resume { .. } | Op::Probe { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn correct_code_gives_no_findings(
        arch in arch(), asids: bool, tells: bool, adversary: Option<(u64, u16)>,
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut m = start(arch, asids, adversary.map(|(seed, rate)| (seed, rate % 8000)));
        m.tells = tells;
        let mut model = Model::new();
        for op in ops {
            run(&mut m, &mut model, op);
            m.san.flushes_done(&m.ram);
            prop_assert_eq!(m.san.total(), 0, "{}", m.san);
        }
        for space in 1..=SPACES {
            m.destroy(space);
        }
        m.san.finish();
        m.san.assert_clean();
    }

    #[test]
    fn a_range_flush_drops_exactly_the_pages_of_its_addresses(
        pages in prop::collection::btree_set(0..600u64, 1..60), large: bool,
        start in 0..600u64, length in 0..700u64, shift in 9..22u32,
    ) {
        let mut m = common::ready(Arch::x86_64(), 1);
        for page in &pages {
            m.map(1, page * PAGE, DATA | RO);
        }
        let high = 0x40_0000;
        if large {
            m.map_at(1, 1, high, 0x20_0000 | RO | common::LARGE);
        }
        let blocks = pages.iter().map(|p| (p * PAGE, PAGE)).chain(large.then_some((high, 0x20_0000)));
        let blocks: Vec<_> = blocks.collect();
        for &(va, _) in &blocks {
            m.read(0, va);
        }
        let (start, stride) = (start * PAGE, 1u64 << shift);
        let end = start + length * PAGE;
        m.flush(0, Flush::range(1, start, end, stride));
        for (va, size) in blocks {
            let hit = (start..end).step_by(1 << shift).any(|a| a >= va && a < va + size);
            prop_assert_eq!(m.access(0, va, Access::READ).unwrap().from_tlb, !hit);
        }
    }

    #[test]
    fn a_dropped_flush_is_found_at_the_next_use_or_free(
        arch in arch(), asids: bool, ops in prop::collection::vec(op(), 0..60),
        cpu in 0..CPUS, page in 0..PAGES.len(), change in 0..3u8, lazy: bool,
    ) {
        let caches = arch.structures;
        let mut m = start(arch, asids, None);
        let mut model = Model::new();
        for op in ops {
            run(&mut m, &mut model, op);
        }
        // The CPU has written to the page, so that it holds a translation and the tables on the
        // way.
        let va = PAGES[page];
        run(&mut m, &mut model, Op::Switch { cpu, space: 1 });
        run(&mut m, &mut model, Op::Map { space: 1, page, frame: 0, write: true });
        run(&mut m, &mut model, Op::Access { cpu, page, write: true });
        m.san.assert_clean();
        if lazy {
            m.san.lazy(cpu);
        }
        m.deaf = Some(cpu);
        let tables = m.san.live_tables();
        match change {
            0 => m.unmap(1, va),
            1 => m.map(1, va, (DATA + PAGE) | RW),
            _ => m.map(1, va, DATA | RO),
        }
        let freed = tables.saturating_sub(m.san.live_tables());
        // Without a cache of links, a lazy CPU holds no table, and flushes before it uses pages.
        let held = freed > 0 && !(lazy && caches == StructureScope::None);
        if held {
            prop_assert!(m.count(Kind::FreeBeforeFlush) > 0, "{}", m.san);
        }
        m.san.resume(cpu);
        let _ = m.access(cpu, va, Access::WRITE);
        prop_assert_eq!(m.count(Kind::StaleUse), 1, "{}", m.san);
        // The free list is last in, first out: the next tables are those that were freed.
        for _ in 0..freed {
            m.table(0);
        }
        if held || freed == 0 {
            prop_assert_eq!(m.count(Kind::ReuseBeforeFlush) > 0, held, "{}", m.san);
        }
    }
}
