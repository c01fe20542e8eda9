//! What the loader says: memory, the archive, the command line.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel_x86::acpi::{self, Nodes};
use ptarmigan_kernel_x86::table::TablePage;

use crate::mmu::{self, DIRECT_MAP, DIRECT_MAP_LIMIT};

global_asm!(include_str!("boot.s"));

/// The stack of a CPU. The assembly knows its size.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; 0x10000]>);

// SAFETY: 1. The bytes are only reached through the stack pointer of one CPU.
unsafe impl Sync for Stack {}

#[unsafe(no_mangle)]
static boot_top: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_upper: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directories: [TablePage<512>; 4] = [const { TablePage::new() }; 4];
#[unsafe(no_mangle)]
static boot_stacks: [Stack; CPUS] = [const { Stack(UnsafeCell::new([0; 0x10000])) }; CPUS];

/// Returns the root that the machine booted on: every other one copies its kernel entries from it.
pub fn kernel_top() -> &'static TablePage<512> {
    &boot_top
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
    /// Which memory and which CPUs are on which node.
    pub nodes: Nodes,
}

/// The loader's start information (PVH).
#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// One entry of its memory map.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapEntry {
    start: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

/// One entry of its list of modules.
#[repr(C)]
#[derive(Clone, Copy)]
struct Module {
    start: u64,
    len: u64,
    command_line: u64,
    reserved: u64,
}

const START_MAGIC: u32 = 0x336e_c578;
const KIND_RAM: u32 = 1;
const PAGE: u64 = 4096;
const COMMAND_LINE: usize = 1024;

/// Reads the start information; `None` if it is none, or has no map of memory.
///
/// # Safety
///
/// 1. `start_info` is what the loader passed at entry, and the memory it describes has not been
///    written to, nor will be where the result refers to it.
pub unsafe fn read(start_info: u64) -> Option<Info> {
    // SAFETY: 1. The loader's structure, in low memory, which the direct map reaches (point 1).
    let info = unsafe { mmu::direct::<StartInfo>(start_info).read_unaligned() };
    if info.magic != START_MAGIC || info.version == 0 {
        return None;
    }
    let mut archive: &[u8] = &[];
    let (mut taken_start, mut taken_end) = (0, 0);
    if info.modules > 0 {
        // SAFETY: 1. The loader says that there is a module (point 1).
        let module = unsafe { mmu::direct::<Module>(info.module_list).read_unaligned() };
        let end = module.start.checked_add(module.len)?;
        if end <= DIRECT_MAP_LIMIT {
            // SAFETY: 1. The module is memory that nothing writes: it is cut out of the runs below.
            archive =
                unsafe { core::slice::from_raw_parts(mmu::direct::<u8>(module.start), module.len as usize) };
            (taken_start, taken_end) = (module.start & !(PAGE - 1), end.next_multiple_of(PAGE));
        }
    }
    let mut command_line: &[u8] = &[];
    if info.command_line != 0 {
        let text = mmu::direct::<u8>(info.command_line);
        // SAFETY: 1. The loader's text ends with a zero, and lies in memory that is not free
        // (point 1).
        let len = (0..COMMAND_LINE).find(|i| unsafe { text.add(*i).read() } == 0).unwrap_or(COMMAND_LINE);
        // SAFETY: 1. As above: `len` bytes were read.
        command_line = unsafe { core::slice::from_raw_parts(text, len) };
    }
    let nothing = MemoryRun { start: PhysAddr(0).pfn(), frames: 0, node: NodeId(0), class: ZoneClass::Low };
    let (mut runs, mut run_count) = ([nothing; RUNS], 0);
    // SAFETY: 1. The firmware's tables are memory that is not free, and nothing writes to them
    // (point 1); the direct map reaches it.
    let bytes = |at: u64, len: usize| unsafe {
        let end = at.checked_add(len as u64)?;
        (at != 0 && end <= DIRECT_MAP_LIMIT).then(|| core::slice::from_raw_parts(mmu::direct::<u8>(at), len))
    };
    let nodes = acpi::nodes(info.rsdp, bytes).unwrap_or_default();
    let mut add = |start: u64, end: u64| {
        let mut from = start;
        while from < end
            && let Some(run) = runs.get_mut(run_count)
        {
            let (node, next) = nodes.of_memory(from);
            let to = next.min(end);
            let frames = ((to - from) / PAGE) as u32;
            *run = MemoryRun { start: PhysAddr(from).pfn(), frames, node: NodeId(node), ..nothing };
            run_count += 1;
            from = to;
        }
    };
    let first = mmu::direct::<MapEntry>(info.memory_map);
    for i in 0..info.memory_map_entries as usize {
        // SAFETY: 1. The loader says there are this many entries (point 1).
        let entry = unsafe { first.add(i).read_unaligned() };
        if entry.kind != KIND_RAM {
            continue;
        }
        // Everything below the image's end is left alone: firmware data, the start information, the
        // image.
        let start = entry.start.max(image_end_address()).next_multiple_of(PAGE);
        let end = entry.start.saturating_add(entry.len).min(DIRECT_MAP_LIMIT) & !(PAGE - 1);
        if taken_end > start && taken_start < end {
            add(start, taken_start);
            add(taken_end, end);
        } else {
            add(start, end);
        }
    }
    Some(Info { runs, run_count, archive, command_line, nodes })
}

fn image_end_address() -> u64 {
    unsafe extern "C" {
        /// Set by the link script; only its address means anything.
        static image_end: u8;
    }
    (&raw const image_end).addr() as u64 - DIRECT_MAP
}
