//! Several workers and several copies give the same result as one, and a failed worker ends the
//! replay.
use super::input::schedule::{CpuMap, Op, Schedule, critical_path};
use super::input::trace::Trace;
use super::platform::{RecordedX86, Walked};
use super::setup::Setup;
use super::workers::job::Job;
use super::workers::outcome::Outcome;
use super::workers::watch::{Watch, watches};
use ptarmigan::addr::VirtRange;
use ptarmigan::format::{Attr, Format, X86_64};
use ptarmigan::machine::On;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, Done, Space};
use ptarmigan_hosted::{Delivery, HostConfig};
use ptarmigan_term::Failure;
use ptarmigan_trace::{
    AreaKind, CloneKind, Event, FaultFlags, Header, Kind, MapFlags, Method, Prot, Sampled, Writer,
};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "formats")]
mod formats;

const SHIPPED: [&str; 5] = ["fixture", "rustc", "configure", "compile", "linux-build"];

fn shipped(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.ptrace"));
    Trace::open(&path).expect("a shipped trace")
}

/// The final state of a replay: the areas and pages of each space, without names of spaces and
/// numbers of frames.
#[derive(Debug, Default, PartialEq)]
struct Left {
    /// In the order of their contents.
    spaces: Vec<Vec<(u64, u64)>>,
    data_frames: usize,
    samples: Vec<(u32, u32)>,
    outside: u64,
    odd: u64,
}

struct Setting {
    copies: usize,
    nodes: usize,
    delivery: Delivery,
}

const PLAIN: Setting = Setting { copies: 1, nodes: 1, delivery: Delivery::AtOnce };

fn replay(trace: &Trace, schedule: &Schedule, setting: &Setting) -> (Outcome, Left) {
    let job = Job { copies: setting.copies, ..Job::new(trace, schedule) };
    let setup = Setup::new(&Walked::RECORDED, job, 4 << 30);
    let setup = Setup { host: HostConfig { nodes: setting.nodes, ..setup.host }, ..setup };
    let fresh = setup.fresh().expect("a host");
    let lists = fresh.quicklists().expect("lists");
    let machine =
        fresh.machine(&lists as &dyn Policy, RecordedX86::NO_MMU, setting.delivery).expect("a machine");
    let left = RefCell::new(Left::default());
    let frames = RefCell::new(BTreeSet::new());
    let look = |on: On<'_, _>, space: &Space<X86_64>| {
        let all = VirtRange::up_to(X86_64::USER_END);
        let mut found = vec![(u64::from(space.tree().tables_below_root()), 0)];
        space.areas().each(on, all, |area| found.push((area.start, area.end))).unwrap();
        let walk = space.tree().walk(on, all, |va, pfn, attr| {
            found.push((va.0, u64::from(attr.0)));
            if !attr.has(Attr::SPECIAL) {
                frames.borrow_mut().insert(pfn);
            }
        });
        walk.expect("of this machine");
        left.borrow_mut().spaces.push(found);
    };
    let ran = fresh.run_and_look(&machine, Vec::new(), None, &look);
    let outcome = ran.unwrap_or_else(|failure| panic!("{failure:?}")).outcome;
    let mut left = left.into_inner();
    left.spaces.sort();
    left.data_frames = frames.into_inner().len();
    left.samples = outcome.differing.iter().map(|sample| (sample.event, sample.own)).collect();
    left.outside = outcome.outside;
    left.odd = outcome.odd;
    (outcome, left)
}

