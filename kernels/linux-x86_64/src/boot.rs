//! Reads the loader's information: memory, the archive, the command line.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::params::CommandLine;
use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel::say;
use ptarmigan_kernel_x86::acpi::{self, Nodes, Numbers};
use ptarmigan_kernel_x86::loader;
use ptarmigan_kernel_x86::memory_map::{self, MOST_ENTRIES, MemoryMap, PAGE, Span, TooMany};

use crate::mmu::{self, DIRECT_MAP, DIRECT_MAP_LIMIT};
use crate::pc::Pc;

global_asm!(include_str!("boot.s"));
global_asm!(
    ".code32", include_str!("../../x86/src/check.s"), ".code64",
    features = const FEATURES, extended = const EXTENDED
);

/// Features that the CPU must have: time-stamp counter, model-specific registers, PAE, a local
/// interrupt controller, FXSAVE, SSE, SSE2; SYSCALL, pages that are not executable, long mode.
const FEATURES: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 24 | 1 << 25 | 1 << 26;
const EXTENDED: u32 = 1 << 11 | 1 << 20 | 1 << 29;

/// The stack of a CPU. The assembly knows its size.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; 0x10000]>);

// SAFETY: 1. The bytes are only reached through the stack pointer of one CPU.
unsafe impl Sync for Stack {}

#[unsafe(no_mangle)]
static boot_stacks: [Stack; CPUS] = [const { Stack(UnsafeCell::new([0; 0x10000])) }; CPUS];

/// Runs of free memory that are kept.
const KEPT: usize = 32;
/// Runs of memory at the most: each range of a node has two borders.
pub const RUNS: usize = KEPT + 2 * acpi::MOST;

