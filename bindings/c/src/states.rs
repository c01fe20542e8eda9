//! Keeps the C side's state of each frame: one byte.
//!
//! A page that is given back twice, never came from here or is of another kind is told by this
//! byte, and so is a table that has been written to. Loads and stores are plain: two CPUs that give
//! back one page at the same moment are not noticed.
use crate::error::PtError;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use ptarmigan::addr::Pfn;
use ptarmigan::bootmem::{BootMemory, BootMemoryShort, BootSlice};
use ptarmigan::frames::{Frames, MemorySize, PerFrame};
use ptarmigan::page::Level;

/// Never handed out to C.
const NEVER: u8 = 0;
/// Given back, or waiting in a gather.
const FREED: u8 = 1;
/// Data, owned by the C side.
const DATA: u8 = 2;
/// Data that a page of a tree owns.
const MAPPED: u8 = 3;
/// Plus a level: a table that was not written to.
const TABLE: u8 = 8;
/// Plus a level: a table that was.
const WRITTEN: u8 = 16;
const LEVEL: u8 = 7;

/// The state of a frame.
#[derive(Clone, Copy)]
pub struct State<'a>(&'a AtomicU8);

/// The states of all frames. Those of the largest run are an array of their own, which is looked at
/// without a call.
pub struct States {
    first: u32,
    largest: BootSlice<AtomicU8>,
    all: PerFrame<AtomicU8>,
}

impl States {
    pub fn new(boot: &mut BootMemory, frames: &Frames) -> Result<Self, BootMemoryShort> {
        let largest = frames.runs().max_by_key(|run| run.frames);
        let (first, n) = largest.map_or((0, 0), |run| (run.start.0, run.frames as usize));
        let never = || AtomicU8::new(NEVER);
        Ok(States { first, largest: boot.take(n, |_| never())?, all: PerFrame::new(boot, frames, never)? })
    }

    pub fn bytes(size: &MemorySize) -> usize {
        PerFrame::<AtomicU8>::bytes(size) + BootMemory::bytes::<AtomicU8>(size.frames())
    }

    /// Finds the state of a frame of the largest run.
    #[inline]
    pub fn near(&self, pfn: Pfn) -> Option<State<'_>> {
        self.largest.get(pfn.0.wrapping_sub(self.first) as usize).map(State)
    }

    /// Finds the state of a frame; `None` if it is not the library's.
    pub fn of(&self, frames: &Frames, pfn: Pfn) -> Option<State<'_>> {
        self.near(pfn).or_else(|| self.all.of(frames, pfn).map(State))
    }
}

impl State<'_> {
    #[inline]
    fn get(self) -> u8 {
        self.0.load(Relaxed)
    }

    #[inline]
    fn set(self, state: u8) {
        self.0.store(state, Relaxed);
    }

    /// The frame is a table of `level` from now on.
    #[inline]
    pub fn become_table(self, level: Level) {
        self.set(TABLE | level.0);
    }

    /// The frame is data from now on.
    pub fn become_data(self) {
        self.set(DATA);
    }

    /// The frame belongs to a page of a tree from now on.
    pub fn become_mapped(self) {
        self.set(MAPPED);
    }

    /// The frame is the library's again.
    #[inline]
    pub fn become_freed(self) {
        self.set(FREED);
    }

    /// The table has been written to.
    #[inline]
    pub fn become_written(self, level: Level) {
        self.set(WRITTEN | level.0);
    }

    /// Returns the level of a table that was not written to.
    #[inline]
    pub fn table_unwritten(self) -> Option<Level> {
        let state = self.get();
        (state & !LEVEL == TABLE).then_some(Level(state & LEVEL))
    }

    /// Returns the level of a table that was not written to, or the reason why it is no such table.
    pub fn unwritten(self) -> Result<Level, PtError> {
        self.table_unwritten().ok_or_else(|| self.why_no_table())
    }

    /// Returns the level of a table.
    #[inline]
    pub fn table(self) -> Result<Level, PtError> {
        let state = self.get();
        if state & (TABLE | WRITTEN) != 0 { Ok(Level(state & LEVEL)) } else { Err(self.why_no_table()) }
    }

    #[cold]
    fn why_no_table(self) -> PtError {
        match self.get() {
            FREED => PtError::Freed,
            NEVER | DATA | MAPPED => PtError::Foreign,
            _ => PtError::Unflushed,
        }
    }

    /// Accepts data that the C side owns.
    pub fn data(self) -> Result<(), PtError> {
        match self.get() {
            DATA => Ok(()),
            FREED => Err(PtError::Freed),
            MAPPED => Err(PtError::InUse),
            _ => Err(PtError::Foreign),
        }
    }

    /// Returns whether it is data, mapped or not.
    pub fn is_data(self) -> bool {
        matches!(self.get(), DATA | MAPPED)
    }

    /// Returns whether a page of a tree owns it.
    pub fn is_mapped(self) -> bool {
        self.get() == MAPPED
    }
}
