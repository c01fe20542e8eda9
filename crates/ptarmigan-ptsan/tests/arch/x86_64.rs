//! x86-64: with PCIDs and INVPCID, with PCIDs alone, and with neither.
use crate::driver::host;
use crate::recorder::{Machine, Outcome, Port, Recorder, is_clean, is_found, run};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::x86_64::{Features, Instructions, Invpcid, X86Mmu};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Format, X86_64};
use ptarmigan::space::Space;
use ptarmigan::tlb::{Invalidation, Mmu, Scope};
use ptarmigan_hosted::{HostMachine, NoTlb};
use ptarmigan_ptsan::Told;
use ptsan::{Arch, Config, Flush, Target};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

const KEEP: u64 = 1 << 63;
const PCID: u64 = 0xfff;

/// Numbers are a CPU's own.
fn tag(cpu: usize, pcid: u16) -> u64 {
    (cpu as u64) << 16 | u64::from(pcid)
}

// SAFETY: The software MMU of the CPU executes the instruction of the name, except for the one that
// is left out, which the sanitizer has to notice.
unsafe impl<F: Format> Instructions for &Recorder<'_, '_, F> {
    fn invlpg(&self, pin: &Pinned<'_>, at: u64) {
        let pcid = (self.register(pin).load(Relaxed) & PCID) as u16;
        let Some(cpu) = self.executes(pin, "invlpg") else { return };
        self.tell(|san, memory| san.flush(memory, cpu, Flush::page(tag(cpu, pcid), at)));
    }

    fn invpcid(&self, pin: &Pinned<'_>, what: Invpcid) {
        let Some(cpu) = self.executes(pin, "invpcid") else { return };
        let (target, leaf_only) = match what {
            Invpcid::Page { pcid, at } => (Target::Page { space: tag(cpu, pcid), va: at }, false),
            Invpcid::Context(pcid) => (Target::Space(tag(cpu, pcid)), false),
            Invpcid::All => (Target::All, false),
            Invpcid::AllButGlobal => unreachable!("not executed"),
        };
        self.tell(|san, memory| san.flush(memory, cpu, Flush { target, leaf_only, ..Flush::all() }));
    }

    fn cr3(&self, pin: &Pinned<'_>) -> u64 {
        self.register(pin).load(Relaxed) & !KEEP
    }

    unsafe fn load_cr3(&self, pin: &Pinned<'_>, value: u64) {
        let forgets = value & KEEP == 0 && self.executes(pin, "a flush by a load of CR3").is_some();
        let cpu = usize::from(pin.cpu().0);
        self.register(pin).store(value, Relaxed);
        let space = tag(cpu, (value & PCID) as u16);
        self.tell(|san, memory| {
            san.switch(memory, cpu, value & !(KEEP | PCID), space);
            if forgets {
                san.flush(memory, cpu, Flush::space(space));
            }
        });
    }

    fn cr4(&self, _: &Pinned<'_>) -> u64 {
        unreachable!("no set-up asks")
    }

    fn toggle_pge(&self, pin: &Pinned<'_>) {
        let Some(cpu) = self.executes(pin, "toggle of CR4.PGE") else { return };
        self.tell(|san, memory| san.flush(memory, cpu, Flush::all()));
    }
}

fn machine_with(features: Features) -> impl Fn(u64, Machine) -> Outcome {
    move |seed, machine| {
        // Where loads forget, they do so in the model too.
        let config = Config { asids: features.pcid, ..Config::new(Arch::x86_64()) };
        let port = Port { config, tag, register: |root| root };
        run::<Told<X86_64>>(seed, machine, &port, |recorder, root, what| {
            // SAFETY: 1. The recorder's CPUs have them. 2. It is false. And 1. that of the run.
            let mmu = unsafe {
                X86Mmu::<X86_64, _, _>::with_features(NoIpi, recorder, features).with_kernel_root(root)
            };
            recorder.calls(mmu, what);
        })
    }
}

const ALL: Features = Features { pcid: true, invpcid: true, ..Features::X86_64 };
const PCIDS: Features = Features { pcid: true, ..Features::X86_64 };

