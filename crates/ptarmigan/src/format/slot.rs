//! Entries in memory. Atomics, because MMUs read them, and set accessed and dirty bits, at any
//! time.
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
}

#[cfg(not(any(loom, target_has_atomic = "64")))]
mod wide {
    use super::Slot;
    use core::sync::atomic::{AtomicU32, Ordering};

    /// A 64-bit little-endian entry on a host without 64-bit atomics: tables for another machine,
    /// which this host cannot be walking. The half with the valid bit is written last, and cleared
    /// first.
    #[repr(C, align(8))]
    pub struct Slot64 {
        low: AtomicU32,
        high: AtomicU32,
    }

    // SAFETY: two 32-bit atomics with the size and alignment of the entry; the valid bit is in
    // `low`.
    unsafe impl Slot for Slot64 {
        #[inline]
        fn load(&self) -> u64 {
            let low = u32::from_le(self.low.load(Ordering::Acquire));
            let high = u32::from_le(self.high.load(Ordering::Relaxed));
            low as u64 | (high as u64) << 32
        }
        #[inline]
        fn store(&self, raw: u64) {
            if raw & 1 == 0 {
                self.low.store((raw as u32).to_le(), Ordering::Release);
                self.high.store(((raw >> 32) as u32).to_le(), Ordering::Release);
                return;
            }
            self.low.store(0, Ordering::Release);
            self.high.store(((raw >> 32) as u32).to_le(), Ordering::Release);
            self.low.store((raw as u32).to_le(), Ordering::Release);
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
            let low = u32::from_le(self.low.swap(0, Ordering::AcqRel));
            let high = u32::from_le(self.high.swap(((raw >> 32) as u32).to_le(), Ordering::AcqRel));
            self.low.store((raw as u32).to_le(), Ordering::Release);
            low as u64 | (high as u64) << 32
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

pub use wide::Slot64;

/// A 64-bit big-endian entry.
#[repr(transparent)]
pub struct Slot64Be(Slot64);

// SAFETY: a 64-bit slot, whose bytes are the other way round. No MMU walks tables of such entries
// on a host whose `Slot64` takes two steps.
unsafe impl Slot for Slot64Be {
    #[inline]
    fn load(&self) -> u64 {
        self.0.load().swap_bytes()
    }
    #[inline]
    fn store(&self, raw: u64) {
        self.0.store(raw.swap_bytes());
    }
    const FILLS_AT_ONCE: bool = Slot64::FILLS_AT_ONCE;
    #[inline]
    fn fill(&self, raw: u64) -> bool {
        self.0.fill(raw.swap_bytes())
    }
    #[inline]
    fn swap(&self, raw: u64) -> u64 {
        self.0.swap(raw.swap_bytes()).swap_bytes()
    }
    #[inline]
    fn exchange(&self, old: u64, new: u64) -> Result<(), u64> {
        self.0.exchange(old.swap_bytes(), new.swap_bytes()).map_err(u64::swap_bytes)
    }
}

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
const _: () = assert!(size_of::<Slot32Le>() == 4 && align_of::<Slot32Le>() == 4);
