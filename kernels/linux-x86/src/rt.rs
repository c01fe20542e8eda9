//! A panic handler.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use ptarmigan_kernel::{report, say};
use ptarmigan_kernel_x86::port;

use crate::pc::Pc;

static PANICKING: AtomicBool = AtomicBool::new(false);

/// Reports once. A panic while reporting would report for ever, so it ends the machine in silence.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if !PANICKING.swap(true, Ordering::Relaxed) {
        say!(Pc, "FAIL {info}");
    }
    port::exit(report::FAIL)
}
