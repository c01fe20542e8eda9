//! A kernel image that runs page tables on a real x86-64 MMU (QEMU's, which keeps stale
//! translations as hardware does), one CPU, booted through PVH.
//!
//! Layout of every address space: slots 0 to 255 of the root table are the user's, and empty; slot
//! 256 is the direct map of the low 4 GiB, and the image is linked into it. A new root table copies
//! slots 256 to 511 from [`boot::kernel_top`].
#![no_std]
#![no_main]

mod areas;
mod boot;
mod exit;
mod library;
mod machine;
mod mmu;
mod rt;
mod selftest;
mod serial;
mod trap;

use ptarmigan_kernel_mailbox as mailbox;

/// Where the assembly goes once long mode is on.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(start_info: u64) -> ! {
    trap::init();
    say!("long mode, paging on, traps ready");
    // SAFETY: this is the loader's own pointer, and nothing has been written outside the image.
    let Some(region) = (unsafe { boot::largest_region(start_info) }) else {
        panic!("the loader described no usable memory");
    };
    say!("memory: {} KiB at {:#x}", region.len >> 10, region.start);

    // SAFETY: as above.
    let has = |word| unsafe { boot::has_word(start_info, word) };
    let (announces, without_flush) = (has(mailbox::WORD), has("without=flush"));

    selftest::run(region);
    if announces {
        boot::announce();
    }
    if without_flush {
        machine::leave_flushes_out();
    }
    library::run(region);

    say!("PASS");
    exit::exit(exit::Outcome::Pass)
}
