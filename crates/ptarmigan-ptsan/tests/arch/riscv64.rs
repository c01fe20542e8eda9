//! RISC-V: Sv39, with ASIDs and without.
//!
//! Not seen: the fence before a load (software walkers find every store at once), and the fence of
//! a new entry (the software MMUs cache no entry that is not valid). `FENCE.I` is no translation.
use crate::recorder::{Machine, Outcome, Port, Recorder, is_clean, is_found, leaves_are_clean, run};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::riscv64::{Instructions, SfenceVma};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Format, Sv39, Sv39Napot, Sv48};
use ptarmigan_ptsan::{Told, Watchable};
use ptsan::{Config, Flush};
use std::sync::atomic::Ordering::Relaxed;

/// Numbers are a hart's own.
fn tag(cpu: usize, asid: u16) -> u64 {
    (cpu as u64) << 16 | u64::from(asid)
}

// SAFETY: The software MMU of the hart executes the instruction of the name, except for the one
// that is left out, which the sanitizer has to notice.
unsafe impl<F: Format> Instructions for &Recorder<'_, '_, F> {
    fn sfence_vma(&self, pin: &Pinned<'_>, at: Option<u64>, asid: Option<u16>) {
        let name = match (at, asid) {
            (Some(_), Some(_)) => "sfence.vma va, asid",
            (Some(_), None) => "sfence.vma va, x0",
            (None, Some(_)) => "sfence.vma x0, asid",
            (None, None) => "sfence.vma x0, x0",
        };
        let Some(cpu) = self.executes(pin, name) else { return };
        let flush = match (at, asid) {
            (Some(at), Some(asid)) => Flush::page(tag(cpu, asid), at),
            (Some(at), None) => Flush::page_in_every_space(at),
            (None, Some(asid)) => Flush::space(tag(cpu, asid)),
            (None, None) => Flush::all(),
        };
        self.tell(|san, memory| san.flush(memory, cpu, flush));
    }

    fn satp(&self, pin: &Pinned<'_>) -> u64 {
        self.register(pin).load(Relaxed)
    }

    unsafe fn load_satp(&self, pin: &Pinned<'_>, value: u64) {
        let before = self.register(pin).swap(value, Relaxed);
        assert_eq!(before >> 60, value >> 60, "the mode stays");
        let Some(cpu) = self.executes(pin, "csrw satp") else { return };
        let (asid, root) = ((value >> 44) as u16, (value & ((1 << 44) - 1)) << 12);
        self.tell(|san, memory| san.switch(memory, cpu, root, tag(cpu, asid)));
    }

    fn fence_i_everywhere(&self, pin: &Pinned<'_>) {
        self.executes(pin, "fence.i");
    }
}

fn machine_of<F: Format + Watchable>(asids: u16) -> impl Fn(u64, Machine) -> Outcome {
    machine_with::<F>(asids, false)
}

/// A machine, with `leaves` of every size in place of random calls.
fn machine_with<F: Format + Watchable>(asids: u16, leaves: bool) -> impl Fn(u64, Machine) -> Outcome {
    move |seed, machine| {
        // A load of `satp` forgets no translation, whether there are numbers or not.
        let config = Config { asids: true, keeps_invalid: false, ..Config::new(F::arch()) };
        let port = Port { config, tag, register: |root| 8 << 60 | root >> 12 };
        run::<Told<F>>(seed, machine, &port, |recorder, root, what| {
            // SAFETY: 1. The recorder's harts have all of them. And 1. that of the run.
            let mmu = unsafe { SfenceVma::with_asids(NoIpi, recorder, asids).with_kernel_root(root) };
            if leaves {
                recorder.leaves(mmu, (seed, machine.cpus, machine.asids));
            } else {
                recorder.calls(mmu, what);
            }
        })
    }
}

const ALL: [&str; 5] =
    ["csrw satp", "sfence.vma va, asid", "sfence.vma va, x0", "sfence.vma x0, asid", "sfence.vma x0, x0"];

#[test]
fn random_calls_have_no_finding() {
    is_clean(&[0, 1, 3], &ALL, machine_of::<Sv39>(u16::MAX));
    is_clean(&[3], &ALL, machine_of::<Sv48>(u16::MAX));
    // The library uses more numbers than the harts have.
    is_clean(&[5], &ALL, machine_of::<Sv39>(2));
}

#[test]
fn leaves_of_every_size_have_no_finding() {
    leaves_are_clean(machine_with::<Sv39Napot>(u16::MAX, true));
    leaves_are_clean(machine_with::<Sv39>(u16::MAX, true));
}

#[test]
fn an_instruction_that_is_left_out_is_found() {
    for left_out in ALL {
        is_found(3, left_out, machine_of::<Sv39>(u16::MAX));
    }
    for left_out in ["sfence.vma va, asid", "sfence.vma x0, asid"] {
        is_found(0, left_out, machine_of::<Sv39>(u16::MAX));
    }
}
