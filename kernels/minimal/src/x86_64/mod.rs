//! A PC, booted through PVH. Boot code, exceptions and the serial line are those of the crate
//! `ptarmigan-kernel-x86`.

use ptarmigan::arch::NoIpi;
use ptarmigan::arch::x86_64::X86Mmu;
use ptarmigan::format::Access;
use ptarmigan::frames::MemoryRun;
use ptarmigan_kernel_base::{board, fail};
use ptarmigan_kernel_x86::bare::{DIRECT_MAP, boot, kernel_root, trap};
use ptarmigan_kernel_x86::serial::PC;

pub use ptarmigan::format::X86_64 as Format;
pub use ptarmigan_kernel_x86::bare::{DIRECT_MAP_LIMIT, direct};

/// The architecture.
pub const NAME: &str = "x86_64";

/// The MMU of the one CPU.
pub type Mmu = X86Mmu<Format, NoIpi>;

/// Makes it.
pub fn mmu() -> Mmu {
    X86Mmu::new(NoIpi)
}

/// Where the assembly goes once long mode is on.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    board::use_board(&PC);
    trap::init();
    trap::set_page_fault_hook(Some(|at, error| crate::user::fault(at, access(error))));
    // SAFETY: 1. This is the loader's own pointer, and no memory outside the image has been
    // written.
    let Some(info) = (unsafe { boot::read(start_info) }) else {
        fail(format_args!("the loader described no usable memory"));
    };
    let mut runs = [MemoryRun::new(0..0); boot::RUNS];
    let spans = info.memory.runs();
    runs.iter_mut().zip(spans).for_each(|(run, span)| *run = MemoryRun::new(span.start..span.end));
    crate::start(&runs[..spans.len()], kernel_root().physical(DIRECT_MAP))
}

fn access(error: u64) -> Access {
    match error & (trap::ERROR_WRITE | trap::ERROR_FETCH) {
        0 => Access::Read,
        trap::ERROR_FETCH => Access::Exec,
        _ => Access::Write,
    }
}
