//! The library's view of this machine: one CPU, one node, all memory in the direct map, frames to
//! spare.

use core::sync::atomic::{AtomicBool, Ordering};

use ptarmigan::arch::NoIpi;
use ptarmigan::arch::x86_64::{Cpu, Features, Instructions, Invpcid, X86Mmu};
use ptarmigan::bootmem::BootMemory;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::X86_64;
use ptarmigan::frames::MemoryRun;
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::setup::{Kernel, NoObjects, Setup};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::{Failed, fail, machine};
use ptarmigan_kernel_mailbox::{self as mailbox, Announced};
use ptarmigan_kernel_x86::bare::{DIRECT_MAP, DIRECT_MAP_LIMIT, direct, kernel_root, trap};
use ptarmigan_kernel_x86::memory_map::Span;

/// All parts together, whose tables a recorder is told of.
pub type AnnouncedMachine = machine::Machine<X86_64, OneCpu, NoObjects, Announced<'static, X86_64, ()>>;

/// The MMU of the one CPU, which has no other to interrupt.
pub type OneCpu = X86Mmu<X86_64, NoIpi, AnnouncedCpu>;

/// Bytes of boot memory for the image's own objects: areas of the kernel's half.
const EXTRA: usize = 64 << 10;

static KERNEL: Kernel<X86_64, DirectMap, OneCpu> = Kernel::new();

/// Flushes are left out on purpose: a run in which they are must fail.
static WITHOUT_FLUSH: AtomicBool = AtomicBool::new(false);

/// Leaves all flushes out from here on.
pub fn leave_flushes_out() {
    WITHOUT_FLUSH.store(true, Ordering::Relaxed);
}

/// Tells the recorder, if there is one, the operand of the next instruction of address translation.
/// Interrupts are never enabled.
fn operand(value: u64) {
    mailbox::send(0, mailbox::code::OPERAND, [value, 0, 0, 0]);
}

/// The instructions of the CPU, announced to a recorder.
pub struct AnnouncedCpu;

// SAFETY: Each function has the CPU execute the instruction. A run that leaves flushes out omits it
// on purpose, to show that the checks detect stale translations.
unsafe impl Instructions for AnnouncedCpu {
    fn invlpg(&self, pin: &Pinned<'_>, at: u64) {
        if !WITHOUT_FLUSH.load(Ordering::Relaxed) {
            operand(at);
            Cpu.invlpg(pin, at);
        }
    }

    fn invpcid(&self, pin: &Pinned<'_>, what: Invpcid) {
        if !WITHOUT_FLUSH.load(Ordering::Relaxed) {
            Cpu.invpcid(pin, what);
        }
    }

    fn cr3(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.cr3(pin)
    }

    unsafe fn load_cr3(&self, pin: &Pinned<'_>, value: u64) {
        // The root that is loaded already: a flush.
        if WITHOUT_FLUSH.load(Ordering::Relaxed) && value == Cpu.cr3(pin) {
            return;
        }
        operand(value);
        // SAFETY: 1. of the caller's.
        unsafe { Cpu.load_cr3(pin, value) };
    }

    fn cr4(&self, pin: &Pinned<'_>) -> u64 {
        Cpu.cr4(pin)
    }

    fn toggle_pge(&self, pin: &Pinned<'_>) {
        if !WITHOUT_FLUSH.load(Ordering::Relaxed) {
            Cpu.toggle_pge(pin);
        }
    }
}

/// Sets the library up on memory; returns the machine, and boot memory for areas.
///
/// # Safety
///
/// 1. Nobody else uses the memory, now or later.
pub unsafe fn set_up(memory: Span) -> Result<(AnnouncedMachine, BootMemory), Failed> {
    // SAFETY: 1. The kernel sets neither CR4.PGE nor CR4.PCIDE. 2. It is false.
    let mmu = unsafe { X86Mmu::with_features(NoIpi, AnnouncedCpu, Features::NONE) };
    let runs = [MemoryRun::new(memory.start..memory.end)];
    let setup = Setup::direct_map(&runs, direct(0), DIRECT_MAP_LIMIT, mmu)?
        .kernel_root(kernel_root().physical(DIRECT_MAP))
        .extra(EXTRA);
    // SAFETY: 1. Point 1 of the caller's. 2. The direct map covers it in every space, and
    // the image. 3. The table that the machine booted on maps no page of the user's, and the tables
    // that it links are statics.
    let boot = unsafe { KERNEL.set_up(setup)? };
    let Some(parts) = KERNEL.parts() else { fail(format_args!("used before it was set up")) };
    Ok((AnnouncedMachine::new(parts, Announced::new(parts.frames(), || ())), boot))
}

/// Proof of being on the one CPU.
pub fn pin(machine: &AnnouncedMachine) -> Pinned<'static> {
    // SAFETY: 1. There is one CPU and one thread, which goes on only after an exception handler has
    // returned. 2. The machine has one CPU and one node.
    unsafe { Pinned::assume(machine.id(), CpuId(0), NodeId(0)) }
}

/// The machine, seen from its CPU.
pub fn here<'a>(machine: &'a AnnouncedMachine, pin: &'a Pinned<'a>) -> On<'a, AnnouncedMachine> {
    machine.here(pin)
}

/// Reads a word of the tests' own; `None` if it is not mapped.
pub fn read(address: u64) -> Option<u64> {
    // SAFETY: a page of a test's, which holds integers, or a page that must be unmapped.
    unsafe { trap::read(address) }
}

/// Writes a word of the tests' own; whether it may be written to.
pub fn write(address: u64, value: u64) -> bool {
    // SAFETY: as above.
    unsafe { trap::write(address, value) }
}
