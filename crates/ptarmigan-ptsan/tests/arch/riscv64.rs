//! RISC-V: Sv39, with ASIDs and without.
//!
//! Not seen: the fence before a load (software walkers find every store at once). `FENCE.I` is no
//! translation.
use crate::driver;
use crate::recorder::{Machine, Outcome, Port, Recorder, is_clean, is_found, leaves_are_clean, run};
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::arch::NoIpi;
use ptarmigan::arch::riscv64::{Instructions, SfenceVma, Tables};
use ptarmigan::cpu::Pinned;
use ptarmigan::format::{Attr, Format, Sv39, Sv39Napot, Sv48};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine as _;
use ptarmigan::space::{Access, AreaFlags, Done, Space};
use ptarmigan::tlb::TlbConfig;
use ptarmigan_hosted::{Delivery, HostMachine};
use ptarmigan_ptsan::{Told, Watchable};
use ptsan::{Config, Flush};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

fn machine_of<F: Tables + Watchable>(asids: u16) -> impl Fn(u64, Machine) -> Outcome {
    machine_with::<F>(asids, false)
}

/// A machine, with `leaves` of every size in place of random calls.
fn machine_with<F: Tables + Watchable>(asids: u16, leaves: bool) -> impl Fn(u64, Machine) -> Outcome {
    move |seed, machine| {
        // A load of `satp` forgets no translation, whether there are numbers or not.
        // Nothing serves a fault of a tree: its harts have Svvptc.
        let config = Config { asids: true, keeps_invalid: !leaves, ..Config::new(F::arch()) };
        let port = Port { config, tag, register: |root| u64::from(F::MODE) << 60 | root >> 12 };
        run::<Told<F>>(seed, machine, &port, |recorder, root, what| {
            // SAFETY: 1. The recorder's harts have all of them. And 1. that of the run.
            let mmu =
                unsafe { SfenceVma::<F, _, _>::with_asids(NoIpi, recorder, asids).with_kernel_root(root) };
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

/// Logs fences.
#[derive(Default)]
struct Log {
    fences: Mutex<Vec<(Option<u64>, Option<u16>)>>,
    satp: AtomicU64,
}

// SAFETY: No hart has any translation, nor any instruction.
unsafe impl Instructions for &Log {
    fn sfence_vma(&self, _: &Pinned<'_>, at: Option<u64>, asid: Option<u16>) {
        self.fences.lock().unwrap().push((at, asid));
    }
    fn satp(&self, _: &Pinned<'_>) -> u64 {
        self.satp.load(Relaxed)
    }
    unsafe fn load_satp(&self, _: &Pinned<'_>, value: u64) {
        self.satp.store(value, Relaxed);
    }
    fn fence_i_everywhere(&self, _: &Pinned<'_>) {}
}

#[test]
fn a_fault_that_links_tables_is_fenced_without_an_address() {
    let (log, host) = (Log::default(), driver::host::<Sv39>(1));
    // SAFETY: 1. No hart has any translation. And 1. that of the host.
    let mmu =
        unsafe { SfenceVma::<Sv39, _, _>::with_asids(NoIpi, &log, 8).with_kernel_root(host.kernel().root()) };
    let tlb = TlbConfig { asids: 8, ..TlbConfig::new(1) };
    let machine =
        HostMachine::with_tlb(&host, host.quicklists().unwrap(), mmu, tlb, Delivery::AtOnce).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let on = machine.on(&pin).unwrap();
    let fenced = || std::mem::take(&mut *log.fences.lock().unwrap());

    let mut space = Space::<Sv39>::new(on).unwrap();
    let area = VirtRange::fixed::<0x40_0000, 0x80_0000>();
    let flags = AreaFlags::READ.with(AreaFlags::WRITE);
    space.edit(on).unwrap().mmap(area, flags, 0).unwrap();
    space.activate(on).unwrap();
    fenced();
    let fault = |space: &mut Space<Sv39>, at| {
        let done = space.fault(on, VirtAddr(at), Access::Write).unwrap();
        (done, fenced())
    };
    // Two tables are linked.
    let (Done::Fresh, fences) = fault(&mut space, 0x40_1000) else { panic!("a first touch") };
    let [(None, asid @ Some(_))] = fences[..] else { panic!("{fences:?}") };
    assert_eq!(fault(&mut space, 0x40_2000), (Done::Fresh, vec![(Some(0x40_2000), asid)]));
    assert_eq!(fault(&mut space, 0x60_0000), (Done::Fresh, vec![(None, asid)]), "one is");
    // Another hart may have linked them.
    assert_eq!(fault(&mut space, 0x40_1000), (Done::Spurious, vec![(None, asid)]));
    space.deactivate(on).unwrap();
    space.end(on).unwrap();
    fenced();

    let at = |page: u64| VirtAddr((1u64 << 22).wrapping_neg() + page * 4096);
    let mut range = host.kernel().claim(on, at(0), 1 << 22).unwrap();
    let attr = Attr(Attr::READ.0 | Attr::ACCESSED.0);
    for (page, want) in [(1, (None, None)), (2, (Some(at(2).0), None))] {
        // SAFETY: 1. nobody uses the memory behind the frame, which the host does not have.
        unsafe { range.map(on, at(page), Pfn(0x10_0000), 1, attr, AllocFlags::NORMAL) }.unwrap();
        assert_eq!(fenced(), [want]);
    }
    let serve = |page, access| (host.kernel().serve_fault(on, at(page), access), fenced());
    assert_eq!(serve(1, Access::Read), (true, vec![(None, None)]));
    assert_eq!(serve(1, Access::Write), (false, vec![]), "it is read-only");
    assert_eq!(serve(3, Access::Read), (false, vec![]));
    assert!(!host.kernel().serve_fault(on, VirtAddr(0x40_1000), Access::Read), "a program's address");
    range.release(on, |_, _| {}).map_err(|(e, _)| e).unwrap();
}
