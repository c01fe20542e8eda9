//! To user mode and back, and exceptions in the kernel.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use ptarmigan::format::Access;
use ptarmigan_kernel_base::aarch64::{clock, irq};
use ptarmigan_kernel_base::fail;
use ptarmigan_kernel_base::smp::kernel_half;
use ptarmigan_kernel_base::tasks::{self, Trap};

use crate::machine;

global_asm!(include_str!("trap.s"));

/// The user's registers while the kernel runs. The assembly knows the layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers {
    x: [u64; 31],
    sp: u64,
    pc: u64,
    spsr: u64,
    fpcr: u64,
    fpsr: u64,
    q: [u128; 32],
}

/// The register that has the number of a call.
const NUMBER: usize = 8;

impl tasks::Registers for Registers {
    const ZERO: Registers = Registers { x: [0; 31], sp: 0, pc: 0, spsr: 0, fpcr: 0, fpsr: 0, q: [0; 32] };

    fn at(pc: u64, sp: u64, arguments: [u64; 3]) -> Self {
        let mut registers = Registers { pc, sp, ..Registers::ZERO };
        registers.x[..3].copy_from_slice(&arguments);
        registers
    }

    fn call(&self) -> u64 {
        self.x[NUMBER]
    }

    fn arguments(&self) -> [u64; 3] {
        [self.x[0], self.x[1], self.x[2]]
    }

    fn set_result(&mut self, value: u64) {
        self.x[0] = value;
    }
}

/// Causes that the assembly tells apart.
const SYNCHRONOUS: u64 = 0;
const INTERRUPT: u64 = 1;

/// The syndrome of a synchronous exception, and the address of a fault.
struct Syndrome {
    esr: u64,
    far: u64,
}

/// Classes of exceptions (Arm ARM, "ESR_EL1").
const CALL: u64 = 0x15;
const FETCH: u64 = 0x20;
const DATA: u64 = 0x24;
const DATA_OF_KERNEL: u64 = 0x25;
/// Of a data abort: a store; an instruction on caches, which says that it is a store.
const STORE: u64 = 1 << 6;
const CACHES: u64 = 1 << 8;

impl Syndrome {
    /// Reads that of this CPU's last exception.
    fn read() -> Self {
        let (esr, far);
        // SAFETY: reading the registers has no effect.
        unsafe {
            asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) far,
                options(nomem, nostack, preserves_flags));
        }
        Syndrome { esr, far }
    }

    fn class(&self) -> u64 {
        self.esr >> 26
    }

    /// The kind of a fault: 1 for no translation, 2 for one that was not accessed, 3 for a denial.
    fn fault(&self) -> u64 {
        self.esr >> 2 & 0xf
    }

    fn trap(&self) -> Trap {
        let access = match self.class() {
            CALL => return Trap::Call,
            FETCH => Access::Exec,
            DATA if self.esr & (STORE | CACHES) == STORE => Access::Write,
            DATA => Access::Read,
            _ => return Trap::Other,
        };
        match self.fault() {
            1..=3 => Trap::Page { at: self.far, access, protected: false },
            _ => Trap::Other,
        }
    }
}

unsafe extern "C" {
    fn enter_user(registers: *mut Registers) -> u64;
}

/// Runs the user until it traps. The space is loaded; interrupts are masked.
pub fn enter(registers: &mut Registers) -> Trap {
    clock::allow();
    // SAFETY: user mode reaches only memory that its space maps for it; the assembly preserves the
    // registers that the compiler expects.
    match unsafe { enter_user(registers) } {
        SYNCHRONOUS => Syndrome::read().trap(),
        _ if clock::is_due() => Trap::Timer,
        _ => Trap::Interrupt,
    }
}

/// Answers other CPUs, if one has sent an interrupt.
pub fn answer() {
    if irq::take_software() {
        machine::answer();
    }
}

/// Interrupts from other CPUs that came while the library was at work for a task.
static SOFTWARE_IN_CALLS: AtomicU64 = AtomicU64::new(0);

/// Says how many interrupts from other CPUs came while the library was at work for a task.
pub fn software_in_calls() -> u64 {
    SOFTWARE_IN_CALLS.load(Ordering::Relaxed)
}

/// Called by the assembly for an exception in the kernel.
#[unsafe(no_mangle)]
extern "C" fn kernel_trap(cause: u64) {
    if cause == INTERRUPT {
        if clock::is_due() {
            // The time slice is over: the task is preempted as soon as it is entered again.
            return clock::hold();
        }
        SOFTWARE_IN_CALLS.fetch_add(1, Ordering::Relaxed);
        return answer();
    }
    let syndrome = Syndrome::read();
    let Syndrome { esr, far } = syndrome;
    // Between the break of its entry and the new one, the page has no translation: once more.
    let changes = cause == SYNCHRONOUS && syndrome.class() == DATA_OF_KERNEL && syndrome.fault() == 1;
    if !changes || far != kernel_half::PAGE {
        fail(format_args!("exception {cause} in the kernel: ESR {esr:#x}, address {far:#x}"));
    }
}
