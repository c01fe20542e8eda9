//! Logs at random: whatever they say, the machine carries on.
use super::format::{arch, tests::header_of};
use super::machine::Machine;
use crate::symbols::Symbols;
use proptest::collection::vec;
use proptest::prelude::*;
use ptsan_log::{AccessKind, Architecture, BarrierKind, Content, Entry, Header, Record, Scope};

/// Numbers that hit the limits, and a few small ones, so that records are about the same things.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..4, 6 => (0u64..12).prop_map(|n| n << 12), 1 => any::<u64>(), 1 => Just(!0), 1 => Just(1 << 55)]
}

fn record() -> impl Strategy<Value = Record<'static>> {
    let n = number;
    let cpu = || prop_oneof![8 => 0u16..3, 1 => any::<u16>()];
    let entry = (n(), 0u64..8).prop_map(|(table, flags)| table | flags);
    let content = prop_oneof![Just(Content::Zero), Just(Content::Unknown), Just(Content::Unchecked)];
    let access = prop_oneof![Just(AccessKind::Read), Just(AccessKind::Write), Just(AccessKind::Exec)];
    let barrier =
        prop_oneof![Just(BarrierKind::Data), Just(BarrierKind::Instruction), Just(BarrierKind::Fence)];
    let scope = prop_oneof![
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
        3 => (proptest::option::of(cpu()), scope, any::<bool>()).prop_map(|(cpu, scope, leaf_only)| {
            Record::Invalidate { cpu, scope, leaf_only }}),
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
    fn random_records_are_carried_out_or_are_lies_and_misuse_is_never_the_kernel_s(
        architecture in proptest::sample::select(Architecture::ALL),
        [asids, barriers, accessed_dirty, two_stages] in any::<[bool; 4]>(),
        seed in proptest::option::of(any::<u64>()),
        records in vec(record(), 1..40),
    ) {
        let header = Header { asids, barriers, accessed_dirty, two_stages, cpus: 3, ..header_of(architecture) };
        let mut machine = Machine::new(&header, arch(&header).unwrap(), seed, (8, 64), Symbols::open(None, false).unwrap());
        for (n, record) in (1..).zip(&records) {
            let entry = Entry { number: n, offset: 0, pc: Some(n), record: *record };
            if machine.apply(&entry).is_err() {
                break;
            }
        }
        machine.ended = Some(true);
        machine.finish(40);
        prop_assert_eq!(machine.noted.made.len(), machine.sanitizer.findings().len());
        prop_assert_eq!(machine.sanitizer.count(ptsan::Kind::Misuse), 0);
    }
}
