//! AArch64's second stage, with VMIDs and without, with ranges and without.
//!
//! The translations of the software MMU stand for those that went through both stages. So one that
//! is named by a guest's physical address goes when the first stage is forgotten after that, with a
//! `DSB` between them.
//!
//! Not seen: `ALLE1IS`, as a guest has no kernel's half.
use crate::aarch64::{address, level_of_page, level_of_range, named, range, tag};
use crate::recorder::{Machine, Outcome, Port, Recorder, is_clean, is_found, leaves_are_clean, run};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::aarch64::{Barrier, Features, GuestInstructions, GuestOp, Instructions, Op, Stage2};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Aarch64Stage2, Format};
use ptarmigan_ptsan::{Told, Watchable};
use ptsan::{Config, Flush, Target};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

type F = Aarch64Stage2;

/// The sanitizer's number for the empty table.
const NOBODY: u64 = 1 << 20;

/// Second stages that were forgotten on the calling CPU's word, by whether a `DSB` has completed
/// that.
#[derive(Default)]
struct Begun {
    flushes: Vec<Flush>,
    completed: usize,
}

/// CPUs at EL2.
struct Hypervisor<'r, 's, 'h> {
    cpus: &'r Recorder<'s, 'h, Told<F>>,
    begun: Vec<Mutex<Begun>>,
    /// The hypervisor's root.
    empty: u64,
}

impl Hypervisor<'_, '_, '_> {
    fn begun(&self, pin: &Pinned<'_>) -> std::sync::MutexGuard<'_, Begun> {
        self.begun[usize::from(pin.cpu().0)].lock().unwrap()
    }

    fn flush(&self, cpu: usize, here: bool, flush: Flush) {
        self.cpus.tell(|san, memory| match here {
            true => san.flush(memory, cpu, flush),
            false => san.flush_everywhere(memory, flush),
        });
    }
}

// SAFETY: The software MMUs execute the instruction of the name, except for the one that is left
// out, which the sanitizer has to notice. The first stage of programs has none here.
unsafe impl Instructions for &Hypervisor<'_, '_, '_> {
    fn tlbi(&self, _: &Pinned<'_>, op: Op, _: u64) {
        unreachable!("{op:?} is an instruction of EL1");
    }

    fn barrier(&self, pin: &Pinned<'_>, barrier: Barrier) {
        let (name, told) = named(barrier);
        let Some(cpu) = self.cpus.executes(pin, name) else { return };
        if matches!(barrier, Barrier::DsbIsh | Barrier::DsbNsh) {
            let mut begun = self.begun(pin);
            begun.completed = begun.flushes.len();
        }
        self.cpus.tell(|san, _| san.barrier(cpu, told));
    }

    fn ttbr0(&self, _: &Pinned<'_>) -> u64 {
        unreachable!("a register of EL1")
    }

    unsafe fn load_ttbr0(&self, _: &Pinned<'_>, _: u64) {
        unreachable!("a register of EL1")
    }

    fn ctr(&self, _: &Pinned<'_>) -> u64 {
        4 << 16
    }

    unsafe fn dc_cvau(&self, pin: &Pinned<'_>, _: *const u8) {
        self.cpus.executes(pin, "dc cvau");
    }

    fn ic_ialluis(&self, pin: &Pinned<'_>) {
        self.cpus.executes(pin, "ic ialluis");
    }
}

