//! Entries in memory. Atomics, because MMUs read them, and set accessed and dirty bits, at any
//! time.
//!
//! # Why
//!
//! An MMU is another CPU that takes no lock. An entry must be a whole when it is seen: a 64-bit
//! entry that is stored in two halves would show a frame with the permissions of another one. Where
//! no 64-bit atomic exists, the half with the valid bit is stored last and cleared first. A table
//! is filled before it is linked, so stores release and loads acquire: otherwise a walker that
//! finds the link could read the table's old content.
//!
//! Entries that an MMU may change are replaced by `swap` or `exchange`, because a plain store would
//! lose a dirty bit that was set since the load.
//!
//! ```text
//!  CPU 0                    MMU of CPU 1                    CPU 0
//!  load: clean  ─────────>  sets the dirty bit  ─────────>  store(none): the bit is lost
//!  load: clean  ─────────>  sets the dirty bit  ─────────>  swap(none): returns dirty
//! ```
use crate::sync::atomic::{AtomicU32, Ordering};

/// The place of one entry.
///
/// # Safety
///
/// An implementation promises that it has the size and alignment of the entry, that every bit
/// pattern is valid, that no call unwinds, and that a store is seen by an MMU as a whole, or with
/// its valid bit last.
pub unsafe trait Slot: Sync {
    /// Reads the entry; stores before it was stored are visible (acquire): a table that it links is
    /// seen as it was when it was linked.
    fn load(&self) -> u64;
    /// Writes it; earlier stores are visible to code that reads this (release).
    fn store(&self, raw: u64);
    /// Whether [`fill`](Self::fill) does it in one step, whatever other CPUs do.
    const FILLS_AT_ONCE: bool;
    /// Writes it if it is empty (0); returns whether it was. Visible as with
    /// [`store`](Self::store).
    fn fill(&self, raw: u64) -> bool;
    /// Writes it and returns the former value, so that no bit an MMU sets in between is lost.
    fn swap(&self, raw: u64) -> u64;
    /// Writes `new` if `old` is there, in one step as far as an MMU can tell, and visible as with
    /// [`store`](Self::store).
    ///
    /// # Errors
    ///
    /// The present value instead, if the entry was not written.
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64>;
}

/// The functions of a [`Slot`] that is one atomic; both functions turn an entry around for memory.
macro_rules! one_atomic {
    ($to_memory:path, $from_memory:path) => {
        #[inline]
        fn load(&self) -> u64 {
            $from_memory(self.0.load(Ordering::Acquire))
        }
        #[inline]
        fn store(&self, raw: u64) {
            self.0.store($to_memory(raw), Ordering::Release);
        }
        const FILLS_AT_ONCE: bool = true;
        #[inline]
        fn fill(&self, raw: u64) -> bool {
            self.0.compare_exchange(0, $to_memory(raw), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }
        #[inline]
        fn swap(&self, raw: u64) -> u64 {
            $from_memory(self.0.swap($to_memory(raw), Ordering::AcqRel))
        }
        #[inline]
        fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
            self.0
                .compare_exchange($to_memory(old), $to_memory(new), Ordering::AcqRel, Ordering::Acquire)
                .map(|_| ())
                .map_err($from_memory)
        }
    };
}

#[cfg(any(loom, target_has_atomic = "64"))]
mod wide {
    use super::Slot;
    use crate::sync::atomic::{AtomicU64, Ordering};

    /// A 64-bit little-endian entry.
    #[repr(transparent)]
    pub struct Slot64(AtomicU64);

    #[cfg(loom)]
    impl Slot64 {
        /// No entry. In models it takes more than memory that is zero.
        #[expect(clippy::new_without_default, reason = "for models only")]
        pub fn new() -> Self {
            Slot64(AtomicU64::new(0))
        }

        /// Reads it as an MMU does: reads through the entry come after it, and no other access is
        /// ordered.
        pub fn walk(&self) -> u64 {
            u64::from_le(self.0.load(Ordering::Acquire))
        }
    }

    // SAFETY: one 64-bit atomic.
    unsafe impl Slot for Slot64 {
        one_atomic!(u64::to_le, u64::from_le);
    }

    /// A 64-bit big-endian entry.
    #[repr(transparent)]
    pub struct Slot64Be(AtomicU64);

    // SAFETY: one 64-bit atomic.
    unsafe impl Slot for Slot64Be {
        one_atomic!(u64::to_be, u64::from_be);
    }
}

#[cfg(any(all(test, not(loom)), not(any(loom, target_has_atomic = "64"))))]
mod halves {
    use super::Slot;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// A 64-bit entry on a host without 64-bit atomics: tables for another machine, which this host
    /// cannot be walking. Big-endian if `BIG`, little-endian otherwise.
    ///
    /// The first half in memory is written last, and cleared first. It has the valid bit: bit 0 of
    /// little-endian entries, and bits 62 and 63 of big-endian ones (a link, a leaf).
    #[repr(C, align(8))]
    pub struct Halves<const BIG: bool>([AtomicU32; 2]);

    impl<const BIG: bool> Halves<BIG> {
        /// The halves as they lie in memory.
        const fn to_memory(raw: u64) -> [u32; 2] {
            let (low, high) = (raw as u32, (raw >> 32) as u32);
            if BIG { [high.to_be(), low.to_be()] } else { [low.to_le(), high.to_le()] }
        }

        const fn from_memory([first, second]: [u32; 2]) -> u64 {
            let (low, high) = if BIG {
                (u32::from_be(second), u32::from_be(first))
            } else {
                (u32::from_le(first), u32::from_le(second))
            };
            low as u64 | (high as u64) << 32
        }

        pub(super) const fn is_valid(raw: u64) -> bool {
            if BIG { raw >> 62 != 0 } else { raw & 1 != 0 }
        }

