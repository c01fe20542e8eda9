//! Tells the sanitizer the effect that each instruction of an `Mmu` would have had.
use crate::driver::{Calls, calls, host};
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::format::Format;
use ptarmigan::frames::{AllocFlags, End, Request, ZoneClass};
use ptarmigan::tlb::Mmu;
use ptarmigan_hosted::Host;
use ptarmigan_ptsan::{HostMemory, SoftMmu};
use ptsan::{Adversary, Barrier, Config, Content, Sanitizer};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// The instructions of all CPUs of a host.
pub struct Recorder<'s, 'h, F: Format> {
    soft: &'s SoftMmu<'h, F>,
    /// The register with the root, by CPU.
    registers: Vec<AtomicU64>,
    /// The instruction that has no effect.
    left_out: &'static str,
    /// How often each was executed.
    executed: Mutex<BTreeMap<&'static str, u64>>,
}

impl<F: Format> Recorder<'_, '_, F> {
    /// Counts an instruction; returns the CPU, or `None` if it is the one that is left out.
    pub fn executes(&self, pin: &Pinned<'_>, name: &'static str) -> Option<usize> {
        *self.executed.lock().unwrap().entry(name).or_default() += 1;
        (name != self.left_out).then_some(usize::from(pin.cpu().0))
    }

    /// The host, and the sanitizer that watches it.
    pub fn host(&self) -> (&Host<F>, &SoftMmu<'_, F>) {
        (self.soft.host(), self.soft)
    }

    /// The root register of the CPU.
    pub fn register(&self, pin: &Pinned<'_>) -> &AtomicU64 {
        &self.registers[usize::from(pin.cpu().0)]
    }

    /// Calls `f` with the sanitizer.
    pub fn tell(&self, f: impl FnOnce(&mut Sanitizer, &HostMemory<'_>)) {
        self.soft.with(f);
    }
}

/// A machine to try, and the instruction that it leaves out.
#[derive(Clone, Copy)]
pub struct Machine {
    pub cpus: usize,
    /// Numbers that the library uses.
    pub asids: u16,
    pub left_out: &'static str,
}

/// The result of a run.
pub struct Outcome {
    /// Findings, or one for a run that panicked: an access that a served fault should have let
    /// through, or a page of the kernel's that was seen wrong.
    pub findings: u64,
    pub report: String,
    pub executed: BTreeMap<&'static str, u64>,
}

/// The hardware as the sanitizer is told of it.
pub struct Port {
    pub config: Config,
    /// The sanitizer's number for the tag of a CPU.
    pub tag: fn(usize, u16) -> u64,
    /// The value of the register that loads a root under the number 0.
    pub register: fn(u64) -> u64,
}

/// Takes frames for an empty root.
fn empty_root<F: Format>(host: &Host<F>) -> PhysAddr {
    let (node, class, flags) = (ptarmigan::cpu::NodeId(0), ZoneClass::Low, AllocFlags::NORMAL);
    let order = F::LAYOUT.order(F::LAYOUT.root());
    let request = Request { node, order, zero: true, class, end: End::Low, flags };
    // SAFETY: 1. The host's own window.
    unsafe { host.frames().take(request).unwrap().zeroed(&host.window()) }.into_raw().addr()
}

/// Makes random calls on the machine. `drive` is given the recorder and the root without entries of
/// programs, and passes an `Mmu` made of them to [`Recorder::calls`].
pub fn run<F: Format>(
    seed: u64,
    machine: Machine,
    port: &Port,
    drive: impl Fn(&Recorder<'_, '_, F>, PhysAddr, &Calls),
) -> Outcome {
    let Machine { cpus, asids, left_out } = machine;
    let host = host::<F>(cpus);
    let config =
        Config { cpus, adversary: Some(Adversary::new(seed)), backtraces: false, ..port.config.clone() };
    let soft = SoftMmu::new(&host, config);
    let level = F::LAYOUT.root();
    let root = match F::USER_ROOT_ENTRIES == F::entries(level) {
        true => empty_root(&host),
        false => host.kernel().root(),
    };
    soft.with(|san, memory| {
        san.table_allocated(memory, root.0, F::LAYOUT.table_bytes(level), Some(level.0), Content::Unchecked);
        for cpu in 0..cpus {
            (1..=asids).for_each(|asid| san.space_created((port.tag)(cpu, asid)));
            san.barrier(cpu, Barrier::Data);
            san.switch(memory, cpu, root.0, (port.tag)(cpu, 0));
            san.barrier(cpu, Barrier::Instruction);
        }
    });
    let registers = (0..cpus).map(|_| AtomicU64::new((port.register)(root.0))).collect();
    let recorder = Recorder { soft: &soft, registers, left_out, executed: Mutex::default() };
    let what = Calls { seed, steps: 2000, asids, cpus, due: true };
    let done = soft.told(|| catch_unwind(AssertUnwindSafe(|| drive(&recorder, root, &what))));
    let executed = std::mem::take(&mut *recorder.executed.lock().unwrap());
    // The kernel's root and its tables stay, so the run is not finished: they would count as leaks.
    soft.with(|san, _| {
        let findings = san.total() + u64::from(done.is_err());
        Outcome { findings, report: san.to_string(), executed }
    })
}

impl<F: Format> Recorder<'_, '_, F> {
    /// Makes the calls on MMUs that are made of this recorder.
    pub fn calls(&self, mmu: impl Mmu, what: &Calls) {
        let (served, passed) = calls(self.soft.host(), self.soft, mmu, what);
        assert!(
            F::USER_ROOT_ENTRIES == 0 || served > 100 && passed > 10,
            "{served} faults, {passed} accesses"
        );
    }
}

/// Leaves of every size have no finding.
pub fn leaves_are_clean(run: impl Fn(u64, Machine) -> Outcome) {
    for seed in 1..=2 {
        let machine = Machine { cpus: 1 + seed as usize % 2, asids: 5, left_out: "" };
        let outcome = run(seed, machine);
        assert_eq!(outcome.findings, 0, "seed {seed}: {}", outcome.report);
    }
}

/// Runs on 2 to 4 CPUs with each of the numbers have no finding, and execute all instructions of
/// `names`.
pub fn is_clean(asids: &[u16], names: &[&str], run: impl Fn(u64, Machine) -> Outcome) {
    let mut executed = BTreeMap::new();
    for seed in 1..=12 {
        for asids in asids {
            let machine = Machine { cpus: 2 + seed as usize % 3, asids: *asids, left_out: "" };
            let outcome = run(seed, machine);
            assert_eq!(outcome.findings, 0, "seed {seed}, {asids} numbers: {}", outcome.report);
            for (name, times) in outcome.executed {
                *executed.entry(name).or_insert(0) += times;
            }
        }
    }
    assert_eq!(executed.keys().copied().collect::<Vec<_>>(), names, "{executed:?}");
}

/// A run without `left_out` has findings, with one of the first seeds.
pub fn is_found(asids: u16, left_out: &'static str, run: impl Fn(u64, Machine) -> Outcome) {
    let found = (1..=20).any(|seed| {
        let outcome = run(seed, Machine { cpus: 2, asids, left_out });
        assert!(outcome.executed.contains_key(left_out), "{left_out} is never executed");
        outcome.findings > 0
    });
    assert!(found, "a machine without {left_out} has no finding");
}
