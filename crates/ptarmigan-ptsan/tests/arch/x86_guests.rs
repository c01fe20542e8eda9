//! Second stages of x86: with `INVEPT`, and with flushes at `VMRUN`.
//!
//! Not executed: what `forget_all` asks for, which numbers of the whole machine alone have.
use crate::recorder::{Machine, Outcome, Port, Recorder, is_clean, is_found, run};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::x86_64::{EptCpu, EptMmu, Invept, NptCpu, NptMmu, PendingFlush, TlbControl};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Ept, Format, Npt};
use ptarmigan_ptsan::{Told, Watchable};
use ptsan::{Config, Flush};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

const ADDRESS: u64 = ((1 << 52) - 1) & !0xfff;

/// CPUs that run guests, whatever keeps their state.
struct Hypervisor<'r, 's, 'h, F: Format> {
    cpus: &'r Recorder<'s, 'h, F>,
    /// By CPU.
    numbers: Vec<AtomicU16>,
    roots: Vec<AtomicU64>,
    pending: Vec<Mutex<PendingFlush>>,
}

impl<'r, 's, 'h, F: Format> Hypervisor<'r, 's, 'h, F> {
    fn new(cpus: &'r Recorder<'s, 'h, F>, n: usize) -> Self {
        Hypervisor {
            cpus,
            numbers: (0..n).map(|_| AtomicU16::new(0)).collect(),
            roots: (0..n).map(|_| AtomicU64::new(0)).collect(),
            pending: (0..n).map(|_| Mutex::default()).collect(),
        }
    }
}

/// Under EPT a CPU tells guests apart by their roots.
fn by_root(cpu: usize, root: u64) -> u64 {
    (cpu as u64) << 48 | root >> 12
}

// SAFETY: The software MMU of the CPU executes `INVEPT`, unless it is left out, which the sanitizer
// has to notice.
unsafe impl<F: Format> EptCpu for &Hypervisor<'_, '_, '_, F> {
    fn invept(&self, pin: &Pinned<'_>, what: Invept) {
        let (name, flush): (_, fn(u64) -> Flush) = match what {
            Invept::Context(_) => ("invept context", Flush::space),
            Invept::All => ("invept all", |_| Flush::all()),
        };
        let Some(cpu) = self.cpus.executes(pin, name) else { return };
        let root = match what {
            Invept::Context(pointer) => pointer & ADDRESS,
            Invept::All => 0,
        };
        self.cpus.tell(|san, memory| san.flush(memory, cpu, flush(by_root(cpu, root))));
    }

    fn loaded(&self, pin: &Pinned<'_>) -> (u64, u16) {
        let cpu = usize::from(pin.cpu().0);
        (self.roots[cpu].load(Relaxed), self.numbers[cpu].load(Relaxed))
    }

    unsafe fn load(&self, pin: &Pinned<'_>, pointer: u64, number: u16) {
        assert_eq!(pointer & 0xfff, 6 | 3 << 3 | 1 << 6, "write-back, four levels, accessed and dirty");
        let cpu = usize::from(pin.cpu().0);
        self.roots[cpu].store(pointer, Relaxed);
        self.numbers[cpu].store(number, Relaxed);
        let root = pointer & ADDRESS;
        self.cpus.tell(|san, memory| san.switch(memory, cpu, root, by_root(cpu, root)));
    }
}

/// Under nested pages a CPU tells guests apart by their ASIDs.
fn by_asid(cpu: usize, asid: u16) -> u64 {
    (cpu as u64) << 48 | u64::from(asid)
}

impl<F: Format> Hypervisor<'_, '_, '_, F> {
    /// Forgets at once what the next `VMRUN` would.
    fn enter(&self, pin: &Pinned<'_>) {
        let cpu = usize::from(pin.cpu().0);
        let asid = self.numbers[cpu].load(Relaxed);
        let control = self.pending[cpu].lock().unwrap().at_entry(asid);
        let (name, flush) = match control {
            TlbControl::Keep => return,
            TlbControl::All => ("all", Flush::all()),
            TlbControl::Guest => ("guest", Flush::space(by_asid(cpu, asid))),
        };
        if self.cpus.executes(pin, name).is_some() {
            self.cpus.tell(|san, memory| san.flush(memory, cpu, flush));
        }
    }
}

// SAFETY: As above. A guest's turn begins as soon as there is anything to forget before it: the
// software MMU runs guests at any time.
unsafe impl<F: Format> NptCpu for &Hypervisor<'_, '_, '_, F> {
    fn forget(&self, pin: &Pinned<'_>, asid: Option<u16>) {
        let cpu = usize::from(pin.cpu().0);
        let name = if asid.is_some() { "forget one" } else { "forget every one" };
        if self.cpus.executes(pin, name).is_some() {
            self.pending[cpu].lock().unwrap().add(asid);
        }
        self.enter(pin);
    }

    unsafe fn load(&self, pin: &Pinned<'_>, root: u64, asid: u16) {
        assert_ne!(asid, 0, "the host's");
        let cpu = usize::from(pin.cpu().0);
        self.numbers[cpu].store(asid, Relaxed);
        self.cpus.tell(|san, memory| san.switch(memory, cpu, root, by_asid(cpu, asid)));
        self.enter(pin);
    }
}

fn ept(seed: u64, machine: Machine) -> Outcome {
    let config = Config { asids: true, accessed_dirty: true, ..Config::new(Ept::arch()) };
    let port = Port { config, tag: |cpu, _| by_root(cpu, 0), register: |root| root };
    run::<Told<Ept>>(seed, machine, &port, |recorder, root, what| {
        let hypervisor = Hypervisor::new(recorder, machine.cpus);
        // SAFETY: 1. That of the run.
        let mmu = unsafe { EptMmu::new(NoIpi, &hypervisor, true).with_kernel_root(root) };
        recorder.calls(mmu, what);
    })
}

fn npt(asids: u16) -> impl Fn(u64, Machine) -> Outcome {
    move |seed, machine| {
        let config = Config { asids: true, ..Config::new(Npt::arch()) };
        let port = Port { config, tag: |cpu, number| by_asid(cpu, number + 1), register: |root| root };
        run::<Told<Npt>>(seed, machine, &port, |recorder, root, what| {
            let hypervisor = Hypervisor::new(recorder, machine.cpus);
            // SAFETY: 1. That of the run.
            let mmu = unsafe { NptMmu::new(NoIpi, &hypervisor, asids).with_kernel_root(root) };
            recorder.calls(mmu, what);
        })
    }
}

#[test]
fn random_calls_have_no_finding() {
    is_clean(&[0, 1, 3], &["invept all", "invept context"], ept);
    is_clean(&[0, 1, 3], &["forget one", "guest"], npt(64));
    // The library uses more numbers than the CPUs have.
    is_clean(&[9], &["forget one", "guest"], npt(6));
}

#[test]
fn an_instruction_that_is_left_out_is_found() {
    is_found(3, "invept context", ept);
    for left_out in ["invept all", "invept context"] {
        is_found(0, left_out, ept);
    }
    for left_out in ["forget one", "guest"] {
        is_found(3, left_out, npt(64));
    }
}
