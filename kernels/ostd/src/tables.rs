//! Table pages, which are zero when they are handed out, and are cleared when they come back.
use alloc::vec::Vec;
use core::ops::Range;

use ostd::mm::Paddr;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{MachineId, Pinned, WithPin};
use ptarmigan::format::{Format, X86_64};
use ptarmigan::frames::Frames;
use ptarmigan::page::NoConstruct;
use ptarmigan::quicklist::{self, ListsConfig, Quicklists};
use ptarmigan::window::DirectMap;
use ptarmigan_adapters::Pages;
use spin::Once;

use crate::memory::{CPUS, Memory, with_pin};

type TableLists = Quicklists<'static, DirectMap, NoConstruct>;

static FRAMES: Once<Frames> = Once::new();
static LISTS: Once<TableLists> = Once::new();

/// Where the CPU is.
struct Here(MachineId);

impl WithPin for Here {
    #[inline]
    fn with_pin<R>(&self, f: impl FnOnce(&Pinned<'_>) -> R) -> R {
        with_pin(self.0, f)
    }
}

/// Lists of table pages.
pub struct Tables(Pages<'static, &'static TableLists, Here>);

impl Tables {
    /// Makes one of the memory `own`.
    ///
    /// # Safety
    ///
    /// 1. No other code may use the memory, now or later.
    pub unsafe fn new(own: Range<Paddr>) -> Self {
        let config = ListsConfig::new(CPUS);
        // SAFETY: 1. passed on.
        let mut memory = unsafe { Memory::new(&FRAMES, own, |size| TableLists::bytes(size, &config)) };
        // SAFETY: 1. the window reaches the source's memory. 2. it leaves roots alone. 3. the
        // layout is the format's own. 4. entries have room for 40 bits of a frame's number.
        let source =
            unsafe { quicklist::Source::new(memory.frames, memory.window, NoConstruct, X86_64::LAYOUT) };
        let lists = match Quicklists::new(&mut memory.boot, config, source) {
            Ok(lists) => LISTS.call_once(|| lists),
            Err(e) => panic!("{e}"),
        };
        match Pages::new(lists, Here(memory.frames.machine())) {
            // SAFETY: 1. ostd gives a table back after the flush and the grace period that it may
            // need.
            Ok(pages) => Tables(unsafe { pages.at_once() }),
            Err(e) => panic!("{e}"),
        }
    }

    /// Takes a frame.
    #[inline]
    pub fn take(&self) -> Option<Paddr> {
        self.0.alloc().map(|at| at.0 as usize)
    }

    /// Gives a frame back.
    ///
    /// # Safety
    ///
    /// 1. [`take`](Self::take) handed it out.
    /// 2. It is given back once, and no TLB reaches it.
    #[inline]
    pub unsafe fn give(&self, at: Paddr) {
        // SAFETY: 1. by the caller (1.). 3. the frame is not used any more by the caller (2.).
        unsafe { self.0.give_back_full(PhysAddr(at as u64)) };
    }

    /// Takes `count` tables, writes an entry of each, and gives them back with the line that was
    /// written: the cost without clearing entries that are clear.
    pub fn write_entries(&self, count: usize) {
        let mut tables = Vec::with_capacity(count);
        tables.extend((0..count).map_while(|_| self.0.alloc()));
        for &table in &tables {
            // SAFETY: the table was just handed out, and is mapped for writes.
            unsafe { self.0.pointer(table).cast::<u64>().write_volatile(1) };
            // SAFETY: 1. it was just handed out.
            unsafe { self.0.note(table, 0..8) };
        }
        for &table in &tables {
            // SAFETY: 1. it was just handed out. 2. the entry that was written is noted. 3. no
            // entry ever led to it.
            unsafe { self.0.give_back(table) };
        }
    }
}
