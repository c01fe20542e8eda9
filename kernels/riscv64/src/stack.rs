//! Provides the harts' stacks, and measures the stack of a call: it paints the memory below the
//! stack pointer, and looks at it after the call.

use core::arch::asm;

use ptarmigan_kernel_base::raw::Raw;

use crate::irq;

/// Bytes of a stack. The assembly knows it. A release build needs a fiftieth of that; set-up in a
/// build without optimisation puts whole lists on the stack.
const STACK: usize = 0x40000;
/// The most bytes that are painted below the caller of `used`.
const PAINTED: usize = STACK - 0x1000;
const COLOUR: u64 = 0x5eed_ab1e_c01d_cafe;

/// The stacks of harts.
#[unsafe(no_mangle)]
static hart_stacks: Raw<[[u8; STACK]; irq::HARTS]> = Raw::new([[0; STACK]; irq::HARTS]);

fn pointer() -> usize {
    let sp;
    // SAFETY: reading a register has no effect.
    unsafe { asm!("mv {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Returns the bytes of stack that `f` takes, and its result. Interrupts should be masked: their
/// handlers count too.
#[inline(never)]
pub fn used<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let bottom = hart_stacks.get().addr() + irq::cpu() * STACK;
    let sp = pointer();
    // The frame of `used` is above `sp`; no data lies below, as there is no red zone.
    let first = bottom.max(sp.saturating_sub(PAINTED)).next_multiple_of(8);
    // SAFETY: from `first` to `sp` it is this hart's own stack, and free. One block of assembly, so
    // that no function is called meanwhile.
    unsafe {
        asm!("2: sd {colour}, 0({at})", "addi {at}, {at}, 8", "bltu {at}, {end}, 2b",
            at = inout(reg) first => _, end = in(reg) sp, colour = in(reg) COLOUR, options(nostack));
    }
    let result = f();
    let mut at = first;
    // SAFETY: as above; read only.
    unsafe {
        asm!("2: ld {word}, 0({at})", "bne {word}, {colour}, 3f", "addi {at}, {at}, 8", "bltu {at}, {end}, 2b", "3:",
            at = inout(reg) at, end = in(reg) sp, colour = in(reg) COLOUR, word = out(reg) _, options(nostack));
    }
    (sp - at, result)
}
