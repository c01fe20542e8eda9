//! Logs at random: whatever they say, the machine carries on.
use super::format::{arch, tests::header_of};
use super::machine::Machine;
use crate::symbols::Symbols;
use proptest::collection::vec;
use proptest::prelude::*;
use ptsan_log::{
    AccessKind, Architecture, BarrierKind, Content, Entry, ExceptionLevel, Header, Record, Scope,
};

/// Numbers that hit the limits, and a few small ones, so that records are about the same things.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..4, 6 => (0u64..12).prop_map(|n| n << 12), 1 => any::<u64>(), 1 => Just(!0), 1 => Just(1 << 55)]
}

/// Whether an invalidation spares tables, and the levels that it names.
fn named() -> impl Strategy<Value = (bool, Option<u8>, Option<ExceptionLevel>)> {
    let levels = [ExceptionLevel::El1, ExceptionLevel::El2, ExceptionLevel::El3];
    let exception_level = proptest::option::of(proptest::sample::select(levels.to_vec()));
    (any::<bool>(), proptest::option::of(0u8..9), exception_level)
}

fn scope() -> impl Strategy<Value = Scope> {
    let n = number;
    prop_oneof![
        (n(), n()).prop_map(|(space, va)| Scope::Page { space, va }),
        (n(), n(), n(), n()).prop_map(|(space, start, end, stride)| Scope::Range {
            space,
            start,
            end,
            stride
        }),
        (n(), n(), n()).prop_map(|(start, end, stride)| Scope::EverySpace { start, end, stride }),
        n().prop_map(Scope::Space),
        Just(Scope::All),
    ]
}

/// Records of version 2, about devices, readers, locks, numbers and second stages.
fn second() -> impl Strategy<Value = Record<'static>> {
    const BYTES: [u8; 64] = [1; 64];
    let n = number;
    let cpu = || prop_oneof![8 => 0u16..3, 1 => any::<u16>()];
    let device = || prop_oneof![8 => 3u16..5, 1 => any::<u16>()];
    let few = || prop_oneof![8 => 0u64..3, 1 => any::<u64>()];
    let entry = || prop_oneof![8 => (0u64..8).prop_map(|n| 0x5000 + 8 * n), 1 => number()];
    let maybe = || proptest::option::of(number());
    let access = prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write), Just(AccessKind::Exec)];
    prop_oneof![
        3 => (device(), scope(), named())
            .prop_map(|(device, scope, (leaf_only, level, exception_level))| Record::FlushQueued { device, scope, leaf_only, level, exception_level }),
        2 => device().prop_map(|device| Record::QueueCompleted { device }),
        3 => (device(), entry(), 0u32..4, 0u8..8, 1u64..4).prop_map(|(device, phys, shift, word, valid)| {
            Record::DeviceEntry { device, phys: phys >> (shift + 3) << (shift + 3), bytes: 8 << shift, word: word % (1 << shift), valid }
        }),
        4 => (entry(), 0u32..7, any::<bool>()).prop_map(|(phys, shift, ones)| Record::DeviceEntryWritten {
            phys: phys >> shift << shift, bytes: if ones { &BYTES[..1 << shift] } else { &[0; 64][..1 << shift] } }),
        2 => (device(), proptest::option::of(entry())).prop_map(|(device, phys)| Record::DeviceEntriesFlushed { device, phys }),
        2 => (few(), n()).prop_map(|(id, root)| Record::ReaderBegins { id, root }),
        2 => (few(), n()).prop_map(|(id, table)| Record::ReaderReads { id, table }),
        1 => few().prop_map(|id| Record::ReaderEnds { id }),
        2 => (n(), few(), any::<bool>()).prop_map(|(table, lock, flush_first)| Record::LockGuards { table, lock, flush_first }),
        2 => (cpu(), few(), any::<bool>()).prop_map(|(cpu, lock, shared)| Record::LockTaken { cpu, lock, shared }),
        2 => (cpu(), few()).prop_map(|(cpu, lock)| Record::LockReleased { cpu, lock }),
        2 => (n(), n()).prop_map(|(root, space)| Record::NumberGiven { root, space }),
        1 => Just(Record::NumbersTakenBack),
        1 => (cpu(), maybe(), maybe()).prop_map(|(cpu, number, va)| Record::Stage1PartFlushed { cpu, number, va }),
        3 => (cpu(), n(), n(), n(), access)
            .prop_map(|(cpu, number, va, gpa, kind)| Record::AccessCombined { cpu, number, va, gpa, kind }),
    ]
}

