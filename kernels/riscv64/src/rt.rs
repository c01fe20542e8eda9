//! How a run ends that went wrong.

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::serial::{self, Outcome};

static ENDING: AtomicBool = AtomicBool::new(false);

/// The run has failed: says why, once, and ends the machine.
pub fn fail(why: fmt::Arguments<'_>) -> ! {
    if !ENDING.swap(true, Ordering::Relaxed) {
        serial::last_line(format_args!("FAIL {why}"));
        serial::exit(Outcome::Fail);
    }
    // Another hart is about to end the machine, or reporting has failed itself.
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    fail(format_args!("{info}"))
}