/// The loader's information.
pub struct Info {
    /// Memory that is free, ascending.
    pub runs: [MemoryRun; RUNS],
    /// How many runs there are.
    pub run_count: usize,
    /// The initial file system; empty without an archive.
    pub archive: &'static [u8],
    /// The command line.
    pub command_line: CommandLine,
    /// Which memory and which CPUs are on which node of the firmware's.
    pub nodes: Nodes,
    /// The library's numbers of nodes.
    pub numbers: Numbers,
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
/// Bytes of an entry of its map of memory.
const MAP_ENTRY: u64 = 24;
/// Bytes of a command line that are looked at.
const COMMAND_LINE: usize = 1 << 16;

/// Reads the start information. Ends the machine if the kernel cannot begin with it.
///
/// # Safety
///
/// 1. `start_info` is the loader's value at entry, and the memory it describes has not been written
///    to, nor will be where the result refers to it.
pub unsafe fn read(start_info: u64) -> Info {
    let reached = "below the 4 GiB that the kernel reaches";
    // SAFETY: 1. The loader's structure (point 1).
    let bytes = unsafe { memory(start_info, size_of::<StartInfo>() as u64) };
    // SAFETY: 1. There are as many bytes as the structure has, which is made of numbers.
    let info = bytes.map(|bytes| unsafe { bytes.as_ptr().cast::<StartInfo>().read_unaligned() });
    let Some(info) = info.filter(|info| info.magic == START_MAGIC && info.version > 0) else {
        refuse::<Pc>(format_args!("the boot loader passed no start information of PVH, version 1 or above"));
    };
    let (mut archive, mut module): (&[u8], _) = (&[], Span::default());
    if info.modules > 0 {
        // SAFETY: 1. The loader says that there is a module (point 1).
        let Some(entry) = (unsafe { memory(info.module_list, size_of::<Module>() as u64) }) else {
            refuse::<Pc>(format_args!("the boot loader's list of modules does not lie {reached}"));
        };
        // SAFETY: 1. There are as many bytes as the structure has, which is made of numbers.
        let Module { start, len, .. } = unsafe { entry.as_ptr().cast::<Module>().read_unaligned() };
        module = Span::new(start, len);
        // SAFETY: 1. The module is memory that no code writes: it is reserved below.
        archive = match unsafe { memory(start, len) } {
            Some(bytes) => bytes,
            None => refuse::<Pc>(format_args!(
                "the initial file system, {len} bytes at {start:#x}, does not lie {reached}: make it smaller"
            )),
        };
    }
    // SAFETY: 1. The loader's text (point 1), which is reserved below.
    let text = unsafe { text_at(info.command_line) };
    let (command_line, misread) = CommandLine::read(text);
    if let Some(misread) = misread {
        say!(Pc, "kernel: command line: {misread}the rest is taken");
    }
    let map_len = u64::from(info.memory_map_entries) * MAP_ENTRY;
    // SAFETY: 1. The loader says that there are so many entries (point 1); they are reserved below.
    let Some(map) = (unsafe { memory(info.memory_map, map_len) }) else {
        refuse::<Pc>(format_args!("the boot loader passed no map of memory that lies {reached}"));
    };
    let entries = loader::pvh(map);
    if !memory_map::is_memory(&entries, module) {
        let Span { start, end } = module;
        refuse::<Pc>(format_args!(
            "the initial file system, at {start:#x} to {end:#x}, is not in memory: give the machine more"
        ));
    }
    // Everything below the image's end is left alone: firmware data, the image.
    let reserved = [
        Span::new(0, image_end_address()),
        Span::new(start_info, size_of::<StartInfo>() as u64),
        Span::new(info.memory_map, map_len),
        Span::new(info.command_line, text.len() as u64),
        Span::new(info.module_list, u64::from(info.modules) * size_of::<Module>() as u64),
        module,
    ];
    let map = match MemoryMap::<KEPT>::new(entries, &reserved, DIRECT_MAP_LIMIT) {
        Ok(map) => map,
        Err(TooMany(count)) => refuse::<Pc>(format_args!(
            "the boot loader's map of memory has {count} entries, and {MOST_ENTRIES} can be read"
        )),
    };
    map.tell(|line| say!(Pc, "kernel: memory: {line}"));
    // SAFETY: 1. The firmware's tables are memory that is not free, and no code writes to them
    // (point 1).
    let tables = |at: u64, len: usize| unsafe { memory(at, len as u64) };
    let nodes = acpi::nodes(info.rsdp, tables).unwrap_or_default();
    let nothing = MemoryRun { start: PhysAddr(0).pfn(), frames: 0, node: NodeId(0), class: ZoneClass::Low };
    let (mut runs, mut run_count) = ([nothing; RUNS], 0);
    for Span { start, end } in map.runs() {
        let mut from = *start;
        while from < *end
            && let Some(run) = runs.get_mut(run_count)
        {
            let (node, next) = nodes.of_memory(from);
            let to = next.min(*end);
            let frames = ((to - from) / PAGE) as u32;
            *run = MemoryRun { start: PhysAddr(from).pfn(), frames, node: NodeId(node), ..nothing };
            run_count += 1;
            from = to;
        }
    }
    // The library wants numbers without gaps; a node may have no memory, or only memory that is not
    // used.
    let numbers = Numbers::new(runs[..run_count].iter().map(|run| run.node.0));
    for run in &mut runs[..run_count] {
        run.node = NodeId(numbers.of(run.node.0));
    }
    Info { runs, run_count, archive, command_line, nodes, numbers }
}

/// Returns bytes that the loader or the firmware has put somewhere; `None` if the direct map does
/// not reach them.
///
/// # Safety
///
/// 1. There are said to be so many bytes, and no code writes to them while they are used.
unsafe fn memory(at: u64, len: u64) -> Option<&'static [u8]> {
    let end = at.checked_add(len)?;
    let is_reached = at != 0 && end <= DIRECT_MAP_LIMIT;
    // SAFETY: 1. The direct map shows them, and they stay as they are (point 1).
    is_reached.then(|| unsafe { core::slice::from_raw_parts(mmu::direct::<u8>(at), len as usize) })
}

/// Returns a text that ends with a zero, without it; as much of it as can be reached. The text at
/// address 0 is empty.
///
/// # Safety
///
/// 1. As for [`memory`], of a text.
unsafe fn text_at(at: u64) -> &'static [u8] {
    let most = if at == 0 { 0 } else { DIRECT_MAP_LIMIT.saturating_sub(at).min(COMMAND_LINE as u64) };
    // SAFETY: 1. The direct map shows the byte; the text has it, as no zero has come yet (point 1).
    let len = (0..most).find(|i| unsafe { mmu::direct::<u8>(at + i).read() } == 0).unwrap_or(most);
    // SAFETY: 1. Point 1 is passed on: `len` bytes were read.
    unsafe { memory(at, len) }.unwrap_or(&[])
}

fn image_end_address() -> u64 {
    unsafe extern "C" {
        /// Set by the link script; only its address means anything.
        static image_end: u8;
    }
    (&raw const image_end).addr() as u64 - DIRECT_MAP
}
