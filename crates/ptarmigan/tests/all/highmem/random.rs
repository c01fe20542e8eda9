//! Random operations against a model, with TLBs that remember (I11).
use crate::highmem::machine::{HIGH, Tlbs, host, knows, machine, pins, pool, read, store};
use fastrand::Rng;
use ptarmigan::addr::Pfn;
use ptarmigan::highmem::Slots;
use ptarmigan::highmem::pool::{Mapped, PoolConfig, PoolError};
use ptarmigan::window::WindowGuard;
use std::collections::HashMap;

const CPUS: usize = 3;

fn run(seed: u64, n: usize, colors: usize, batch: u32, low_water: usize, steps: usize) {
    let host = host(CPUS);
    let (tlbs, slots) = (Tlbs::new(), store(&host, n));
    let machine = machine(&host, &tlbs);
    let color_of = |pfn: Pfn| pfn.0 as usize / 3;
    let config = PoolConfig { cpus: CPUS, colors, color_of, batch, low_water };
    let pool = pool(&host, &machine, config, &slots).unwrap();
    let cpus = host.slots();
    let pins = pins(&cpus);
    let mut rng = Rng::with_seed(seed);
    let frames = 2 * n as u64;
    let mut users: HashMap<u32, Vec<Mapped<'_>>> = HashMap::new();
    // Which frame each slot was seen with, and its state then.
    let mut seen: Vec<(u32, Option<Pfn>)> = vec![(0, None); n];
    for _ in 0..steps {
        let pin = &pins[rng.usize(..CPUS)];
        let pfn = HIGH + rng.u64(..frames) as u32;
        match rng.u64(..100) {
            0..48 => {
                let free = |c: usize| (0..n).filter(|s| s % colors == c && pool.state(*s) < 2).count();
                let color = color_of(Pfn(pfn)) % colors;
                match pool.try_map(pin, Pfn(pfn)) {
                    Ok(mapped) => users.entry(pfn).or_default().push(mapped),
                    Err(PoolError::Exhausted { slots }) => {
                        assert_eq!(slots, n / colors);
                        assert!(users.get(&pfn).is_none_or(Vec::is_empty), "a mapped frame needs no slot");
                        // The remaining slots are local to the other CPUs.
                        let most = (CPUS - 1) * batch as usize;
                        assert!(free(color) <= most, "{} of colour {color} are free", free(color));
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            48..96 => {
                if let Some(its) = users.get_mut(&pfn) {
                    its.pop();
                }
            }
            96..98 => pool.idle(pin),
            _ => {
                let swept = pool.flush_unused(pin).unwrap();
                assert_eq!(swept.slots(), n);
                assert_eq!(swept.pinned, users.values().filter(|its| !its.is_empty()).count());
            }
        }
        // One slot for a frame, its count agrees with the model, and no CPU reads another frame.
        let mut by_frame = HashMap::new();
        for (slot, was) in seen.iter_mut().enumerate() {
            let (state, frame) = (pool.state(slot), slots.frame(slot));
            if state == 0 {
                assert_eq!(frame, None, "a usable slot shows nothing");
            } else {
                let frame = frame.expect("shows a frame");
                assert_eq!(by_frame.insert(frame, slot), None, "{frame} has two slots");
                let count = users.get(&frame.0).map_or(0, Vec::len);
                assert_eq!(state as usize, count + 1, "slot {slot}");
                for cpu in 0..CPUS {
                    read(&tlbs, cpu, slots.page(slot), frame);
                }
                assert_eq!(pool.address_of(frame), Some(slots.address(slot)));
                assert_eq!(slot % colors, color_of(frame) % colors);
            }
            // From a frame to no frame or to another one: not without having been forgotten.
            if was.1.is_some() && was.1 != frame && state == 0 {
                assert!(
                    (0..CPUS).all(|cpu| !knows(&tlbs, cpu, slots.page(slot))),
                    "slot {slot} is known still"
                );
            }
            *was = (state, frame);
        }
        for (pfn, its) in &users {
            let base = its.first().map(Mapped::base);
            assert!(its.iter().all(|m| Some(m.base()) == base));
            if !its.is_empty() {
                assert!(by_frame.contains_key(&Pfn(*pfn)), "a frame with users has no slot");
            }
        }
    }
    drop(users);
    for pin in &pins {
        pool.idle(pin);
    }
    let swept = pool.flush_unused(&pins[0]).unwrap();
    assert_eq!((swept.pinned, swept.slots()), (0, n), "a slot is lost");
    let counts = pool.counts();
    assert!(counts.total.stale > 0 && counts.sweeps > 0);
}

#[test]
fn random_operations_keep_the_states_exact_on_all_cpus() {
    for seed in 0..6 {
        run(seed, 16, 1, 2, 0, 1500);
        run(seed, 64, 1, 8, 6, 1500);
        run(seed, 24, 3, 1, 2, 1500);
        run(seed, 130, 2, 4, 0, 800);
    }
}
