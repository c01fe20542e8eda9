//! Exceptions: the user's registers, why the user stopped, and pages of the kernel's own that the
//! hash table does not hold.

use core::arch::global_asm;
use core::ptr;

use ptarmigan::format::Access;

use ptarmigan_kernel_base::direct::physical;
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::tasks::{self, Trap};

use super::machine;

global_asm!(include_str!("trap.s"));

/// The user's registers while the kernel runs, and the cause of the trap. The assembly knows the
/// layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    r: [u32; 32],
    pc: u32,
    cr: u32,
    lr: u32,
    ctr: u32,
    xer: u32,
    kernel_sp: u32,
    vector: u32,
    srr1: u32,
    dar: u32,
    dsisr: u32,
    f: [u64; 32],
    fpscr: u64,
}

/// Vectors.
const DATA: u32 = 0x300;
const INSTRUCTION: u32 = 0x400;
const CALL: u32 = 0xc00;

/// In DSISR, and in SRR1 for instructions: the hash table has no entry, or the entry does not allow
/// it.
const MISSED: u32 = 1 << 30;
const PROTECTED: u32 = 1 << 27;
/// In DSISR: a store.
const STORE: u32 = 1 << 25;

/// A page that was missed, or one that does not allow the access.
fn page(at: u32, bits: u32, access: Access) -> Trap {
    match bits & (MISSED | PROTECTED) {
        0 => Trap::Other,
        why => Trap::Page { at: at.into(), access, protected: why & PROTECTED != 0 },
    }
}

fn data(dar: u32, dsisr: u32) -> Trap {
    page(dar, dsisr, if dsisr & STORE != 0 { Access::Write } else { Access::Read })
}

impl tasks::Registers for Registers {
    const ZERO: Registers = Registers {
        r: [0; 32],
        pc: 0,
        cr: 0,
        lr: 0,
        ctr: 0,
        xer: 0,
        kernel_sp: 0,
        vector: 0,
        srr1: 0,
        dar: 0,
        dsisr: 0,
        f: [0; 32],
        fpscr: 0,
    };

    fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self {
        let mut registers = Registers { pc: pc as u32, ..Registers::ZERO };
        // Room for the word of the caller's frame that the first function writes.
        registers.r[1] = sp as u32 - 16;
        registers.r[3..6].copy_from_slice(&arguments.map(|argument| argument as u32));
        registers
    }

    fn call(&self) -> u64 {
        self.r[0].into()
    }

    fn arguments(&self) -> [u64; 3] {
        [self.r[3], self.r[4], self.r[5]].map(u64::from)
    }

    fn set_result(&mut self, value: u64) {
        self.r[3] = value as u32;
    }
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers, physical: u32);
    fn probe_load(at: u32, value: *mut u32) -> u32;
    fn probe_store(at: u32, value: u32) -> u32;
    /// Defined by `trap.s`: the instructions that may fail, and where they go on then.
    static probe_load_at: u8;
    static probe_store_at: u8;
    static probe_failed: u8;
}

/// Runs the user until it stops. The space is loaded.
pub fn enter(registers: &mut Registers) -> Trap {
    let at = ptr::from_mut(registers);
    // SAFETY: user mode reaches only memory that its space maps for it; the assembly preserves the
    // registers that the compiler expects. `registers` is in the direct map, as all of the kernel's
    // memory.
    unsafe { enter_user(at, physical(at) as u32) };
    match registers.vector {
        CALL => Trap::Call,
        DATA => data(registers.dar, registers.dsisr),
        INSTRUCTION => page(registers.pc, registers.srr1, Access::Exec),
        _ => Trap::Other,
    }
}

/// Reads an address of the kernel's half; `None` if the access is not allowed.
///
/// # Safety
///
/// 1. Memory that is mapped there may be read.
pub unsafe fn load(at: u32) -> Option<u32> {
    let mut value = 0;
    // SAFETY: point 1 of the caller's; the handler knows the instruction.
    (unsafe { probe_load(at, &raw mut value) } == 1).then_some(value)
}

/// Has the kernel write at an address of its half; whether it may.
///
/// # Safety
///
/// 1. Memory that is mapped there may be written to.
pub unsafe fn store(at: u32, value: u32) -> bool {
    // SAFETY: point 1 of the caller's; the handler knows the instruction.
    unsafe { probe_store(at, value) == 1 }
}

/// Called by the assembly for an exception in the kernel; where the kernel goes on.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(vector: u32, dar: u32, dsisr: u32, pc: u32, srr1: u32) -> u32 {
    if vector == DATA
        && let Trap::Page { access, protected, .. } = data(dar, dsisr)
    {
        if machine::refill_kernel(dar, access, protected) {
            return pc;
        }
        if pc == (&raw const probe_load_at).addr() as u32 || pc == (&raw const probe_store_at).addr() as u32 {
            return (&raw const probe_failed).addr() as u32;
        }
    }
    fail(format_args!(
        "exception {vector:#x} in the kernel, address {dar:#x}, {dsisr:#x}, pc {pc:#x}, {srr1:#x}"
    ))
}
