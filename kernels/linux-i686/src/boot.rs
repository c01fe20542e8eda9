//! Reads the loader's information (multiboot): memory, the archive, the command line.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{MemoryRun, ZoneClass};
use ptarmigan_kernel::arch::CPUS;
use ptarmigan_kernel::params::{self, CommandLine};
use ptarmigan_kernel::report::refuse;
use ptarmigan_kernel::say;
use ptarmigan_kernel_x86::loader;
use ptarmigan_kernel_x86::memory_map::{self, MOST_ENTRIES, MemoryMap, PAGE, Span, TooMany};

use crate::mmu::{self, DIRECT_MAP, DIRECT_MAP_END};
use crate::pc::Pc;

global_asm!(include_str!("boot.s"));
global_asm!(include_str!("../../x86/src/check.s"), features = const FEATURES, extended = const EXTENDED);

/// Features that the CPU must have: time-stamp counter, model-specific registers, PAE, CMPXCHG8B, a
/// local interrupt controller, FXSAVE, SSE; pages that are not executable.
const FEATURES: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 24 | 1 << 25;
const EXTENDED: u32 = 1 << 20;

/// The stack of a CPU. The assembly knows its size.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; 0x10000]>);

// SAFETY: 1. The bytes are only reached through the stack pointer of one CPU.
unsafe impl Sync for Stack {}

#[unsafe(no_mangle)]
static boot_stacks: [Stack; CPUS] = [const { Stack(UnsafeCell::new([0; 0x10000])) }; CPUS];

/// Runs of free memory that are kept.
const KEPT: usize = 32;
/// Runs of memory at the most: one of those may be low and high.
pub const RUNS: usize = KEPT + 1;

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

const HAS_COMMAND_LINE: u32 = 1 << 2;
const HAS_MODULES: u32 = 1 << 3;
const HAS_MAP: u32 = 1 << 6;
/// Bytes of a command line that are looked at.
const COMMAND_LINE: usize = 1 << 16;
/// Frame numbers of the library are 32 bits wide, which PAE's 52-bit addresses exceed.
const HIGHEST: u64 = 1 << 40;