// SAFETY: As above.
unsafe impl GuestInstructions for &Hypervisor<'_, '_, '_> {
    fn tlbi_guest(&self, pin: &Pinned<'_>, op: GuestOp, operand: u64) {
        let name = match op {
            GuestOp::Ipas2e1is => "ipas2e1is",
            GuestOp::Ipas2le1is => "ipas2le1is",
            GuestOp::Ripas2e1is => "ripas2e1is",
            GuestOp::Ripas2le1is => "ripas2le1is",
            GuestOp::Vmalle1is => "vmalle1is",
            GuestOp::Vmalls12e1is => "vmalls12e1is",
            GuestOp::Alle1is => "alle1is",
            GuestOp::Ipas2le1 => "ipas2le1",
            GuestOp::Vmalle1 => "vmalle1",
            GuestOp::Vmalls12e1 => "vmalls12e1",
            GuestOp::Alle1 => "alle1",
        };
        let Some(cpu) = self.cpus.executes(pin, name) else { return };
        let (space, page) = (self.vttbr(pin) >> 48, 1 << F::PAGE_SHIFT);
        let leaf_only = matches!(op, GuestOp::Ipas2le1is | GuestOp::Ripas2le1is | GuestOp::Ipas2le1);
        let here = matches!(op, GuestOp::Vmalle1 | GuestOp::Vmalls12e1 | GuestOp::Alle1);
        let mut begun = self.begun(pin);
        match op {
            GuestOp::Ipas2e1is | GuestOp::Ipas2le1is | GuestOp::Ipas2le1 => {
                if let Some(level) = level_of_page::<F>(operand) {
                    let target = Target::Page { space, va: address(operand) };
                    begun.flushes.push(Flush { target, leaf_only, level, ..Flush::all() });
                }
            }
            GuestOp::Ripas2e1is | GuestOp::Ripas2le1is => {
                if let Some(level) = level_of_range::<F>(operand) {
                    let (start, end) = range(operand);
                    let target = Target::Range { space, start, end, stride: page };
                    begun.flushes.push(Flush { target, leaf_only, level, ..Flush::all() });
                }
            }
            GuestOp::Vmalle1is | GuestOp::Vmalle1 => {
                let completed = begun.completed;
                begun.completed = 0;
                let flushes: Vec<_> = begun.flushes.drain(..).take(completed).collect();
                for flush in flushes {
                    let of = match flush.target {
                        Target::Page { space, .. } | Target::Range { space, .. } => space,
                        _ => unreachable!("no other is begun"),
                    };
                    if of == space {
                        self.flush(cpu, here, flush);
                    }
                }
            }
            GuestOp::Vmalls12e1is | GuestOp::Vmalls12e1 => {
                self.flush(cpu, here, Flush::space(space));
            }
            GuestOp::Alle1is | GuestOp::Alle1 => {
                self.flush(cpu, here, Flush::all());
            }
        }
    }

    fn vttbr(&self, pin: &Pinned<'_>) -> u64 {
        self.cpus.register(pin).load(Relaxed)
    }

    unsafe fn load_vttbr(&self, pin: &Pinned<'_>, value: u64) {
        self.cpus.register(pin).store(value, Relaxed);
        let Some(cpu) = self.cpus.executes(pin, "msr vttbr_el2") else { return };
        let (root, vmid) = (value & ((1 << 48) - 1), value >> 48);
        // No walk of an empty table finds anything to keep under any number.
        let space = if root == self.empty { NOBODY } else { vmid };
        self.cpus.tell(|san, memory| san.switch(memory, cpu, root, space));
    }
}

fn machine(features: Features) -> impl Fn(u64, Machine) -> Outcome {
    machine_with(features, false)
}

/// A machine, with leaves of every size in place of random calls.
fn machine_with(features: Features, leaves: bool) -> impl Fn(u64, Machine) -> Outcome {
    move |seed, machine| {
        let config = Config { asids: true, barriers: true, accessed_dirty: true, ..Config::new(F::arch()) };
        let port = Port { config, tag, register: |root| root };
        run::<Told<F>>(seed, machine, &port, |recorder, root, what| {
            let begun = (0..machine.cpus).map(|_| Mutex::default()).collect();
            let hypervisor = Hypervisor { cpus: recorder, begun, empty: root.0 };
            // SAFETY: 1. The recorder's CPUs have them. And 1. that of the run.
            let mmu = unsafe { Stage2::with_features(NoIpi, &hypervisor, features).with_kernel_root(root) };
            if leaves {
                recorder.leaves(mmu, (seed, machine.cpus, machine.asids));
            } else {
                recorder.calls(mmu, what);
            }
        })
    }
}

const PAGES: Features = Features::ARMV8_0;
const RANGES: Features = Features { ranges: true, ttl: true, ..Features::ARMV8_0 };

#[test]
fn random_calls_have_no_finding() {
    let common = [
        "dsb ish",
        "dsb ishst",
        "dsb nsh",
        "ipas2e1is",
        "ipas2le1",
        "ipas2le1is",
        "isb",
        "msr vttbr_el2",
        "vmalle1",
        "vmalle1is",
        "vmalls12e1",
        "vmalls12e1is",
    ];
    let with = |more: &[&'static str]| {
        let mut all = [&common[..], more].concat();
        all.sort_unstable();
        all
    };
    is_clean(&[0, 5], &with(&["alle1"]), machine(PAGES));
    is_clean(&[0, 5], &with(&["alle1", "ripas2e1is", "ripas2le1is"]), machine(RANGES));
    // The library uses more numbers than the CPUs have.
    is_clean(&[9], &with(&["alle1"]), machine(Features { asids: 6, ..PAGES }));
}

#[test]
fn leaves_of_every_size_have_no_finding() {
    for features in [PAGES, RANGES, Features { ranges: false, ..RANGES }] {
        leaves_are_clean(machine_with(features, true));
    }
}

#[test]
fn an_instruction_that_is_left_out_is_found() {
    for left_out in [
        "ipas2e1is",
        "ipas2le1is",
        "ipas2le1",
        "vmalle1is",
        "vmalle1",
        "vmalls12e1is",
        "alle1",
        "dsb ishst",
        "dsb ish",
        "dsb nsh",
        "isb",
        "msr vttbr_el2",
    ] {
        is_found(5, left_out, machine(PAGES));
    }
    for left_out in ["ripas2e1is", "ripas2le1is"] {
        is_found(5, left_out, machine(RANGES));
    }
    is_found(0, "vmalls12e1", machine(PAGES));
}
