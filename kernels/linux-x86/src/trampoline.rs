//! The start of the other CPUs.

use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel_x86::smp::{self, Trampoline};

use crate::mmu;
use crate::pc::Pc;

/// Where the trampoline is copied to.
const PAGE: u8 = 8;

/// Starts the CPUs from 1 to `cpus - 1`; the boot root's lower half is gone then.
pub fn start_cpus(cpus: usize) {
    unsafe extern "C" {
        static trampoline: u8;
        static trampoline_end: u8;
        static trampoline_cpu: u8;
    }
    let code = &raw const trampoline;
    let len = (&raw const trampoline_end).addr() - code.addr();
    let cpu_at = (&raw const trampoline_cpu).addr() - code.addr();
    let target = mmu::direct::<u8>(u64::from(PAGE) << 12);
    let parts = Trampoline { code, len, cpu_at, page: PAGE, target };
    // SAFETY: 1. The code, its end and the place of the number are symbols of one block of the
    // assembly, which is written for this page. 2. Memory below 1 MiB is no frame of the library.
    if let Err(cpu) = unsafe { smp::start(cpus, &parts) } {
        refuse::<Pc>(format_args!(
            "CPU {cpu} of {cpus} does not start: their controllers have to be numbered from 0 \
             without gaps, in QEMU with one socket (-smp {cpus},sockets=1), or start with fewer CPUs"
        ));
    }
    mmu::drop_identity();
}
