//! From the loader's 32-bit entry to Rust in long mode, and what the loader said about memory.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use ptarmigan_kernel_mailbox as mailbox;
use ptarmigan_kernel_x86::table::TablePage;

use crate::mmu::{self, DIRECT_MAP};

global_asm!(include_str!("boot.s"));

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

/// Begins to tell a recorder of tables: first of those that all kernel halves share.
pub fn announce() {
    mailbox::begin(0);
    mailbox::fixed_table(0, boot_upper.physical(DIRECT_MAP), 2);
    boot_directories.iter().for_each(|directory| mailbox::fixed_table(0, directory.physical(DIRECT_MAP), 1));
}

/// A run of usable physical memory.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its first byte, on a page's border.
    pub start: u64,
    /// Its bytes, whole pages.
    pub len: u64,
}

/// The loader's start information (PVH), as far as it is used.
#[repr(C)]
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
struct MapEntry {
    start: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

const START_MAGIC: u32 = 0x336e_c578;
const KIND_RAM: u32 = 1;
const MAPPED: u64 = 4 << 30;
const PAGE: u64 = 4096;

/// The largest run of usable memory which the image does not occupy and the direct map reaches.
///
/// # Safety
///
/// `start_info` is what the loader passed at entry, and the memory it describes has not been
/// written to.
pub unsafe fn largest_region(start_info: u64) -> Option<Region> {
    let info = mmu::direct::<StartInfo>(start_info);
    // SAFETY: the caller passes the loader's structure, which is in low memory.
    let (magic, version, map, entries) =
        unsafe { ((*info).magic, (*info).version, (*info).memory_map, (*info).memory_map_entries) };
    // Version 0 of the structure had no memory map.
    if magic != START_MAGIC || version == 0 {
        return None;
    }
    let first = mmu::direct::<MapEntry>(map);
    let mut best: Option<Region> = None;
    for i in 0..entries as usize {
        // SAFETY: the loader says there are this many entries.
        let entry = unsafe { &*first.add(i) };
        if entry.kind != KIND_RAM {
            continue;
        }
        // Everything below the image's end is left alone: firmware data, the start information, the
        // image.
        let start = entry.start.max(image_end_address()).next_multiple_of(PAGE);
        let end = entry.start.saturating_add(entry.len).min(MAPPED) & !(PAGE - 1);
        let len = end.saturating_sub(start);
        if len > best.map_or(0, |b| b.len) {
            best = Some(Region { start, len });
        }
    }
    best
}

/// The longest command line that is read.
const COMMAND_LINE: usize = 1024;

/// Returns whether `word` is on the command line.
///
/// # Safety
///
/// `start_info` is what the loader passed at entry, and the memory it describes has not been
/// written to.
pub unsafe fn has_word(start_info: u64, word: &str) -> bool {
    let info = mmu::direct::<StartInfo>(start_info);
    // SAFETY: the caller passes the loader's structure, which is in low memory.
    let (magic, line) = unsafe { ((*info).magic, (*info).command_line) };
    if magic != START_MAGIC || line == 0 || line > MAPPED - COMMAND_LINE as u64 {
        return false;
    }
    let text = mmu::direct::<u8>(line);
    // SAFETY: the bytes are in the direct map, and the text ends at its first zero.
    let len = (0..COMMAND_LINE).find(|at| unsafe { text.add(*at).read() } == 0).unwrap_or(0);
    // SAFETY: so many bytes of it have just been read, and nobody writes to them.
    let text = unsafe { core::slice::from_raw_parts(text, len) };
    text.split(|byte| *byte == b' ').any(|part| part == word.as_bytes())
}

fn image_end_address() -> u64 {
    unsafe extern "C" {
        /// Set by the link script; only its address means anything.
        static image_end: u8;
    }
    (&raw const image_end).addr() as u64 - DIRECT_MAP
}
