//! The adapters raise no false alarm: random correct workloads of other crates are silent.
//!
//! Two CPUs access memory all the time. Their walkers walk by themselves, at moments and for
//! addresses of an adversary's choice. The workloads avoid the known defects of a crate
//! (`docs/defects.md`) as its user would have to, and each place says how.
mod aarch64;
mod base;
mod generic;
mod multiarch;
mod watched;
mod x86;

use fastrand::Rng;
use ptsan::adapters::{FRAME, Machine};
use ptsan::{Access, Adversary, Arch, Config, Expected, Perms};
use std::collections::BTreeMap;
use std::ops::Range;

const SEEDS: Range<u64> = 1..7;
const STEPS: usize = 1500;
/// Runs in which every store is seen are thousands of times slower.
const WATCHED_SEEDS: Range<u64> = 7..9;
const WATCHED_STEPS: usize = 150;
const LARGE: u64 = 0x20_0000;
/// The addresses in use: 8 large pages in each of 3 places, with 16 small pages at the start of
/// each.
const PLACES: [u64; 3] = [0, 0x3f_c000_0000, 0x7f00_0000_0000];

/// Few more than the tables in use at once, so that frames are reused again and again.
const FRAMES: usize = 40;

/// Returns a small page of a large page of a place, each at random.
fn any_page(random: &mut Rng) -> u64 {
    PLACES[random.usize(..3)] + random.u64(..8) * LARGE + random.u64(..16) * FRAME
}

fn any_frame(random: &mut Rng, size: u64) -> u64 {
    0x1_0000_0000 + random.u64(..1 << 10) * size
}

/// The mappings: address to frame, size, and whether it may be written.
#[derive(Default)]
struct Model(BTreeMap<u64, (u64, u64, bool)>);

impl Model {
    fn find(&self, va: u64) -> Option<(u64, (u64, u64, bool))> {
        let (&at, &page) = self.0.range(..=va).next_back()?;
        (va < at + page.1).then_some((at, page))
    }

    fn is_free(&self, va: u64, size: u64) -> bool {
        self.find(va).is_none() && self.0.range(va..va + size).next().is_none()
    }

    /// Accesses a random address on a random CPU, and compares with the model.
    fn access(&self, machine: &Machine, random: &mut Rng) {
        let (cpu, va) = (random.usize(..2), any_page(random) + random.u64(..FRAME));
        let access = if random.bool() { Access::READ } else { Access::WRITE };
        let says = self.find(va);
        let allowed = says.is_some_and(|(_, (.., write))| write || access == Access::READ);
        let got = machine.access(cpu, va, access);
        assert_eq!(got.is_ok(), allowed, "{va:#x}: {machine}");
        let expected = says.map(|(at, (frame, size, _))| Expected::at(frame + va - at).in_page_of(size));
        machine.expect(cpu, va, expected);
        if let (Ok(t), Some((_, (.., write)))) = (got, says) {
            assert_eq!(t.perms.contains(Perms::WRITE), write, "{va:#x}");
        }
    }
}

fn config(arch: Arch) -> Config {
    Config { cpus: 2, eager_walkers: true, ..Config::new(arch) }
}

fn machine(arch: Arch) -> Machine {
    Machine::with_frames(config(arch), FRAMES)
}

/// Runs a workload with a seed and a number of steps on plain machines, and, where possible, on
/// machines in which every store is seen.
fn machines(arch: &Arch) -> impl Iterator<Item = (Machine, Rng, usize)> {
    let plain = SEEDS.map(|seed| {
        let adversary = Some(Adversary::new(seed));
        let config = Config { adversary, ..config(arch.clone()) };
        (Machine::with_frames(config, FRAMES), Rng::with_seed(seed), STEPS)
    });
    let watched = WATCHED_SEEDS.filter_map(|seed| {
        let adversary = Some(Adversary::new(seed));
        let machine = match Machine::watched(Config { adversary, ..config(arch.clone()) }, FRAMES) {
            Err(ptsan::watch::Error::Unsupported) => return None,
            machine => machine.expect("memory to watch"),
        };
        Some((machine, Rng::with_seed(seed), WATCHED_STEPS))
    });
    plain.chain(watched)
}

/// Runs a step of a workload. The machine sees its stores if it can.
fn run<R>(machine: &Machine, step: impl FnOnce() -> R) -> R {
    machine.run(step).expect("memory that can be protected")
}

/// Loads the root on both CPUs, and lets their walkers walk ahead.
fn load(machine: &Machine, root: u64, random: &mut Rng) {
    for cpu in 0..2 {
        machine.load(cpu, root, 1);
        machine.walk_ahead(cpu, any_page(random));
    }
}

fn silent(machine: &Machine) {
    machine.finish();
    machine.sanitizer(|san, _| san.assert_clean());
}
