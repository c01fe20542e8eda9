//! Simulated physical memory whose bytes stay where they are, so that page-table crates can hold pointers into it.
use crate::Memory;
use std::cell::UnsafeCell;

/// The bytes of a frame.
pub const FRAME: u64 = 4096;
/// Physical address of the first frame. Neither zero nor the pointer to it, so that mixing them up shows.
pub const BASE: u64 = 0x20_0000;

const WORDS: usize = FRAME as usize / 8;

#[repr(C, align(4096))]
struct Page(UnsafeCell<[u64; WORDS]>);

/// Physical memory from [`BASE`] on.
pub(super) struct Ram(Box<[Page]>);

// SAFETY: the fields are plain words. Whoever writes through a pointer of `Ram::pointer` answers for not doing so from
// two threads at once; reads of this module are volatile single words, as those of a hardware walker, and happen in
// calls on the `Machine`, which the code under test makes from the thread that writes.
unsafe impl Sync for Ram {}

impl Ram {
    pub(super) fn new(frames: usize) -> Self {
        Self((0..frames).map(|_| Page(UnsafeCell::new([0; WORDS]))).collect())
    }

    /// The frame that holds `phys`, and the word in it.
    fn find(&self, phys: u64) -> Option<(&Page, usize)> {
        let offset = phys.checked_sub(BASE)?;
        let page = self.0.get(usize::try_from(offset / FRAME).ok()?)?;
        Some((page, (offset % FRAME / 8) as usize))
    }

    /// Where the byte at `phys` is, `None` outside memory.
    ///
    /// The pointer's provenance is exposed: some crates pass addresses through integers.
    pub(super) fn pointer(&self, phys: u64) -> Option<*mut u8> {
        let offset = usize::try_from(phys.checked_sub(BASE)?).ok()?;
        let inside = offset < self.0.len() * FRAME as usize;
        let base = self.0.as_ptr().expose_provenance();
        inside.then(|| std::ptr::with_exposed_provenance_mut(base + offset))
    }

    /// The physical address behind a pointer made by [`Ram::pointer`].
    pub(super) fn phys(&self, pointer: *const u8) -> Option<u64> {
        let offset = pointer.addr().checked_sub(self.0.as_ptr().addr())?;
        (offset < self.0.len() * FRAME as usize).then_some(BASE + offset as u64)
    }

    /// Fills the frame at `phys`, if there is one, with copies of a word.
    pub(super) fn fill(&self, phys: u64, word: u64) {
        let Some((page, _)) = self.find(phys) else { return };
        let words = page.0.get().cast::<u64>();
        for i in 0..WORDS {
            // SAFETY: `words` is valid for `WORDS` aligned words, and the frame is in no table: it is being handed out,
            // so that no reference into it is in use.
            unsafe { words.add(i).write_volatile(word) };
        }
    }
}

impl Memory for Ram {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        let (page, word) = self.find(phys)?;
        // SAFETY: the word lies inside the page and is aligned and initialised. The crate under test may hold a `&mut` to
        // the same entry; this read stands for the hardware's walker, which reads there at any time all the
        // same, so it is volatile and its value decides nothing but what the report says.
        let raw = unsafe { page.0.get().cast::<u64>().add(word).read_volatile() };
        match bytes {
            8 => Some(raw),
            4 if phys.is_multiple_of(8) => Some(raw & u64::from(u32::MAX)),
            4 => Some(raw >> 32),
            _ => None,
        }
    }
}
