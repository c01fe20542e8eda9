//! Measures sparse address spaces on the released crate ostd: makes and drops them, and prints the
//! instructions that one takes, by the source of ostd's single frames.
//!
//! Time is counted in instructions: QEMU's `-icount shift=0` advances the time-stamp counter by one
//! for each. All is one image, so that ostd's own code is the same for all sources.
#![no_std]
#![no_main]

extern crate alloc;

mod data;
mod frames;
mod memory;
mod spaces;
mod tables;

use alloc::sync::Arc;
use core::alloc::Layout;
use core::panic::PanicInfo;

use osdk_heap_allocator::{HeapAllocator, type_from_layout};
use ostd::boot::EarlyCmdline;
use ostd::early_println;
use ostd::log::LevelFilter;
use ostd::mm::heap::SlotInfo;
use ostd::power::{ExitCode, poweroff};
use ostd::task::{Task, TaskOptions};

use frames::Shared;

#[ostd::global_frame_allocator]
static FRAMES: Shared = Shared::new();

#[ostd::global_heap_allocator]
static HEAP: HeapAllocator = HeapAllocator;

#[ostd::global_heap_allocator_slot_map]
const fn heap_slot(layout: Layout) -> Option<SlotInfo> {
    type_from_layout(layout)
}

#[ostd::early_cmdline_parser]
const fn early(_: &str) -> EarlyCmdline {
    EarlyCmdline { log_level: LevelFilter::Error, has_early_console: true }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    early_println!("FAIL {}", info);
    poweroff(ExitCode::Failure)
}

#[ostd::main]
fn main() {
    // Grace periods end where tasks are switched, so there are two.
    start(|| {
        start(|| {
            loop {
                Task::yield_now();
            }
        });
        spaces::run();
        early_println!("PASS");
        poweroff(ExitCode::Success)
    });
}

/// Adds a task to those that run.
fn start(task: impl FnOnce() + Send + 'static) {
    match TaskOptions::new(task).data(()).build() {
        Ok(task) => Arc::new(task).run(),
        Err(e) => panic!("no task: {e:?}"),
    }
}