        /// The stores that write an entry, in order: the number of the half and its value.
        pub(super) const fn steps(raw: u64) -> [(usize, u32); 3] {
            let [first, second] = Self::to_memory(raw);
            let meanwhile = if Self::is_valid(raw) { 0 } else { first };
            [(0, meanwhile), (1, second), (0, first)]
        }
    }

    // SAFETY: two 32-bit atomics with the size and alignment of the entry; the valid bit is in the
    // first, which `steps` stores last.
    unsafe impl<const BIG: bool> Slot for Halves<BIG> {
        #[inline]
        fn load(&self) -> u64 {
            let first = self.0[0].load(Ordering::Acquire);
            Self::from_memory([first, self.0[1].load(Ordering::Relaxed)])
        }
        #[inline]
        fn store(&self, raw: u64) {
            for (half, value) in Self::steps(raw) {
                self.0[half].store(value, Ordering::Release);
            }
        }
        const FILLS_AT_ONCE: bool = false;
        #[inline]
        fn fill(&self, raw: u64) -> bool {
            let empty = self.load() == 0;
            if empty {
                self.store(raw);
            }
            empty
        }
        #[inline]
        fn swap(&self, raw: u64) -> u64 {
            let [first, second] = Self::to_memory(raw);
            let old = self.0[0].swap(0, Ordering::AcqRel);
            let old = [old, self.0[1].swap(second, Ordering::AcqRel)];
            self.0[0].store(first, Ordering::Release);
            Self::from_memory(old)
        }
        #[inline]
        fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
            // This host's MMU does not walk it, and other CPUs write it under the lock of its
            // table.
            let now = self.load();
            if now != old {
                return Err(now);
            }
            self.store(new);
            Ok(())
        }
    }
}

#[cfg(any(loom, target_has_atomic = "64"))]
pub use wide::{Slot64, Slot64Be};

/// A 64-bit little-endian entry, in halves.
#[cfg(not(any(loom, target_has_atomic = "64")))]
pub type Slot64 = halves::Halves<false>;
/// A 64-bit big-endian entry, in halves.
#[cfg(not(any(loom, target_has_atomic = "64")))]
pub type Slot64Be = halves::Halves<true>;

/// A 32-bit entry, handled as 64 bits whose upper half is 0: big-endian if `BIG`, little-endian
/// otherwise.
#[repr(transparent)]
pub struct Slot32<const BIG: bool>(AtomicU32);

/// A 32-bit big-endian entry.
pub type Slot32Be = Slot32<true>;
/// A 32-bit little-endian entry.
pub type Slot32Le = Slot32<false>;

impl<const BIG: bool> Slot32<BIG> {
    /// The entry as it is in memory.
    #[inline]
    const fn to_memory(raw: u64) -> u32 {
        debug_assert!(raw >> u32::BITS == 0, "an entry of more than 32 bits");
        if BIG { (raw as u32).to_be() } else { (raw as u32).to_le() }
    }

    /// The entry from how it is in memory.
    #[inline]
    const fn from_memory(raw: u32) -> u64 {
        (if BIG { u32::from_be(raw) } else { u32::from_le(raw) }) as u64
    }
}

// SAFETY: one 32-bit atomic.
unsafe impl<const BIG: bool> Slot for Slot32<BIG> {
    one_atomic!(Self::to_memory, Self::from_memory);
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot64>() == 8 && align_of::<Slot64>() == 8);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot64Be>() == 8 && align_of::<Slot64Be>() == 8);
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot32Le>() == 4 && align_of::<Slot32Le>() == 4);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Slot;
    use super::halves::Halves;

    /// Writes entries over each other, some of them valid, and looks between the stores.
    fn halves_hide_each_other<const BIG: bool>(entries: [u64; 4], bytes: fn(u64) -> [u8; 8]) {
        for old in entries {
            for new in entries {
                let [slot, other] = [(); 2].map(|()| {
                    // SAFETY: atomics of 0.
                    unsafe { core::mem::zeroed::<Halves<BIG>>() }
                });
                slot.store(old);
                let mut memory = bytes(old);
                let steps = Halves::<BIG>::steps(new);
                for (half, value) in &steps[..2] {
                    memory[4 * half..][..4].copy_from_slice(&value.to_ne_bytes());
                    let seen = if BIG { u64::from_be_bytes(memory) } else { u64::from_le_bytes(memory) };
                    assert!(!Halves::<BIG>::is_valid(seen), "{old:#x}, {new:#x}: {seen:#x}");
                }
                memory[4 * steps[2].0..][..4].copy_from_slice(&steps[2].1.to_ne_bytes());
                assert_eq!(memory, bytes(new));
                // SAFETY: the slot is eight bytes, all of them initialised, and borrowed.
                let stored = unsafe { core::ptr::from_ref(&slot).cast::<[u8; 8]>().read() };
                assert_eq!((stored, slot.swap(new), slot.load()), (bytes(old), old, new));
                assert_eq!((other.fill(new), slot.exchange(new, old), slot.load()), (true, Ok(()), old));
                assert_eq!((other.load(), other.exchange(new ^ 1, 0)), (new, Err(new)));
            }
        }
    }

    #[test]
    fn an_entry_in_halves_is_valid_after_the_last_store_alone() {
        halves_hide_each_other::<false>([0, 0x5_0000_3001, 0x9_0000_4001, 0x9_0000_5002], u64::to_le_bytes);
        let (leaf, link) = (1 << 63 | 0x5_0000_2041, 1 << 62 | 0x9_0000_4000);
        halves_hide_each_other::<true>([0, leaf, link, 1 << 59 | 0x7_0000_6001], u64::to_be_bytes);
    }
}
