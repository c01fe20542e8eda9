//! The kernel on QEMU's board `virt`: Linux programs on one or more CPUs.
//!
//! [`arch`] is the directory of the target: its entry and traps, its MMUs, its registers.
#![no_std]
#![no_main]

#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
#[cfg_attr(target_arch = "riscv64", path = "riscv64/mod.rs")]
mod arch;
mod context;
mod virt;

use ptarmigan::frames::MemoryRun;
use ptarmigan::setup::Setup;
use ptarmigan_kernel::Kernel;
use ptarmigan_kernel::memory::setup::set_up;
use ptarmigan_kernel::params::{self, CommandLine, value};
use ptarmigan_kernel_base::direct::{DIRECT_MAP_LIMIT, direct, physical};
use ptarmigan_kernel_base::{Failed, board, fail, fdt, say, smp};

use crate::virt::Virt;

ptarmigan_kernel_base::panic_handler!();

const PAGE: u64 = 4096;
/// ASIDs that are used at most, of those that CPUs have.
const ASIDS: u16 = 64;

/// The kernel.
static KERNEL: Kernel<Virt> = Kernel::new();

/// Begins on the first CPU, whose number the firmware has as `id`. The device tree is at `tree`.
fn begin(id: u64, tree: u64) -> ! {
    board::use_board(&arch::VIRT);
    arch::listen();
    let Ok(()) = start(id, tree);
    KERNEL.run()
}

/// Begins on another CPU.
fn begin_other() -> ! {
    arch::init_cpu();
    smp::up();
    KERNEL.run()
}

/// Sets the machine up, and starts the other CPUs and process 1.
fn start(id: u64, tree: u64) -> Result<(), Failed> {
    // SAFETY: 1. The board or its firmware has put it there; it is read before the library gets the
    // memory.
    let Some(board) = (unsafe { fdt::read(direct(tree)) }) else {
        fail(format_args!("the board has no device tree"));
    };
    let (command_line, misread) = CommandLine::read(board.arguments.as_bytes());
    if let Some(misread) = misread {
        say!("kernel: command line: {misread}the rest is taken");
    }
    let text = command_line.text();
    let params = params::library(text, |e| say!("kernel: command line: {e}; it is left out"));
    let end = (board.memory + board.bytes).min(DIRECT_MAP_LIMIT);
    let first = physical(&raw const image_end).next_multiple_of(PAGE);
    let (archive_at, archive_end) = archive(board.arguments, first, end);
    let runs = [MemoryRun::new(first..archive_at), MemoryRun::new(archive_end..end)];
    // A run has frames.
    let runs = runs.get(usize::from(runs[0].frames == 0)..).unwrap_or_default();
    let runs = runs.get(..runs.len() - usize::from(runs.last().is_some_and(|run| run.frames == 0)));
    let setup = Setup::direct_map(runs.unwrap_or_default(), direct(0), DIRECT_MAP_LIMIT, arch::hardware())?;
    let setup = arch::kernel_half(setup).asids(arch::asids().min(ASIDS)).costs(arch::COSTS);
    // SAFETY: 1. The board says that it is memory; the image and the archive are left out, and the
    // direct map reaches it. 2. The other CPUs have not been started. 3. `kernel_half` says so.
    unsafe { set_up(&KERNEL, board.cpus, setup.parsed(&params), text)? };
    say!("kernel: {} CPUs, 1 node, page tables of {} on the library", board.cpus, arch::TABLES);
    let archive = direct::<u8>(archive_at).cast_const();
    // SAFETY: 1. The bytes are in the direct map, and no code writes to them.
    let archive = unsafe { core::slice::from_raw_parts(archive, (archive_end - archive_at) as usize) };
    arch::init_cpu();
    KERNEL.start(archive, &command_line);
    // The first CPU need not be one of those that the tree names first.
    let others = board.cpu_ids.iter().take(board.cpus).filter(|other| **other != id);
    for (n, other) in others.take(board.cpus - 1).enumerate() {
        arch::start_cpu(n + 1, *other);
    }
    smp::wait_until_up(board.cpus);
    Ok(())
}

/// Returns where the initial file system begins and ends: `initrd=ADDRESS,BYTES` on the command
/// line, as Linux has it. It is empty, and at the end of memory, without such a word.
fn archive(text: &str, first: u64, end: u64) -> (u64, u64) {
    let Some(place) = value(text, "initrd") else { return (end, end) };
    let place = place.split_once(',').and_then(|(at, bytes)| {
        let at = u64::from_str_radix(at.strip_prefix("0x")?, 16).ok()?;
        Some((at, at.checked_add(bytes.parse().ok()?)?))
    });
    let Some((at, archive_end)) = place else {
        fail(format_args!("the initial file system: write initrd=ADDRESS,BYTES on the command line"));
    };
    if at < first || archive_end > end {
        fail(format_args!(
            "the initial file system, at {at:#x} to {archive_end:#x}, is not in memory behind the image, at \
             {first:#x} to {end:#x}: give the machine more"
        ));
    }
    (at, archive_end)
}

unsafe extern "C" {
    /// Set by the link script; only its address means anything.
    static image_end: u8;
}
