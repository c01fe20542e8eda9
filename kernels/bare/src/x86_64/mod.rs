//! A kernel that runs page tables on a real x86-64 MMU (QEMU's, which keeps stale
//! translations as hardware does), one CPU, booted through PVH.
//!
//! Layout of every address space: slots 0 to 255 of the root table are the user's, and empty; slot
//! 256 is the direct map of the low 4 GiB, and the image is linked into it. A new root table copies
//! slots 256 to 511 from [`boot::kernel_top`](ptarmigan_kernel_x86::bare::boot::kernel_top).

mod areas;
mod library;
mod machine;
mod selftest;

use ptarmigan_kernel_base::{board, fail, pass, say};
use ptarmigan_kernel_mailbox as mailbox;
use ptarmigan_kernel_x86::bare::{boot, shared_tables, trap};
use ptarmigan_kernel_x86::serial::PC;

/// Where the assembly goes once long mode is on.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    board::use_board(&PC);
    trap::init();
    say!("long mode, paging on, traps ready");
    // SAFETY: 1. This is the loader's own pointer, and no memory outside the image has been
    // written.
    let info = unsafe { boot::read(start_info) };
    let largest = info.as_ref().and_then(|info| info.memory.runs().iter().max_by_key(|run| run.bytes()));
    let (Some(info), Some(memory)) = (&info, largest) else {
        fail(format_args!("the loader described no usable memory"));
    };
    say!("memory: {} KiB at {:#x}", memory.bytes() >> 10, memory.start);
    // The command line may lie in memory that is written to from here on.
    let [announces, without_flush] = [mailbox::WORD, "without=flush"].map(|word| info.has_word(word));

    selftest::run(*memory);
    if announces {
        mailbox::begin(0);
        shared_tables().for_each(|(at, level)| mailbox::fixed_table(0, at, level));
    }
    if without_flush {
        machine::leave_flushes_out();
    }
    library::run(*memory);
    pass()
}
