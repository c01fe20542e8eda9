//! Reads the loader's information: memory, the archive, the command line.

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::params::CommandLine;
use ptarmigan_kernel_base::{Failed, fail, say};
use ptarmigan_kernel_x86::acpi::{self, NodeNumbers, Nodes};
use ptarmigan_kernel_x86::memory_map::{self, MOST_ENTRIES, MemoryMap, PAGE, Span, TooMany};
use ptarmigan_kernel_x86::segments::OfCpu;

use crate::arch;
use crate::arch::tables::{self, DIRECT_MAP, DIRECT_MAP_END};
use crate::mmu::bytes;

/// The stacks of CPUs. The assembly knows their size.
#[unsafe(no_mangle)]
static boot_stacks: [OfCpu<[u8; 0x10000]>; CPUS] = [const { OfCpu::new([0; 0x10000]) }; CPUS];

/// Runs of free memory that are kept.
const KEPT: usize = 32;
/// Runs of memory at the most: each range of a node has two borders, and low memory one.
pub const RUNS: usize = KEPT + 2 * acpi::MOST + 1;
/// Bytes of a command line that are looked at.
const COMMAND_LINE: u64 = 1 << 16;

/// The loader's information.
pub struct LoaderInfo {
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
    pub numbers: NodeNumbers,
}

/// Reads the loader's information. Ends the machine if the kernel cannot begin with it.
///
/// # Safety
///
/// 1. `information` is the loader's value at entry, and the memory it describes has not been
///    written to, nor will be where the result refers to it.
pub unsafe fn read(information: u64) -> Result<LoaderInfo, Failed> {
    let reached = format_args!("below the {} MiB that the kernel reaches at boot", DIRECT_MAP_END >> 20);
    // SAFETY: 1. The loader's and the firmware's structures (point 1), or bytes behind a text:
    // memory that is not free, or reserved below, or not written to before this returns.
    let memory = |at, len| unsafe { bytes(at, len) };
    let places = arch::places(information, memory)?;
    let Span { start, end } = places.module;
    let archive = match memory(start, places.module.bytes()) {
        Some(bytes) => bytes,
        None if start == end => &[],
        None => fail(format_args!(
            "the initial file system, at {start:#x} to {end:#x}, does not lie {reached}: make it smaller"
        )),
    };
    let most = DIRECT_MAP_END.saturating_sub(places.command_line).min(COMMAND_LINE);
    let text = memory(places.command_line, most).unwrap_or_default();
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let (command_line, misread) = CommandLine::read(arch::words(text));
    if let Some(misread) = misread {
        say!("kernel: command line: {misread}the rest is taken");
    }
    if let Err(e) = arch::set_limit(command_line.text(), end) {
        say!("kernel: command line: {e}; all that can be low is");
    }
    let Some(map) = memory(places.map.start, places.map.bytes()) else {
        fail(format_args!("the boot loader passed no map of memory that lies {reached}"));
    };
    let entries = arch::entries(map);
    if !memory_map::is_memory(&entries, places.module) {
        fail(format_args!(
            "the initial file system, at {start:#x} to {end:#x}, is not in memory: give the machine more"
        ));
    }
    // Everything below the image's end is left alone: firmware data, the image.
    let reserved = [
        Span::new(0, image_end_address()),
        places.information,
        places.map,
        Span::new(places.command_line, text.len() as u64),
        places.modules,
        places.module,
    ];
    let map = MemoryMap::<KEPT>::new(entries, &reserved, arch::HIGHEST).unwrap_or_else(|TooMany(count)| {
        fail(format_args!(
            "the boot loader's map of memory has {count} entries, and {MOST_ENTRIES} can be read"
        ))
    });
    map.tell(|line| say!("kernel: memory: {line}"));
    let nodes = acpi::nodes(places.firmware, |at, len| memory(at, len as u64)).unwrap_or_default();
    let limit = tables::limit() & !(PAGE - 1);
    let nothing = MemoryRun { start: PhysAddr(0).pfn(), frames: 0, node: NodeId(0), class: ZoneClass::Low };
    let (mut runs, mut run_count) = ([nothing; RUNS], 0);
    for Span { start, end } in map.runs() {
        let mut from = *start;
        while from < *end
            && let Some(run) = runs.get_mut(run_count)
        {
            let (node, next) = nodes.of_memory(from);
            let (class, border) =
                if from < limit { (ZoneClass::Low, limit) } else { (ZoneClass::High, u64::MAX) };
            let to = next.min(border).min(*end);
            let frames = ((to - from) / PAGE) as u32;
            *run = MemoryRun { start: PhysAddr(from).pfn(), frames, node: NodeId(node), class };
            run_count += 1;
            from = to;
        }
    }
    // The library wants numbers without gaps; a node may have no memory, or only memory that is not
    // used.
    let numbers = NodeNumbers::new(runs[..run_count].iter().map(|run| run.node.0));
    for run in &mut runs[..run_count] {
        run.node = NodeId(numbers.of(run.node.0));
    }
    Ok(LoaderInfo { runs, run_count, archive, command_line, nodes, numbers })
}

fn image_end_address() -> u64 {
    unsafe extern "C" {
        /// Set by the link script; only its address means anything.
        static image_end: u8;
    }
    (&raw const image_end).addr() as u64 - DIRECT_MAP
}
