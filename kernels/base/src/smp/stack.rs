//! Provides the CPUs' stacks, and measures the stack of a call: it paints the memory below the
//! stack pointer, and looks at it after the call.

use core::arch::asm;

use super::irq;
use crate::raw::Raw;
use crate::tasks::CPUS;

/// Bytes of a stack. The assembly knows it. A release build needs a fiftieth of that; set-up in a
/// build without optimisation puts whole lists on the stack.
const STACK: usize = 0x40000;
/// The most bytes that are painted below the caller of `used`.
const PAINTED: usize = STACK - 0x1000;
const COLOUR: u64 = 0x5eed_ab1e_c01d_cafe;

/// The stacks of CPUs.
#[unsafe(no_mangle)]
static cpu_stacks: Raw<[[u8; STACK]; CPUS]> = Raw::new([[0; STACK]; CPUS]);

/// Instructions: reads the stack pointer; stores a colour from `at` to `end`; advances `at` to the
/// first word that has another one, or to `end`.
#[cfg(target_arch = "riscv64")]
macro_rules! text {
    (pointer) => {
        "mv {}, sp"
    };
    (paint) => {
        "2: sd {colour}, 0({at})\n addi {at}, {at}, 8\n bltu {at}, {end}, 2b"
    };
    (look) => {
        "2: ld {word}, 0({at})\n bne {word}, {colour}, 3f\n addi {at}, {at}, 8\n bltu {at}, {end}, 2b\n 3:"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! text {
    (pointer) => {
        "mov {}, sp"
    };
    (paint) => {
        "2: str {colour}, [{at}], #8\n cmp {at}, {end}\n b.lo 2b"
    };
    (look) => {
        "2: ldr {word}, [{at}]\n cmp {word}, {colour}\n b.ne 3f\n add {at}, {at}, #8\n cmp {at}, {end}\n b.lo 2b\n 3:"
    };
}

fn pointer() -> usize {
    let sp;
    // SAFETY: reading a register has no effect.
    unsafe { asm!(text!(pointer), out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Returns the bytes of stack that `f` takes, and its result. Interrupts should be masked: their
/// handlers count too.
#[inline(never)]
pub fn used<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let bottom = cpu_stacks.get().addr() + irq::cpu() * STACK;
    let sp = pointer();
    // The frame of `used` is above `sp`; no data lies below, as there is no red zone.
    let first = bottom.max(sp.saturating_sub(PAINTED)).next_multiple_of(8);
    // SAFETY: from `first` to `sp` it is this CPU's own stack, and free. One block of assembly, so
    // that no function is called meanwhile.
    unsafe {
        asm!(text!(paint), at = inout(reg) first => _, end = in(reg) sp, colour = in(reg) COLOUR, options(nostack));
    }
    let result = f();
    let mut at = first;
    // SAFETY: as above; read only.
    unsafe {
        asm!(text!(look), at = inout(reg) at, end = in(reg) sp, colour = in(reg) COLOUR, word = out(reg) _, options(nostack));
    }
    (sp - at, result)
}