#[test]
fn random_calls_have_no_finding() {
    is_clean(&[0, 1, 3], &["a flush by a load of CR3", "invlpg", "invpcid"], machine_with(ALL));
    is_clean(&[0, 1, 3], &["a flush by a load of CR3", "invlpg", "toggle of CR4.PGE"], machine_with(PCIDS));
    let without = ["a flush by a load of CR3", "invlpg", "toggle of CR4.PGE"];
    is_clean(&[0, 3], &without, machine_with(Features::X86_64));
}

#[test]
fn an_instruction_that_is_left_out_is_found() {
    for (features, left_out) in [
        (ALL, "invlpg"),
        (ALL, "invpcid"),
        (ALL, "a flush by a load of CR3"),
        (PCIDS, "toggle of CR4.PGE"),
        (Features::X86_64, "invlpg"),
        (Features::X86_64, "toggle of CR4.PGE"),
    ] {
        is_found(3, left_out, machine_with(features));
    }
    // Without numbers, every space has the kernel's.
    is_found(0, "a flush by a load of CR3", machine_with(ALL));
}

#[test]
fn a_kernel_whose_pages_are_not_all_global_must_not_say_so() {
    let wrong = machine_with(Features { global_kernel: true, ..ALL });
    let machine = Machine { cpus: 2, asids: 3, left_out: "" };
    assert!((1..=20).any(|seed| wrong(seed, machine).findings > 0));
}

/// Logs instructions; the CPU has PCID 1 loaded.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Log {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

// SAFETY: No CPU has any translation.
unsafe impl Instructions for &Log {
    fn invlpg(&self, _: &Pinned<'_>, at: u64) {
        self.note(format!("invlpg {at:#x}"));
    }
    fn invpcid(&self, _: &Pinned<'_>, what: Invpcid) {
        self.note(format!("invpcid {what:?}"));
    }
    fn cr3(&self, _: &Pinned<'_>) -> u64 {
        0x1001
    }
    unsafe fn load_cr3(&self, _: &Pinned<'_>, value: u64) {
        self.note(format!("cr3 {value:#x}"));
    }
    fn cr4(&self, _: &Pinned<'_>) -> u64 {
        unreachable!("no set-up asks")
    }
    fn toggle_pge(&self, _: &Pinned<'_>) {
        self.note("toggle".to_owned());
    }
}

#[test]
fn a_pcid_that_is_not_loaded_is_not_flushed_by_invlpg() {
    let host = host::<X86_64>(1);
    let slots = host.slots();
    let pin = slots[0].pin();
    let machine = HostMachine::new(&host, host.quicklists().unwrap(), NoTlb).unwrap();
    let on = ptarmigan::machine::Machine::on(&machine, &pin).unwrap();
    let space = Space::<X86_64>::new(on).unwrap();
    let log = Log::default();
    let executed = |features, asid, scope, tables_freed| {
        // SAFETY: 1. and 2. No CPU has any translation.
        let mmu = unsafe { X86Mmu::<X86_64, _, _>::with_features(NoIpi, &log, features) };
        let space = space.tlb().id();
        mmu.invalidate(&pin, &Invalidation { space, asid, scope, tables_freed, reload_root: false });
        std::mem::take(&mut *log.0.lock().unwrap()).join(", ")
    };
    let page = Scope::Page { at: 0x5000, shift: 12 };
    assert_eq!(executed(ALL, 1, page, true), "invlpg 0x5000");
    assert_eq!(executed(ALL, 1, Scope::Full, true), "cr3 0x1001");
    assert_eq!(executed(ALL, 2, page, false), "invpcid Page { pcid: 2, at: 20480 }");
    assert_eq!(executed(ALL, 2, page, true), "invpcid Context(2)");
    assert_eq!(executed(ALL, 2, Scope::Full, false), "invpcid Context(2)");
    assert_eq!(executed(PCIDS, 2, page, false), "toggle");
    // A number that no PCID has is the kernel's.
    assert_eq!(executed(ALL, 4096, page, false), "invpcid Page { pcid: 0, at: 20480 }");
    // Without PCIDs there is one, whatever number the library gives.
    assert_eq!(executed(Features::X86_64, 7, page, false), "invlpg 0x5000");
    space.end(on).unwrap();
}
