//! Nonsense in, reports out: random hooks with random arguments over random memory never panic and
//! always end.
use proptest::prelude::*;
use ptsan::{
    Access, Adversary, Arch, Barrier, Config, Content, DeviceEntry, Errata, Expected, Flush, Granule, Guard,
    GuestPage, Hold, Kind, Operation, Reader, Sanitizer, Target, Tree,
};

const PAGE: u64 = 4096;
const MEMORY: u64 = 32 * PAGE;

#[derive(Clone, Debug)]
enum Op {
    Alloc { phys: u64, size: u64, level: Option<u8>, content: u8 },
    Free { phys: u64, size: u64 },
    Link { parent: u64, index: u64, table: u64 },
    Store { at: u64, entry: u64, tell: u8 },
    Switch { cpu: usize, root: u64, space: u64 },
    State { cpu: usize, to: u8 },
    Flush { cpu: Option<usize>, flush: Flush },
    Access { cpu: usize, va: u64, kind: u8 },
    Expect { tree: Tree, va: u64, phys: Option<u64>, size: u64 },
    Space { space: u64, gone: bool },
    Data { phys: u64, size: u64, what: u8 },
    Mapped { space: u64, va: u64 },
    Cpu { cpu: usize, what: u8 },
    Done { what: u8 },
    Guest { cpu: usize, va: u64, gpa: u64, what: u8 },
    Number { root: u64, space: u64 },
    Device { device: usize, flush: Flush, what: u8 },
    Entry { device: usize, phys: u64, bytes: u8, what: u8 },
    Reader { table: u64, what: u8 },
    Lock { cpu: usize, lock: u64, table: u64, what: u8 },
    Adversary,
    Finish,
}

/// Draws an address: mostly page-aligned and inside memory, at times anything.
fn phys() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        12 => (0..MEMORY / PAGE).prop_map(|n| n * PAGE),
        2 => 0..MEMORY,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn va() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        8 => (0..64u64).prop_map(|n| n * PAGE),
        4 => (0..8u64, 12..57u32).prop_map(|(n, shift)| n << shift),
        2 => (1..64u64).prop_map(|n| (n * PAGE).wrapping_neg()),
        1 => any::<u64>(),
    ]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => Just(PAGE),
        2 => prop::sample::select(vec![0, 1, 7, 32, 1024, 8192, 16384, 65536, 1 << 32, u64::MAX]),
    ]
}

/// Draws an entry that some format takes for a table or a page, or anything.
fn entry() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        6 => (phys(), prop::sample::select(vec![1, 3, 7, 0x83, 0x443, 0xc43, 0xf1, 1 << 52 | 0xc43, 1 << 51 | 0xcc3])).prop_map(|(p, f)| p & !0xfff | f),
        3 => phys().prop_map(|p| p >> 2 | 1),
        1 => phys().prop_map(|p| 1 << 63 | (p >> 12 | 8) << 10 | 0xd7),
        2 => Just(0),
        1 => any::<u64>(),
    ]
}

fn flush() -> impl Strategy<Value = Flush> {
    let space = 0..4u64;
    let target = prop_oneof![
        4 => (space.clone(), va()).prop_map(|(space, va)| Target::Page { space, va }),
        3 => (space.clone(), va(), va(), any::<u64>(), 0..40u32).prop_map(|(space, start, end, stride, shift)| {
            Target::Range { space, start, end, stride: stride >> (shift + 20) }
        }),
        1 => (va(), va(), 0..1u64 << 40).prop_map(|(start, end, stride)| Target::EverySpace { start, end, stride }),
        2 => space.prop_map(Target::Space),
        1 => Just(Target::All),
    ];
    let level = prop::option::weighted(0.2, 0..6u8);
    (target, any::<bool>(), level).prop_map(|(target, leaf_only, level)| Flush {
        target,
        leaf_only,
        level,
        ..Flush::all()
    })
}

