//! Simulated physical memory whose bytes stay where they are, so that page-table crates can hold
//! pointers into it.
use crate::Memory;
use crate::memory::exchange_in_word;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes of a frame.
pub const FRAME: u64 = 4096;
/// Physical address of the first frame. It is neither zero nor the pointer to the frame, so that a
/// mix-up shows.
pub const BASE: u64 = 0x20_0000;

const WORDS: usize = FRAME as usize / 8;

/// Atomic words, because a walker reads entries while they are written. The crate under test may
/// hold a `&mut` to an entry meanwhile; a hardware walker ignores that too.
#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS]);

/// Physical memory from [`BASE`] on.
pub(super) struct Ram(Box<[Page]>);

impl Ram {
    pub(super) fn new(frames: usize) -> Self {
        Self((0..frames).map(|_| Page([const { AtomicU64::new(0) }; WORDS])).collect())
    }

    fn offset(&self, phys: u64) -> Option<usize> {
        let offset = usize::try_from(phys.checked_sub(BASE)?).ok()?;
        (offset < self.0.len() * FRAME as usize).then_some(offset)
    }

    /// Returns where the byte at `phys` is, or `None` outside memory.
    ///
    /// The pointer's provenance is exposed: some crates pass addresses through integers.
    pub(super) fn pointer(&self, phys: u64) -> Option<*mut u8> {
        let base = self.0.as_ptr().expose_provenance();
        self.offset(phys).map(|offset| std::ptr::with_exposed_provenance_mut(base + offset))
    }

    /// Returns the physical address behind a pointer made by [`Ram::pointer`].
    pub(super) fn phys(&self, pointer: *const u8) -> Option<u64> {
        let phys = BASE + pointer.addr().checked_sub(self.0.as_ptr().addr())? as u64;
        self.offset(phys).map(|_| phys)
    }

    /// Fills the frame at `phys`, if there is one, with copies of a word.
    pub(super) fn fill(&self, phys: u64, word: u64) {
        if let Some(offset) = self.offset(phys) {
            self.0[offset / FRAME as usize].0.iter().for_each(|w| w.store(word, Relaxed));
        }
    }
}

impl Memory for Ram {
    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        let offset = self.offset(phys)?;
        let word = &self.0[offset / FRAME as usize].0[offset % FRAME as usize / 8];
        exchange_in_word(word, (phys % 8, bytes), (old, new))
    }

    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        let offset = self.offset(phys)?;
        let word = self.0[offset / FRAME as usize].0[offset % FRAME as usize / 8].load(Relaxed);
        match bytes {
            8 => Some(word),
            // Entries are little-endian.
            4 if offset.is_multiple_of(8) => Some(u64::from_le(word) & u64::from(u32::MAX)),
            4 => Some(u64::from_le(word) >> 32),
            _ => None,
        }
    }
}
