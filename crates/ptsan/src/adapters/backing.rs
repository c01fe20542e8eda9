//! The memory of a machine: plain memory beside the sanitizer, or memory of which every store is
//! seen.
use super::locked::locked;
#[cfg(feature = "watch")]
use super::ram::FRAME;
use super::ram::Ram;
use crate::{Memory, Sanitizer};
use std::sync::Mutex;

pub(super) enum Backing {
    Plain {
        ram: Ram,
        san: Box<Mutex<Sanitizer>>,
    },
    #[cfg(feature = "watch")]
    Watched(crate::watch::Watch),
}

impl Backing {
    pub(super) fn plain(frames: usize, san: Sanitizer) -> Self {
        Self::Plain { ram: Ram::new(frames), san: Box::new(Mutex::new(san)) }
    }

    /// Calls `body` with the sanitizer and the memory that it reads.
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        match self {
            Self::Plain { ram, san } => body(&mut locked(san), ram),
            #[cfg(feature = "watch")]
            Self::Watched(watch) => watch.with(|san, ram| body(san, ram)),
        }
    }

    /// Returns where the byte at `phys` is, or `None` outside memory.
    pub(super) fn pointer(&self, phys: u64) -> Option<*mut u8> {
        match self {
            Self::Plain { ram, .. } => ram.pointer(phys),
            #[cfg(feature = "watch")]
            Self::Watched(watch) => watch.memory().pointer(phys),
        }
    }

    /// Returns the physical address behind a pointer.
    pub(super) fn phys(&self, pointer: *const u8) -> Option<u64> {
        match self {
            Self::Plain { ram, .. } => ram.phys(pointer),
            #[cfg(feature = "watch")]
            Self::Watched(watch) => watch.memory().phys(pointer),
        }
    }

    /// Fills a frame that is in no table with copies of a word, without telling the sanitizer.
    pub(super) fn fill(&self, frame: u64, word: u64) {
        match self {
            Self::Plain { ram, .. } => ram.fill(frame, word),
            #[cfg(feature = "watch")]
            Self::Watched(watch) => {
                // If the system refuses, the stores are seen one by one, which does no harm.
                let _unseen = watch.pause();
                for at in (frame..frame + FRAME).step_by(8) {
                    // A frame of the machine is inside memory.
                    let _ = watch.memory().store(at, word);
                }
            }
        }
    }
}