fn op() -> impl Strategy<Value = Op> {
    let cpu = prop_oneof![12 => 0..3usize, 1 => any::<usize>()];
    let cpus = cpu.clone();
    let level = prop_oneof![4 => Just(None), 4 => (0..5u8).prop_map(Some), 1 => any::<u8>().prop_map(Some)];
    let tree = prop_oneof![phys().prop_map(Tree::Root), cpu.clone().prop_map(Tree::Cpu)];
    prop_oneof![
        6 => (phys(), size(), level, 0..3u8)
            .prop_map(|(phys, size, level, content)| Op::Alloc { phys, size, level, content }),
        3 => (phys(), size()).prop_map(|(phys, size)| Op::Free { phys, size }),
        2 => (phys(), prop_oneof![0..512u64, any::<u64>()], phys())
            .prop_map(|(parent, index, table)| Op::Link { parent, index, table }),
        8 => (phys(), 0..8u64, entry(), 0..4u8)
            .prop_map(|(at, slot, entry, tell)| Op::Store { at: at.wrapping_add(slot * 8), entry, tell }),
        4 => (cpu.clone(), phys(), 0..4u64).prop_map(|(cpu, root, space)| Op::Switch { cpu, root, space }),
        2 => (cpu.clone(), 0..3u8).prop_map(|(cpu, to)| Op::State { cpu, to }),
        4 => (prop::option::of(cpu.clone()), flush()).prop_map(|(cpu, flush)| Op::Flush { cpu, flush }),
        8 => (cpu, va(), 0..4u8).prop_map(|(cpu, va, kind)| Op::Access { cpu, va, kind }),
        2 => (tree, va(), prop::option::of(phys()), any::<u64>())
            .prop_map(|(tree, va, phys, size)| Op::Expect { tree, va, phys, size }),
        1 => (0..4u64, any::<bool>()).prop_map(|(space, gone)| Op::Space { space, gone }),
        3 => (phys(), size(), 0..2u8).prop_map(|(phys, size, what)| Op::Data { phys, size, what }),
        1 => (0..4u64, va()).prop_map(|(space, va)| Op::Mapped { space, va }),
        2 => (cpus, 0..5u8).prop_map(|(cpu, what)| Op::Cpu { cpu, what }),
        3 => (0..4u8).prop_map(|what| Op::Done { what }),
        2 => (0..3usize, va(), va(), 0..3u8).prop_map(|(cpu, va, gpa, what)| Op::Guest { cpu, va, gpa, what }),
        1 => (phys(), 0..5u64).prop_map(|(root, space)| Op::Number { root, space }),
        2 => (0..6usize, flush(), 0..2u8).prop_map(|(device, flush, what)| Op::Device { device, flush, what }),
        2 => (0..6usize, phys(), any::<u8>(), 0..6u8)
            .prop_map(|(device, phys, bytes, what)| Op::Entry { device, phys, bytes, what }),
        2 => (phys(), 0..4u8).prop_map(|(table, what)| Op::Reader { table, what }),
        2 => (0..3usize, 0..3u64, phys(), 0..5u8)
            .prop_map(|(cpu, lock, table, what)| Op::Lock { cpu, lock, table, what }),
        2 => Just(Op::Adversary),
        1 => Just(Op::Finish),
    ]
}

fn arch() -> impl Strategy<Value = Arch> {
    (0..25u8, any::<u8>(), any::<u8>()).prop_map(|(which, bits, start)| match which {
        0 => Arch::x86_2level(),
        1 => Arch::x86_pae(),
        2 => Arch::x86_64(),
        3 => Arch::x86_64_la57(),
        4 => Arch::riscv_sv32(),
        5 => Arch::riscv_sv39(),
        6 => Arch::riscv_sv48(),
        7 => Arch::riscv_sv57(),
        8 => Arch::aarch64_4k(48),
        9 => Arch::aarch64_16k(47),
        10 => Arch::aarch64_64k(52),
        11 => Arch::aarch64_4k(bits).upper(),
        12 => Arch::aarch64_16k(bits),
        13 => Arch::aarch64_64k(bits % 64),
        14 => Arch::aarch64_stage2(Granule::K4, bits % 64, start % 8),
        15 => Arch::aarch64_stage2(Granule::K16, bits % 64, start % 8),
        16 => Arch::aarch64_stage2(Granule::K64, bits % 64, start % 8),
        17 => Arch::loongarch64(),
        18 => Arch::sparc64(),
        19 => Arch::ia64(),
        20 => Arch::ept(),
        21 => Arch::npt(),
        22 => Arch::riscv_sv39x4(),
        23 => Arch::riscv_sv48x4(),
        // Impossible shapes must be refused.
        _ => {
            let mut arch = Arch { va_bits: bits, ..Arch::x86_64() };
            let level = &mut arch.levels[usize::from(start % 4)];
            match start % 5 {
                0 => level.shift = bits,
                1 => level.index_bits = bits,
                2 => level.entry_bytes = bits,
                3 => level.table_bytes = u32::from(bits) << 24,
                _ => arch.levels.truncate(1),
            }
            arch
        }
    })
}