/// Checks that every event is in exactly one program, that every program keeps the recorded order,
/// that no operation waits for a later one, and that no workers wait for each other.
fn check_order(trace: &Trace, schedule: &Schedule, what: &str) {
    let mut done = vec![0u8; trace.steps.len()];
    let posted: Vec<Vec<u32>> = schedule
        .programs
        .iter()
        .map(|p| {
            p.ops
                .iter()
                .zip(&p.origins)
                .filter(|(op, _)| **op == Op::Milestone)
                .map(|(_, origin)| *origin)
                .collect()
        })
        .collect();
    for program in &schedule.programs {
        assert!(program.origins.is_sorted(), "{what}: out of order");
        for (op, origin) in program.ops.iter().zip(&program.origins) {
            match *op {
                Op::Wait { worker, milestone } => {
                    let reached = posted[usize::from(worker)][milestone as usize - 1];
                    assert!(reached < *origin, "{what}: event {origin} waits for {reached}");
                }
                Op::Fault { .. }
                | Op::Call { .. }
                | Op::Truth { .. }
                | Op::Fork { .. }
                | Op::Exec { .. }
                | Op::Exit { .. }
                | Op::Idle { .. } => done[*origin as usize] += 1,
                _ => {}
            }
        }
    }
    assert!(done.iter().all(|n| *n == 1), "{what}: events left out or done twice");
    let path = critical_path(schedule, |_, _| 1.0).unwrap_or_else(|| panic!("{what}: a circle"));
    assert!(path.busiest <= path.longest && path.longest <= path.total, "{what}: {path:?}");
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn schedules_of_shipped_traces_keep_order_without_cycles() {
    for name in SHIPPED {
        let trace = shipped(name);
        for cpus in [1, 2, 3, 7, 16, 64] {
            let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, cpus), false);
            assert_eq!(schedule.programs.len(), cpus);
            check_order(&trace, &schedule, &format!("{name} on {cpus}"));
        }
    }
}

#[test]
#[ignore = "replays whole traces: cargo xtask ci tests-long"]
fn shipped_traces_match_linux_with_any_number_of_workers() {
    for name in SHIPPED {
        let trace = shipped(name);
        for cpus in [2, 5, 8] {
            let map = CpuMap::new(trace.cpus, cpus);
            let (outcome, left) = replay(&trace, &Schedule::new(&trace, map, false), &PLAIN);
            assert_eq!(outcome.checked, outcome.equal, "{name} on {cpus}: {:?}", outcome.differing.first());
            assert!(outcome.checked > 0);
            let (_, alone) = replay(&trace, &Schedule::new(&trace, map, true), &PLAIN);
            assert_eq!(left, alone, "{name} on {cpus}");
        }
    }
}

/// Returns a random history: tasks on random CPUs fork, share spaces, start programs and exit.
fn history(seed: u64) -> Trace {
    let mut random = fastrand::Rng::with_seed(seed);
    let cpus = 1 + random.u16(..5);
    let header = Header::new("history", cpus, Method::Synthetic);
    let mut writer = Writer::new(Vec::new(), &header, 3).expect("a good header");
    let (mut alive, mut tasks) = (vec![0u32], 1);
    // Some histories share spaces often, others rarely.
    let sharing = 1 + random.u64(..6);
    for _ in 0..1500 {
        if alive.is_empty() {
            break;
        }
        let at = random.usize(..alive.len());
        let task = alive[at];
        let page = 0x1000 + random.u64(..6) * 0x3_0000 + random.u64(..700);
        let pages = 1 + random.u64(..600);
        let prot = Prot(random.u8(..8));
        let kind = match random.u64(..40) {
            0 => Kind::Clone { child: tasks, kind: CloneKind::Fork },
            1 => Kind::Clone { child: tasks, kind: CloneKind::Vfork },
            n if n < 2 + sharing && alive.len() < 12 => Kind::Clone { child: tasks, kind: CloneKind::Share },
            8 => Kind::Exec { stack_end: 0x7_ffff_ffff, arg_pages: random.u32(..9) },
            9 if alive.len() > 3 => Kind::Exit { last: false },
            10 => Kind::Idle,
            11 => Kind::Truth { tables: 1 << 20, at: Sampled::Exit },
            12 => Kind::Munmap { start: page, pages },
            13 => Kind::Brk { end: page },
            14 => Kind::Mprotect { start: page, pages, prot },
            15 => Kind::Madvise { start: page, pages, advice: 4 },
            16 => {
                Kind::Mremap { from: page, old_pages: pages, to: page + 0x800, new_pages: pages, keep: false }
            }
            17 => Kind::Area { start: page, pages, prot, kind: AreaKind::Anon },
            18..=23 => Kind::Mmap { start: page, pages, prot: Prot(3), flags: MapFlags(random.u16(..4)) },
            _ => Kind::Fault { page, flags: FaultFlags(random.u8(..4)) },
        };
        match kind {
            Kind::Clone { .. } => {
                alive.push(tasks);
                tasks += 1;
            }
            Kind::Exit { .. } => {
                alive.swap_remove(at);
            }
            _ => {}
        }
        let cpu = random.u16(..cpus);
        writer.event(&Event { task, cpu, kind }).expect("a valid event");
    }
    let bytes = writer.finish(0).expect("memory takes everything").0;
    Trace::from_bytes(&bytes, "history").expect("what was just written")
}

