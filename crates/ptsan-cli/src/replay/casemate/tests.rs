//! Traces at random: whatever they say, the machine carries on.
use super::machine::{CasemateMachine, Options};
use super::trace::Trace;
use super::trees::Trees;
use proptest::collection::vec;
use proptest::prelude::*;

/// Numbers that hit the limits, and a few small ones, so that steps are about the same tables.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => (1u64..8).prop_map(|n| n << 12),
        3 => (1u64..8, 0u64..3).prop_map(|(page, entry)| page << 12 | entry << 3),
        1 => any::<u64>(),
        1 => Just(0),
        1 => Just(!0),
    ]
}

fn line() -> impl Strategy<Value = String> {
    let n = number;
    let thread = || 0u64..3;
    let pick = |words: &'static [&'static str]| proptest::sample::select(words);
    let value = (number(), 0u64..4).prop_map(|(table, flags)| table | flags);
    let root = (1u64..8, 0u64..3).prop_map(|(page, id)| page << 12 | id << 48);
    let kinds =
        pick(&["alle1is", "alle2is", "vmalls12e1is", "vmalls12e1", "vmalle1is", "vmalle1", "alle1", "alle2"]);
    let by_address = pick(&["ipas2e1is", "vae2is", "vale2is", "ripas2e1is", "rvae2is", "vae1is"]);
    prop_oneof![
        6 => (thread(), pick(&["plain", "release"]), n(), value)
            .prop_map(|(t, o, at, v)| format!("(mem-write 0 {t} {o} {at:x} {v:x})")),
        4 => (thread(), n(), prop_oneof![3 => Just(0x1000), 1 => n()])
            .prop_map(|(t, at, size)| format!("(mem-init 0 {t} {at:x} {size:x})")),
        1 => (thread(), n(), prop_oneof![3 => Just(0x1000), 1 => n()], 0u64..300)
            .prop_map(|(t, at, size, v)| format!("(mem-set 0 {t} {at:x} {size:x} {v:x})")),
        1 => (thread(), n(), n()).prop_map(|(t, at, size)| format!("(mem-free 0 {t} {at:x} {size:x})")),
        1 => (thread(), n(), n()).prop_map(|(t, at, v)| format!("(mem-read 0 {t} {at:x} {v:x})")),
        3 => (thread(), pick(&["ish", "ishst", "nsh", "sy"]))
            .prop_map(|(t, k)| format!("(barrier 0 {t} dsb {k})")),
        1 => thread().prop_map(|t| format!("(barrier 0 {t} isb)")),
        3 => (thread(), kinds).prop_map(|(t, k)| format!("(tlbi 0 {t} {k})")),
        3 => (thread(), by_address, n()).prop_map(|(t, k, v)| format!("(tlbi 0 {t} {k} {v:x})")),
        4 => (thread(), pick(&["vttbr_el2", "ttbr0_el2"]), prop_oneof![6 => root, 1 => n()])
            .prop_map(|(t, r, v)| format!("(msr 0 {t} {r} {v:x})")),
        1 => (thread(), pick(&["vtcr_el2", "tcr_el2", "hcr_el2"]), prop_oneof![Just(0x58u64), Just(0x10), n()])
            .prop_map(|(t, r, v)| format!("(msr 0 {t} {r} {v:x})")),
        3 => (thread(), pick(&["set_root_lock", "set_owner_root", "release_table", "set_pte_thread_owner"]), n(), n())
            .prop_map(|(t, k, at, v)| format!("(hint 0 {t} {k} {at:x} {v:x})")),
        2 => (thread(), pick(&["lock", "unlock"]), n()).prop_map(|(t, k, at)| format!("({k} 0 {t} {at:x})")),
        1 => "[ -~]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn random_traces_run_or_are_impossible_without_misuse(
        lines in vec(line(), 1..60),
        seed in proptest::option::of(any::<u64>()),
        [locks, flush_before_unlock] in any::<[bool; 2]>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let text = lines.join("\n");
        // Cut anywhere, too.
        for text in [&text[..], &text[..cut.index(text.len() + 1)]] {
            let trace = Trace::read(text.as_bytes());
            let Ok(trees) = Trees::of(&trace.steps) else { continue };
            let mut machine = CasemateMachine::new(&trace, trees, Options { seed, keep: 8, pages: 64, locks, flush_before_unlock });
            for entry in &trace.steps {
                if machine.apply(entry).is_err() {
                    break;
                }
            }
            machine.finish();
            let misuse: u64 = machine.stages.iter().map(|c| c.sanitizer.count(ptsan::Kind::Misuse)).sum();
            prop_assert!(misuse == 0, "{}", machine.stages.iter().map(|c| c.sanitizer.to_string()).collect::<String>());
        }
    }
}