fn run(
    san: &mut Sanitizer,
    ram: &mut Vec<u8>,
    (open, readers): (&mut Vec<Operation>, &mut Vec<Reader>),
    op: &Op,
) {
    match *op {
        Op::Alloc { phys, size, level, content } => {
            let content = [Content::Zero, Content::Unknown, Content::Unchecked][usize::from(content)];
            san.table_allocated(&*ram, phys, size, level, content);
        }
        Op::Free { phys, size } => san.table_freed(&*ram, phys, size),
        Op::Link { parent, index, table } => san.table_linked(&*ram, parent, index, table),
        Op::Store { at, entry, tell } => {
            if let Some(bytes) = usize::try_from(at).ok().and_then(|at| ram.get_mut(at..at.checked_add(8)?)) {
                bytes.copy_from_slice(&entry.to_le_bytes());
            }
            match tell {
                0 => {}
                1 => san.entry_exchanged(&*ram, at),
                _ => san.entry_written(&*ram, at),
            }
        }
        Op::Switch { cpu, root, space } => san.switch(&*ram, cpu, root, space),
        Op::State { cpu, to } => match to {
            0 => san.lazy(cpu),
            1 => san.resume(cpu),
            _ => san.leave(cpu),
        },
        Op::Flush { cpu: Some(cpu), flush } => san.flush(&*ram, cpu, flush),
        Op::Flush { cpu: None, flush } => san.flush_everywhere(&*ram, flush),
        Op::Access { cpu, va, kind } => {
            let accesses = [Access::READ, Access::WRITE, Access::EXEC.kernel()];
            match accesses.get(usize::from(kind)) {
                Some(&access) => drop(san.translate(&*ram, cpu, va, access)),
                None => san.probe_walk(&*ram, cpu, va),
            }
        }
        Op::Expect { tree, va, phys, size } => {
            let _ = san.expect(&*ram, tree, va, phys.map(|phys| Expected::at(phys).in_page_of(size)));
        }
        Op::Space { space, gone: false } => san.space_created(space),
        Op::Space { space, gone: true } => san.space_destroyed(space),
        Op::Data { phys, size, what: 0 } => san.frame_freed(&*ram, phys, size),
        Op::Data { phys, size, .. } => san.frame_reused(&*ram, phys, size),
        Op::Mapped { space, va } => san.frame_mapped(&*ram, space, va),
        Op::Cpu { cpu, what } => match what {
            0 => san.barrier(cpu, Barrier::Data),
            1 => san.barrier(cpu, Barrier::Instruction),
            2 => san.barrier(cpu, Barrier::Fence),
            3 => san.running_on(cpu),
            _ => san.stage1_flushed(cpu),
        },
        Op::Done { what } => match what {
            0 => san.flushes_done(&*ram),
            1 => san.finish_with(&*ram),
            2 => open.push(san.operation_begins()),
            _ => {
                if let Some(operation) = open.pop() {
                    san.operation_ends(&*ram, operation);
                }
            }
        },
        Op::Guest { cpu, va, gpa, what } => match what {
            0 => san.stage1_part_flushed(cpu, Some(1), Some(va)),
            _ => {
                let page = GuestPage { number: u64::from(what), va };
                let _ = san.translate_combined(&*ram, cpu, page, gpa, Access::WRITE);
            }
        },
        Op::Number { space: 4, .. } => san.numbers_taken_back(),
        Op::Number { root, space } => san.number_given(root, space),
        Op::Device { device, flush, what: 0 } => san.flush_queued(device, flush),
        Op::Device { device, .. } => san.queue_completed(&*ram, device),
        Op::Entry { device, phys, bytes, what: 0 } => {
            let bytes = [8, 16, 32, 64, bytes][usize::from(bytes % 5)];
            san.device_entry(&*ram, device, phys, DeviceEntry { bytes, valid: (bytes % 3, 1) });
        }
        Op::Entry { device, phys, what: 1, .. } => san.device_entries_flushed(device, Some(phys)),
        Op::Entry { phys, bytes, .. } => {
            let at = phys.wrapping_add(u64::from(bytes % 8) * 8);
            if let Some(word) = ram.get_mut((at as usize) & !7..).and_then(|ram| ram.first_mut()) {
                *word = bytes;
            }
            san.device_entry_written(&*ram, at);
        }
        Op::Reader { table, what } => match (what, readers.last().copied()) {
            (0, _) | (_, None) => readers.push(san.reader_begins(&*ram, table)),
            (1, Some(reader)) => {
                san.reader_ends(reader);
                if table > PAGE {
                    readers.pop();
                }
            }
            (_, Some(reader)) => san.reader_reads(&*ram, reader, table),
        },
        Op::Lock { cpu, lock, table, what } => match what {
            0 => san.lock_guards(table, Guard { lock, flush_first: lock == 1 }),
            1 => san.lock_taken(cpu, lock, Hold::Shared),
            2 => san.lock_taken(cpu, lock, Hold::Exclusive),
            _ => san.lock_released(&*ram, cpu, lock),
        },
        Op::Adversary => san.adversary_step(&*ram),
        Op::Finish => san.finish(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_hooks_over_random_memory_never_panic(
        arch in arch(),
        (asids, recursive, infer_leftovers, eager_walkers) in any::<(bool, bool, bool, bool)>(),
        (barriers, accessed_dirty, write_xor_execute, two_stages) in any::<(bool, bool, bool, bool)>(),
        (debts, tlb) in (0..40usize, 0..40usize),
        (locks, common_numbers, devices, errata) in (any::<bool>(), any::<bool>(), 0..3usize, 0..4u8),
        seed: Option<u64>,
        entries in prop::collection::vec((phys(), 0..512u64, entry()), 0..60),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let adversary = seed.map(|seed| Adversary { seed, rate: 1500 });
        let errata = Errata {
            invlpg_spares_globals: errata == 1,
            sfence_drops_only_all: errata == 2,
            dsb_misses_stores: errata == 3,
        };
        let config = Config {
            locks, common_numbers, devices, errata, cpus: 3, asids, recursive, infer_leftovers, eager_walkers, adversary, backtraces: false,
            barriers, accessed_dirty, write_xor_execute, two_stages, debts, tlb,
            ..Config::new(arch)
        };
        let mut ram = vec![0u8; MEMORY as usize];
        for &(table, index, entry) in &entries {
            let at = (table.wrapping_add(index * 8) % MEMORY) as usize & !7;
            ram[at..at + 8].copy_from_slice(&entry.to_le_bytes());
        }
        let mut first = Sanitizer::new(config.clone());
        let mut second = Sanitizer::new(config);
        let mut again = ram.clone();
        let mut open = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for op in &ops {
            let [one, two] = &mut open;
            run(&mut first, &mut ram, (&mut one.0, &mut one.1), op);
            run(&mut second, &mut again, (&mut two.0, &mut two.1), op);
        }
        // The same hooks and the same seed: the same findings, to the letter.
        prop_assert_eq!(first.to_string(), second.to_string());
        prop_assert_eq!(first.total(), Kind::ALL.into_iter().map(|k| first.count(k)).sum::<u64>());
    }
}