/// Reads the loader's information. Ends the machine if the kernel cannot begin with it.
///
/// # Safety
///
/// 1. `information` is the loader's value at entry, and the memory it describes has not been
///    written to, nor will be where the result refers to it.
pub unsafe fn read(information: u32) -> Info {
    let reached = "below the 768 MiB that the kernel reaches at boot";
    let size = size_of::<Information>();
    // SAFETY: 1. The loader's structure (point 1).
    let Some(bytes) = (unsafe { memory(information, size) }) else {
        refuse::<Pc>(format_args!("the boot loader's information does not lie {reached}"));
    };
    // SAFETY: 1. `bytes` has as many as the structure, which is made of numbers.
    let info = unsafe { bytes.as_ptr().cast::<Information>().read_unaligned() };
    let (mut archive, mut module_list, mut module): (&[u8], _, _) = (&[], Span::default(), Span::default());
    if info.flags & HAS_MODULES != 0 && info.module_count > 0 {
        module_list = Span::new(info.modules.into(), u64::from(info.module_count) * 16);
        // SAFETY: 1. The loader says that there is a module (point 1): its start and its end.
        let Some(entry) = (unsafe { memory(info.modules, 8) }) else {
            refuse::<Pc>(format_args!("the boot loader's list of modules does not lie {reached}"));
        };
        // SAFETY: 1. `entry` has the bytes of two numbers.
        let [start, end] = unsafe { entry.as_ptr().cast::<[u32; 2]>().read_unaligned() };
        module = Span { start: start.into(), end: end.into() };
        // SAFETY: 1. The module is memory that no code writes: it is reserved below.
        archive = match unsafe { memory(start, module.bytes() as usize) } {
            Some(bytes) => bytes,
            None => refuse::<Pc>(format_args!(
                "the initial file system, at {start:#x} to {end:#x}, does not lie {reached}: make it smaller"
            )),
        };
    }
    let mut text: &[u8] = &[];
    if info.flags & HAS_COMMAND_LINE != 0 {
        // SAFETY: 1. The loader's text (point 1), which is reserved below.
        text = unsafe { text_at(info.command_line) };
    }
    // The first word is the image's name.
    let words = text.iter().position(|byte| *byte == b' ').map_or(&[][..], |at| &text[at + 1..]);
    let (command_line, misread) = CommandLine::read(words);
    if let Some(misread) = misread {
        say!(Pc, "kernel: command line: {misread}the rest is taken");
    }
    match params::mebibytes(command_line.text(), "low") {
        // The archive is read where the loader has put it.
        Ok(Some(limit)) => mmu::set_limit(limit.max(module.end)),
        Ok(None) => {}
        Err(e) => say!(Pc, "kernel: command line: {e}; all that can be low is"),
    }
    // SAFETY: 1. The loader's map (point 1), which is reserved below.
    let map = unsafe { memory(info.map, info.map_len as usize) }.filter(|_| info.flags & HAS_MAP != 0);
    let Some(map) = map else {
        refuse::<Pc>(format_args!("the boot loader passed no map of memory that lies {reached}"));
    };
    let entries = loader::multiboot(map);
    if !memory_map::is_memory(&entries, module) {
        let Span { start, end } = module;
        refuse::<Pc>(format_args!(
            "the initial file system, at {start:#x} to {end:#x}, is not in memory: give the machine more"
        ));
    }
    // Everything below the image's end is left alone: firmware data, the image.
    let reserved = [
        Span::new(0, image_end_address()),
        Span::new(information.into(), size as u64),
        Span::new(info.map.into(), info.map_len.into()),
        Span::new(info.command_line.into(), text.len() as u64),
        module_list,
        module,
    ];
    let map = match MemoryMap::<KEPT>::new(entries, &reserved, HIGHEST) {
        Ok(map) => map,
        Err(TooMany(count)) => refuse::<Pc>(format_args!(
            "the boot loader's map of memory has {count} entries, and {MOST_ENTRIES} can be read"
        )),
    };
    map.tell(|line| say!(Pc, "kernel: memory: {line}"));
    let nothing = MemoryRun { start: PhysAddr(0).pfn(), frames: 0, node: NodeId(0), class: ZoneClass::Low };
    let (mut runs, mut run_count) = ([nothing; RUNS], 0);
    let mut add = |run: Span, class: ZoneClass| {
        if run.bytes() > 0
            && let Some(place) = runs.get_mut(run_count)
        {
            let frames = (run.bytes() / PAGE) as u32;
            *place = MemoryRun { start: PhysAddr(run.start).pfn(), frames, class, ..nothing };
            run_count += 1;
        }
    };
    let limit = mmu::limit() & !(PAGE - 1);
    for Span { start, end } in map.runs() {
        add(Span { start: *start, end: limit.min(*end) }, ZoneClass::Low);
        add(Span { start: limit.max(*start), end: *end }, ZoneClass::High);
    }
    Info { runs, run_count, archive, command_line }
}

/// Returns bytes that the loader has put somewhere; `None` if the direct map does not reach them.
///
/// # Safety
///
/// 1. The loader says that there are so many bytes, and no code writes to them while they are used.
unsafe fn memory(at: u32, len: usize) -> Option<&'static [u8]> {
    let end = u64::from(at).checked_add(len as u64)?;
    // SAFETY: 1. The direct map shows them, and they stay as they are (point 1).
    (end <= DIRECT_MAP_END).then(|| unsafe { core::slice::from_raw_parts(mmu::direct::<u8>(at.into()), len) })
}

/// Returns a text that ends with a zero, without it; as much of it as can be reached.
///
/// # Safety
///
/// 1. As for [`memory`], of a text.
unsafe fn text_at(at: u32) -> &'static [u8] {
    let most = DIRECT_MAP_END.saturating_sub(at.into()).min(COMMAND_LINE as u64) as usize;
    let text = mmu::direct::<u8>(at.into());
    // SAFETY: 1. The direct map shows the byte; the text has it, as no zero has come yet (point 1).
    let len = (0..most).find(|i| unsafe { text.add(*i).read() } == 0).unwrap_or(most);
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