#[test]
fn random_histories_end_alike_with_one_worker_and_with_many() {
    for seed in 1..=60 {
        let trace = history(seed);
        for cpus in [1, 2, 3, 8] {
            let map = CpuMap::new(trace.cpus, cpus);
            let schedule = Schedule::new(&trace, map, false);
            let what = format!("seed {seed} on {cpus}");
            check_order(&trace, &schedule, &what);
            let setting =
                Setting { nodes: 1 + seed as usize % 2, delivery: Delivery::Adverse(seed), ..PLAIN };
            let (_, alone) = replay(&trace, &Schedule::new(&trace, map, true), &PLAIN);
            let (_, many) = replay(&trace, &schedule, &setting);
            assert_eq!(many, alone, "{what}");
        }
    }
}

#[test]
fn copies_come_to_the_same_as_one() {
    let trace = history(7);
    let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, 2), false);
    let (_, one) = replay(&trace, &schedule, &PLAIN);
    let (_, three) = replay(&trace, &schedule, &Setting { copies: 3, ..PLAIN });
    assert_eq!(three.data_frames, 3 * one.data_frames);
    assert_eq!(three.samples.len(), 3 * one.samples.len());
    let thrice = one.spaces.iter().flat_map(|space| [space; 3]);
    assert!(thrice.eq(&three.spaces));
}

/// Panics at a given fault.
struct Panicking<'a>(&'a AtomicUsize);

impl Watch for Panicking<'_> {
    fn served(&mut self, _: usize, _: u64, _: Access, _: Done) {
        assert!(self.0.fetch_sub(1, Ordering::Relaxed) != 1, "injected");
    }
}

fn failure(trace: &Trace, schedule: &Schedule, faults: usize) -> Failure {
    let job = Job::new(trace, schedule);
    let setup = Setup::new(&Walked::RECORDED, job, 4 << 30);
    let fresh = setup.fresh().expect("a host");
    let lists = fresh.quicklists().expect("lists");
    let machine =
        fresh.machine(&lists as &dyn Policy, RecordedX86::NO_MMU, Delivery::AtOnce).expect("a machine");
    let left = AtomicUsize::new(faults);
    let mut panicking: Vec<_> = (0..job.workers()).map(|_| Panicking(&left)).collect();
    let result = fresh.run(&machine, watches(&mut panicking), None);
    result.err().expect("it cannot come to its end")
}

#[test]
fn a_panicking_worker_ends_the_replay_with_its_number() {
    let trace = shipped("configure");
    let schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, 4), false);
    for faults in [1, 1000, 200_000] {
        let said = format!("{:?}", failure(&trace, &schedule, faults));
        assert!(said.contains("worker ") && said.contains("injected"), "{said}");
    }
}

#[test]
fn an_order_that_is_not_kept_is_reported_and_nothing_worse() {
    let trace = shipped("fixture");
    let mut schedule = Schedule::new(&trace, CpuMap::new(trace.cpus, 2), false);
    // Make workers use spaces that they have not claimed.
    for program in &mut schedule.programs {
        for op in &mut program.ops {
            if matches!(op, Op::Claim { .. }) {
                *op = Op::Idle { slot: 0 };
            }
        }
    }
    let said = format!("{:?}", failure(&trace, &schedule, 0));
    assert!(said.contains("out of order"), "{said}");
}
