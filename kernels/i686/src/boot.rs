//! What the loader says (multiboot): memory, the archive, the command line.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::params;
use ptarmigan_kernel_x86::table::TablePage;

use crate::mmu::{self, DIRECT_MAP, DIRECT_MAP_END};

global_asm!(include_str!("boot.s"));

/// The stack of a CPU. The assembly knows its size.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; 0x10000]>);

// SAFETY: 1. The bytes are only reached through the stack pointer of one CPU.
unsafe impl Sync for Stack {}

#[unsafe(no_mangle)]
static boot_root: TablePage<4> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directory: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_stacks: [Stack; CPUS] = [const { Stack(UnsafeCell::new([0; 0x10000])) }; CPUS];

/// Returns the root that the machine booted on: every other one copies its kernel entry from it.
pub fn kernel_root() -> &'static TablePage<4> {
    &boot_root
}

/// Runs of memory at the most.
pub const RUNS: usize = 16;

/// What the loader says.
pub struct Info {
    /// Memory that is free, ascending.
    pub runs: [MemoryRun; RUNS],
    /// How many runs there are.
    pub run_count: usize,
    /// The initial file system; empty if there is none.
    pub archive: &'static [u8],
    /// The command line.
    pub command_line: &'static [u8],
}

/// The loader's information, as far as it is used.
#[repr(C)]
#[derive(Clone, Copy)]
struct Information {
    flags: u32,
    memory: [u32; 2],
    device: u32,
    command_line: u32,
    module_count: u32,
    modules: u32,
    symbols: [u32; 4],
    map_len: u32,
    map: u32,
}

/// One entry of its map of memory; `size` bytes follow `size` itself.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct MapEntry {
    size: u32,
    start: u64,
    len: u64,
    kind: u32,
}

const HAS_COMMAND_LINE: u32 = 1 << 2;
const HAS_MODULES: u32 = 1 << 3;
const HAS_MAP: u32 = 1 << 6;
const KIND_RAM: u32 = 1;
const PAGE: u64 = 4096;
const COMMAND_LINE: usize = 1024;
/// Frame numbers of the library are 32 bits wide, which PAE's 52-bit addresses exceed.
const HIGHEST: u64 = 1 << 40;

/// Reads the loader's information.
///
/// # Safety
///
/// 1. `information` is what the loader passed at entry, and the memory it describes has not been
///    written to, nor will be where the result refers to it.
pub unsafe fn read(information: u32) -> Info {
    // SAFETY: 1. The loader's structure, in low memory, which the direct map reaches (point 1).
    let info = unsafe { mmu::direct::<Information>(information.into()).read_unaligned() };
    let mut archive: &[u8] = &[];
    let mut taken = (0, 0);
    if info.flags & HAS_MODULES != 0 && info.module_count > 0 {
        // SAFETY: 1. The loader says that there is a module (point 1): its start and its end.
        let [start, end] = unsafe { mmu::direct::<[u32; 2]>(info.modules.into()).read_unaligned() };
        if start < end && u64::from(end) <= DIRECT_MAP_END {
            let bytes = mmu::direct::<u8>(start.into());
            // SAFETY: 1. The module is memory that nothing writes: it is cut out of the runs below.
            archive = unsafe { core::slice::from_raw_parts(bytes, (end - start) as usize) };
            taken = (u64::from(start) & !(PAGE - 1), u64::from(end).next_multiple_of(PAGE));
        }
    }
    let mut command_line: &[u8] = &[];
    if info.flags & HAS_COMMAND_LINE != 0 {
        let text = mmu::direct::<u8>(info.command_line.into());
        // SAFETY: 1. The loader's text ends with a zero, and lies in memory that is not free
        // (point 1).
        let len = (0..COMMAND_LINE).find(|i| unsafe { text.add(*i).read() } == 0).unwrap_or(COMMAND_LINE);
        // SAFETY: 1. As above: `len` bytes were read.
        let whole = unsafe { core::slice::from_raw_parts(text, len) };
        // The first word is the image's name.
        command_line = whole.iter().position(|byte| *byte == b' ').map_or(&[], |at| &whole[at + 1..]);
    }
    if let Some(limit) = low_memory(command_line) {
        // The archive is read where the loader has put it.
        mmu::set_limit(limit.max(taken.1));
    }
    let nothing = MemoryRun { start: PhysAddr(0).pfn(), frames: 0, node: NodeId(0), class: ZoneClass::Low };
    let (mut runs, mut run_count) = ([nothing; RUNS], 0);
    let mut add = |start: u64, end: u64, class: ZoneClass| {
        if start < end
            && let Some(run) = runs.get_mut(run_count)
        {
            let frames = ((end - start) / PAGE) as u32;
            *run = MemoryRun { start: PhysAddr(start).pfn(), frames, class, ..nothing };
            run_count += 1;
        }
    };
    let mut at = 0;
    while info.flags & HAS_MAP != 0 && at < info.map_len {
        // SAFETY: 1. The loader says that there is an entry here (point 1).
        let entry = unsafe { mmu::direct::<MapEntry>((info.map + at).into()).read_unaligned() };
        at += entry.size + 4;
        if entry.kind != KIND_RAM {
            continue;
        }
        // Everything below the image's end is left alone: firmware data, the loader's information,
        // the image.
        let start = entry.start.max(image_end_address()).next_multiple_of(PAGE);
        let end = entry.start.saturating_add(entry.len).min(HIGHEST) & !(PAGE - 1);
        let low_end = end.min(mmu::limit());
        if taken.1 > start && taken.0 < low_end {
            add(start, taken.0, ZoneClass::Low);
            add(taken.1, low_end, ZoneClass::Low);
        } else {
            add(start, low_end, ZoneClass::Low);
        }
        add(start.max(mmu::limit()), end, ZoneClass::High);
    }
    Info { runs, run_count, archive, command_line }
}

/// Returns the bytes that `low=` in the command line says, in MiB: less low memory than the machine
/// has, for trying out what happens when it runs short.
fn low_memory(command_line: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(command_line).ok()?;
    let mib: u64 = params::value(text, "low")?.trim_end_matches('M').parse().ok()?;
    Some(mib << 20)
}

fn image_end_address() -> u64 {
    unsafe extern "C" {
        /// Set by the link script; only its address means anything.
        static image_end: u8;
    }
    (&raw const image_end).addr() as u64 - DIRECT_MAP
}
