//! From the loader's 32-bit entry to Rust in long mode, and the loader's description of memory.

use core::arch::global_asm;

use super::{DIRECT_MAP, DIRECT_MAP_LIMIT, direct};
use crate::loader;
use crate::memory_map::{MemoryMap, Span};
use crate::segments::OfCpu;

global_asm!(include_str!("../start.s"), include_str!("boot.s"));

/// The stack the kernel runs on. The assembly knows its size.
#[unsafe(no_mangle)]
static boot_stack: OfCpu<[u8; 0x10000]> = OfCpu::new([0; 0x10000]);

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
