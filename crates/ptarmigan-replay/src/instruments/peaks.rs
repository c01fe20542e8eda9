//! The most memory that tables take at once, low and high memory apart.
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Layout, Level};
use ptarmigan::quicklist::{Layer, Policy};
use std::sync::{Mutex, PoisonError};

/// Follows the tables that a policy hands out.
pub struct Peaks<'a> {
    frames: &'a Frames,
    layout: Layout,
    bytes: Mutex<Bytes>,
}

/// Bytes in low and in high memory.
#[derive(Default)]
struct Bytes {
    now: [u64; 2],
    most: [u64; 2],
}

impl<'a> Peaks<'a> {
    /// Counts from 0.
    pub fn new(frames: &'a Frames, layout: Layout) -> Self {
        Peaks { frames, layout, bytes: Mutex::default() }
    }

    /// Returns the most bytes in tables at once, in low and in high memory.
    pub fn most(&self) -> [u64; 2] {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).most
    }

    fn change(&self, level: Level, at: PhysAddr, change: impl Fn(u64, u64) -> u64) {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let zone = usize::from(self.frames.is_high(at.pfn()));
        bytes.now[zone] = change(bytes.now[zone], self.layout.table_bytes(level));
        bytes.most[zone] = bytes.most[zone].max(bytes.now[zone]);
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for Peaks<'_> {
    fn frames(&self) -> Option<&Frames> {
        Some(self.frames)
    }

    fn alloc(
        &self,
        _: &P,
        _: &Pinned<'_>,
        level: Level,
        _: AllocFlags,
        inner: impl FnOnce() -> Result<Clean, NoFrame>,
    ) -> Result<Clean, NoFrame> {
        let page = inner()?;
        self.change(level, page.addr(), |now, bytes| now + bytes);
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.change(level, at, u64::saturating_sub);
    }
}