fn first() -> impl Strategy<Value = Record<'static>> {
    let n = number;
    // Three CPUs, and two devices behind them.
    let cpu = || prop_oneof![8 => 0u16..3, 2 => 3u16..5, 1 => any::<u16>()];
    let entry = (n(), 0u64..8).prop_map(|(table, flags)| table | flags);
    let content = prop_oneof![Just(Content::Zero), Just(Content::Unknown), Just(Content::Unchecked)];
    let access = prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write), Just(AccessKind::Exec)];
    let barrier = prop_oneof![
        Just(BarrierKind::Data),
        Just(BarrierKind::Instruction),
        Just(BarrierKind::Fence),
        Just(BarrierKind::Stores)
    ];
    prop_oneof![
        4 => (n(), prop_oneof![3 => Just(0), 1 => n()], proptest::option::of(0u8..6), content).prop_map(
            |(phys, size, level, content)| Record::TableAllocated { phys, size, level, content }),
        2 => (n(), prop_oneof![3 => Just(0), 1 => n()]).prop_map(|(phys, size)| Record::TableFreed { phys, size }),
        6 => (n(), entry, 0u32..4).prop_map(|(phys, value, shift)| Record::Store {
            phys: phys >> shift << shift, value, bytes: 1 << shift }),
        1 => (n(), 0u64..600, n()).prop_map(|(phys, words, value)| Record::Fill {
            phys: phys >> 13 << 3, bytes: words * 8, value }),
        1 => n().prop_map(|phys| Record::Memory { phys: phys >> 1, bytes: &[7, 0x20, 0, 0, 0, 0, 0, 0, 1] }),
        3 => (cpu(), n(), n(), any::<bool>()).prop_map(|(cpu, root, space, flushes)| Record::RootLoaded {
            cpu, root, space, flushes }),
        1 => cpu().prop_map(|cpu| Record::Lazy { cpu }),
        1 => cpu().prop_map(|cpu| Record::Resume { cpu }),
        1 => cpu().prop_map(|cpu| Record::Leave { cpu }),
        3 => (proptest::option::of(cpu()), scope(), named()).prop_map(|(cpu, scope, (leaf_only, level, exception_level))| {
            Record::Invalidate { cpu, scope, leaf_only, level, exception_level }}),
        1 => n().prop_map(|space| Record::SpaceCreated { space }),
        1 => n().prop_map(|space| Record::SpaceDestroyed { space }),
        3 => (n(), 0u64..8).prop_map(|(phys, value)| Record::Exchange { phys: phys & !7, value, bytes: 8 }),
        2 => (n(), prop_oneof![3 => Just(4096), 1 => n()]).prop_map(|(phys, size)| Record::DataFreed { phys, size }),
        2 => (n(), prop_oneof![3 => Just(4096), 1 => n()]).prop_map(|(phys, size)| Record::DataReused { phys, size }),
        1 => (n(), n()).prop_map(|(space, va)| Record::DataMapped { space, va }),
        1 => (cpu(), barrier).prop_map(|(cpu, kind)| Record::Barrier { cpu, kind }),
        1 => Just(Record::FlushesDone),
        1 => cpu().prop_map(|cpu| Record::Running { cpu }),
        1 => cpu().prop_map(|cpu| Record::Stage1Flushed { cpu }),
        1 => n().prop_map(|id| Record::OperationBegins { id }),
        1 => n().prop_map(|id| Record::OperationEnds { id }),
        4 => (cpu(), n(), access, any::<bool>()).prop_map(|(cpu, va, kind, user)| Record::Access {
            cpu, va, kind, user }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn random_records_run_or_are_impossible_without_misuse(
        architecture in proptest::sample::select(Architecture::ALL),
        [asids, barriers, accessed_dirty, two_stages, common_numbers, locks, keeps_invalid]
            in any::<[bool; 7]>(),
        cpus in prop_oneof![4 => Just(3), 1 => Just(0)],
        seed in proptest::option::of(any::<u64>()),
        records in vec(prop_oneof![5 => first(), 3 => second()], 1..60),
    ) {
        let devices = if cpus == 0 { 5 } else { 2 };
        let header = Header {
            asids, barriers, accessed_dirty, two_stages, common_numbers, locks, keeps_invalid, cpus, devices,
            ..header_of(architecture)
        };
        let mut machine = Machine::new(&header, arch(&header).unwrap(), seed, (8, 64), Symbols::open(None, false).unwrap());
        for (n, record) in (1..).zip(&records) {
            let entry = Entry { number: n, offset: 0, pc: Some(n), record: *record };
            if machine.apply(&entry).is_err() {
                break;
            }
        }
        machine.ended = Some(true);
        machine.finish(60);
        prop_assert_eq!(machine.noted.made.len(), machine.sanitizer.findings().len());
        prop_assert_eq!(machine.sanitizer.count(ptsan::Kind::Misuse), 0);
    }
}
