//! The tables that a replay makes and frees.
use super::moment::Effect;
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::frames::{AllocFlags, Frames, NoFrame};
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::{Layer, Policy};
use std::sync::{Mutex, MutexGuard};

/// Writes down which tables the policy hands out and takes back, in a pass with one worker.
pub struct TableEffects<'a> {
    frames: &'a Frames,
    log: Mutex<Vec<Effect>>,
}

impl<'a> TableEffects<'a> {
    /// Begins a log for a machine with these frames.
    pub fn new(frames: &'a Frames) -> Self {
        TableEffects { frames, log: Mutex::default() }
    }

    /// Locks the log: the effects that nobody has taken yet.
    pub fn log(&self) -> MutexGuard<'_, Vec<Effect>> {
        self.log.lock().unwrap_or_else(|e| e.into_inner())
    }
}

// SAFETY: 1. the page is `inner`'s.
unsafe impl<P: Policy> Layer<P> for TableEffects<'_> {
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
        self.log().push(Effect::TableMade { level: level.0, frame: page.addr().pfn().0 });
        Ok(page)
    }

    fn freeing(&self, _: &Pinned<'_>, level: Level, at: PhysAddr) {
        self.log().push(Effect::TableFreed { level: level.0, frame: at.pfn().0 });
    }
}
