//! From the loader's 32-bit entry to Rust in long mode, and the loader's description of memory.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use super::{DIRECT_MAP, DIRECT_MAP_LIMIT, direct};
use crate::loader;
use crate::memory_map::{MemoryMap, Span};
use crate::table::TablePage;

global_asm!(include_str!("../start.s"), include_str!("boot.s"));

/// The stack the kernel runs on. The assembly knows its size.
#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; 0x10000]>);

// SAFETY: the bytes are only reached through the stack pointer of the one CPU.
unsafe impl Sync for Stack {}

/// The tables the machine boots on. They belong to the MMU; only the top is ever read again, entry
/// by entry.
#[unsafe(no_mangle)]
static boot_top: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_upper: TablePage<512> = TablePage::new();
#[unsafe(no_mangle)]
static boot_directories: [TablePage<512>; 4] = [const { TablePage::new() }; 4];
#[unsafe(no_mangle)]
static boot_stack: Stack = Stack(UnsafeCell::new([0; 0x10000]));

/// The table every other top copies its kernel entries from: 256 to 511. The lower half is empty.
pub fn kernel_top() -> &'static TablePage<512> {
    &boot_top
}

/// Returns the tables that all kernel halves share, by physical address, each with its level.
pub fn shared_tables() -> impl Iterator<Item = (u64, u8)> {
    let directories = boot_directories.iter().map(|directory| (directory.physical(DIRECT_MAP), 1));
    core::iter::once((boot_upper.physical(DIRECT_MAP), 2)).chain(directories)
}

/// The loader's information.
pub struct Info {
    /// Unused memory behind the image.
    pub memory: MemoryMap<RUNS>,
    /// The command line, or the beginning of a long one.
    pub command_line: &'static [u8],
}

/// Runs of memory that are kept.
pub const RUNS: usize = 8;

/// The longest command line that is read.
const COMMAND_LINE: u64 = 1024;

/// Reads the start information; `None` if it is malformed, or names places that the direct map does
/// not reach.
///
/// # Safety
///
/// 1. `start_info` is the loader's value at entry, and the memory it describes has not been written
///    to, nor will be while the result is used.
pub unsafe fn read(start_info: u64) -> Option<Info> {
    // SAFETY: 1. The loader's structures, or bytes behind them (point 1).
    let memory = |at, len| unsafe { memory(at, len) };
    let places = loader::pvh_places(start_info, memory).ok()?;
    let map = memory(places.map.start, places.map.bytes())?;
    // Everything below the image's end is left alone: firmware data, the start information, the
    // image.
    let reserved = [Span::new(0, image_end_address())];
    let memory_map = MemoryMap::new(loader::pvh(map), &reserved, DIRECT_MAP_LIMIT).ok()?;
    let most = DIRECT_MAP_LIMIT.saturating_sub(places.command_line).min(COMMAND_LINE);
    let text = memory(places.command_line, most).unwrap_or_default();
    let command_line = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Info { memory: memory_map, command_line })
}

impl Info {
    /// Returns whether `word` is on the command line.
    pub fn has_word(&self, word: &str) -> bool {
        self.command_line.split(|byte| *byte == b' ').any(|part| part == word.as_bytes())
    }
}

/// Returns bytes that the loader has put somewhere; `None` if the direct map does not reach them.
///
/// # Safety
///
/// 1. There are said to be so many bytes, and no code writes to them while they are used.
unsafe fn memory(at: u64, len: u64) -> Option<&'static [u8]> {
    let is_reached = at != 0 && at.checked_add(len)? <= DIRECT_MAP_LIMIT;
    // SAFETY: the direct map shows them, and they stay as they are (point 1).
    is_reached.then(|| unsafe { core::slice::from_raw_parts(direct::<u8>(at), len as usize) })
}

fn image_end_address() -> u64 {
    unsafe extern "C" {
        /// Set by the link script; only its address means anything.
        static image_end: u8;
    }
    (&raw const image_end).addr() as u64 - DIRECT_MAP
}
