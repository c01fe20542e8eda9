//! Address spaces: random histories against a model of every page, under the sanitizer, on every
//! policy.
use crate::common;
use common::world::World;
use common::{Shape, Watch, Watchable, small, watched};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use ptarmigan::format::{X86_64, X86Pae};
use ptarmigan::quicklist::ListsConfig;
use ptarmigan_hosted::{Host, HostConfig};
use ptarmigan_linux::Rules;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Debug)]
enum With {
    Plain,
    /// Lists with magazines of this size.
    Lists(usize),
    V5(usize),
    V2008(usize),
}

impl With {
    fn is_historic(self) -> bool {
        matches!(self, With::V5(_) | With::V2008(_))
    }
}

struct Ran {
    looks: Vec<Vec<Shape>>,
    findings: BTreeMap<&'static str, u64>,
    failures: u64,
}

/// One history from beginning to end; no frame may be left.
fn history<F: Watchable>(config: HostConfig, with: With, seed: u64, steps: usize, tight: bool) -> Ran {
    let host = Host::<F>::new(config).unwrap();
    let slots = host.slots();
    let watch = Watch::new(&host);
    macro_rules! run {
        ($policy:expr) => {{
            let m = watched(&watch, $policy);
            let mut world = World::new(&watch, &m, &slots, seed, tight, !with.is_historic());
            let looks = world.run(steps);
            let failures = world.failures;
            world.end();
            (looks, failures)
        }};
    }
    let (looks, failures) = match with {
        With::Plain => run!(host.plain().unwrap()),
        With::Lists(magazine) => {
            let config = ListsConfig { magazine, ..ListsConfig::new(slots.len()) };
            run!(host.quicklists_with(config).unwrap())
        }
        With::V5(lists) => run!(common::historic(&host, Rules::V5, lists).unwrap()),
        With::V2008(lists) => run!(common::historic(&host, Rules::V2008, lists).unwrap()),
    };
    host.audit().unwrap();
    Ran { looks, findings: watch.finish(), failures }
}

#[track_caller]
fn clean(ran: &Ran) {
    assert_eq!(ran.findings, BTreeMap::new());
}

proptest! {
    // The same histories every time, so that a failure is one that can be looked at; for others
    // change the number.
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20),
        ..ProptestConfig::default()
    })]

    #[test]
    fn x86_64_spaces_show_what_the_model_shows(seed in any::<u64>(), cpus in 1usize..5, magazine in 0usize..33) {
        clean(&history::<X86_64>(small(cpus, 1, 64), With::Lists(magazine), seed, 1500, false));
    }

    #[test]
    fn pae_spaces_show_what_the_model_shows(seed in any::<u64>(), cpus in 1usize..5, magazine in 0usize..33) {
        clean(&history::<X86Pae>(small(cpus, 1, 64), With::Lists(magazine), seed, 1500, false));
    }

    #[test]
    fn spaces_on_several_nodes_show_what_the_model_shows(seed in any::<u64>(), nodes in 2usize..5) {
        clean(&history::<X86_64>(small(4, nodes, 128), With::Lists(16), seed, 1200, false));
    }

    #[test]
    fn every_policy_makes_the_same_tables_of_the_same_history(seed in any::<u64>(), cpus in 1usize..4) {
        let config = small(cpus, 1, 64);
        let plain = history::<X86_64>(config, With::Plain, seed, 800, false);
        clean(&plain);
        for with in [With::Lists(16), With::Lists(1), With::V5(1), With::V5(2), With::V5(3), With::V2008(2)] {
            let ran = history::<X86_64>(config, with, seed, 800, false);
            prop_assert!(ran.looks == plain.looks, "{:?} and the plain policy differ", with);
        }
        let plain = history::<X86Pae>(config, With::Plain, seed, 800, false);
        clean(&plain);
        for with in [With::Lists(16), With::V5(2), With::V2008(2)] {
            let ran = history::<X86Pae>(config, with, seed, 800, false);
            prop_assert!(ran.looks == plain.looks, "{:?} and the plain policy differ", with);
        }
    }
}

#[test]
fn calls_that_fail_for_lack_of_memory_leave_all_as_it_was() {
    let mut failures = 0;
    for seed in 0..12 {
        let with = if seed % 2 == 0 { With::Lists(4) } else { With::Plain };
        let ran = history::<X86_64>(small(2, 1, 32), with, seed, 500, true);
        clean(&ran);
        failures += ran.failures;
        let ran = history::<X86Pae>(small(2, 1, 32), with, seed, 500, true);
        clean(&ran);
        failures += ran.failures;
    }
    assert!(failures > 200, "memory was short {failures} times only");
}

#[test]
fn historic_policies_free_before_the_flush_and_are_right_else() {
    for (lists, nodes) in [(1, 1), (2, 1), (3, 1), (2, 2)] {
        for with in [With::V5(lists), With::V2008(lists)] {
            let ran = history::<X86_64>(small(2, nodes, 64), with, 11, 3000, false);
            let early = ran.findings.get("free-before-flush").copied().unwrap_or(0);
            assert!(early > 0, "the defect was not found: {with:?}");
            assert_eq!(ran.findings.len(), 1, "{with:?}: {:?}", ran.findings);
        }
    }
}
