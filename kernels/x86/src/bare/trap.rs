//! Exceptions. Page faults go to a hook; those it declines are fixed up if they come from a probe;
//! everything else ends the run.
//!
//! ```text
//!  page fault ──> IN_PAGE_FAULT = true ──> HOOK: acquire ── served ──> iret
//!                  │ already true: ends      └─ declined ── a probe? ── yes ──> probe_failed
//!  others ──> report, end of the run                         └─ no ──> report, end of the run
//! ```
//!
//! # Why
//!
//! The vectors run on three stacks: page faults on one, double faults on one, the rest on the
//! third, so that a fault inside the page-fault hook is reported instead of overwriting the
//! interrupted frame. The hook itself must not fault on a page: that would reuse the stack it
//! stands on, and ends the run.

use core::arch::{asm, global_asm};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::segments::{OfCpu, TaskState, gate, load_vectors, task_descriptor};

global_asm!(include_str!("../stubs.s"), include_str!("trap.s"));

/// A page-fault hook: address and error code; true means "mapped, try again".
pub type PageFaultHook = fn(u64, u64) -> bool;

/// Error code bit: the page was present, and the access broke its protection.
pub const ERROR_PROTECTION: u64 = 1;
/// Error code bit: the access was a write.
pub const ERROR_WRITE: u64 = 1 << 1;
/// Error code bit: the access was an instruction fetch.
pub const ERROR_FETCH: u64 = 1 << 4;

static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static IN_PAGE_FAULT: AtomicBool = AtomicBool::new(false);
static PAGE_FAULTS: AtomicU64 = AtomicU64::new(0);
static LAST_ADDRESS: AtomicU64 = AtomicU64::new(0);
static LAST_ERROR: AtomicU64 = AtomicU64::new(0);

/// Sets the function that handles page faults from now on; `None` removes it.
pub fn set_page_fault_hook(hook: Option<PageFaultHook>) {
    let pointer = hook.map_or(ptr::null_mut(), |h| h as *mut ());
    HOOK.store(pointer, Ordering::Release);
}

/// Page faults taken since boot.
pub fn page_faults() -> u64 {
    PAGE_FAULTS.load(Ordering::Relaxed)
}

/// Address and error code of the last page fault.
pub fn last_page_fault() -> (u64, u64) {
    (LAST_ADDRESS.load(Ordering::Relaxed), LAST_ERROR.load(Ordering::Relaxed))
}

/// Reads a word that may not be mapped. `None`: it faulted and the hook did not help.
///
/// # Safety
///
/// If the address is mapped, reading it is harmless.
pub unsafe fn read(address: u64) -> Option<u64> {
    let mut value = 0;
    // SAFETY: the fault of this one instruction is expected; `value` is ours.
    let failed = unsafe { probe_read(address, &raw mut value) };
    (failed == 0).then_some(value)
}

/// Writes a word that may not be mapped. False: it faulted and the hook did not help.
///
/// # Safety
///
/// If the address is mapped, the caller must be the word's only user.
pub unsafe fn write(address: u64, value: u64) -> bool {
    // SAFETY: the fault of this one instruction is expected.
    unsafe { probe_write(address, value) == 0 }
}

unsafe extern "C" {
    fn probe_read(address: u64, value: *mut u64) -> u64;
    fn probe_write(address: u64, value: u64) -> u64;
    static probe_read_at: u8;
    static probe_write_at: u8;
    static probe_failed: u8;
    static trap_stubs: u8;
}

/// Registers that the stub saved, lowest address first.
#[repr(C)]
struct Frame {
    registers: [u64; 11],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

const PAGE_FAULT: u64 = 14;

/// Called by the stub. The frame is on the trap's own stack and nobody else's.
#[unsafe(no_mangle)]
extern "C" fn trap_entry(frame: &mut Frame) {
    if frame.vector != PAGE_FAULT {
        panic!(
            "exception {} error={:#x} rip={:#x} rsp={:#x}",
            frame.vector, frame.error, frame.rip, frame.rsp
        );
    }
    let address: u64;
    // SAFETY: reading the register has no effect.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    if IN_PAGE_FAULT.swap(true, Ordering::Relaxed) {
        panic!("page fault at {address:#x} inside the page-fault hook, rip={:#x}", frame.rip);
    }
    PAGE_FAULTS.fetch_add(1, Ordering::Relaxed);
    LAST_ADDRESS.store(address, Ordering::Relaxed);
    LAST_ERROR.store(frame.error, Ordering::Relaxed);
    if !call_hook(address, frame.error) {
        let probes = [(&raw const probe_read_at).addr(), (&raw const probe_write_at).addr()];
        if !probes.contains(&(frame.rip as usize)) {
            panic!("page fault at {address:#x} error={:#x} rip={:#x}", frame.error, frame.rip);
        }
        frame.rip = (&raw const probe_failed).addr() as u64;
    }
    IN_PAGE_FAULT.store(false, Ordering::Relaxed);
}

fn call_hook(address: u64, error: u64) -> bool {
    let hook = HOOK.load(Ordering::Acquire);
    if hook.is_null() {
        return false;
    }
    // SAFETY: the pointer is not null, so `set_page_fault_hook` stored it, and it was a function of
    // this type.
    let hook: PageFaultHook = unsafe { core::mem::transmute::<*mut (), PageFaultHook>(hook) };
    hook(address, error)
}

const STACK: usize = 0x4000;

// There is one CPU: `init` writes them before traps can happen, afterwards only the CPU itself.
static STACKS: OfCpu<[[u8; STACK]; 3]> = OfCpu::new([[0; STACK]; 3]);
static TSS: OfCpu<TaskState> = OfCpu::new([0; 26]);
static IDT: OfCpu<[[u64; 2]; 32]> = OfCpu::new([[0; 2]; 32]);

unsafe extern "C" {
    static mut tss_descriptor: [u64; 2];
}

/// The interrupt stack a vector runs on: 1, 2 or 3.
fn stack_of(vector: u64) -> u64 {
    match vector {
        PAGE_FAULT => 1,
        8 => 2,
        _ => 3,
    }
}

/// Sets the trap tables up. Called once, first of all.
pub fn init() {
    let (tss, idt) = (TSS.get(), IDT.get());
    let stubs = (&raw const trap_stubs).addr() as u64;
    // SAFETY: no other code runs yet and traps are not set up, so the statics are ours; the indices
    // are constants within bounds.
    unsafe {
        for stack in 0..3 {
            let top = STACKS.get().addr() as u64 + ((stack + 1) * STACK) as u64;
            // Interrupt stack 1 is at byte 36.
            (*tss)[9 + 2 * stack] = top as u32;
            (*tss)[10 + 2 * stack] = (top >> 32) as u32;
        }
        for vector in 0..32_u64 {
            (*idt)[vector as usize] = gate(stubs + vector * 16, stack_of(vector), 0);
        }
        tss_descriptor = task_descriptor(tss.addr() as u64);
    }
    // SAFETY: 1. It has just been filled in, and is a static. 2. Selector 0x18 is the descriptor
    // just filled in, of a static.
    unsafe { load_vectors(idt, 0x18) };
}
