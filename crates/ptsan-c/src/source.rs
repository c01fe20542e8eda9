//! Memory of a C program, as the sanitizer reads it.
//!
//! ```text
//!  Direct     phys - start + base ── load of 4 or 8 bytes, acquire ──> entry
//!             exchange ── SeqCst ──> accessed and dirty bits of a walker
//!  Callback   read(phys, bytes, user) ──> entry, or no memory
//! ```
//!
//! # Why
//!
//! The code under test stores entries while the sanitizer walks, on other threads too. So a walk
//! reads whole entries, and acquires: otherwise it would see a link and not the table behind it,
//! and report a defect of its own. Code that keeps tables in files or in a simulated machine gives
//! a function instead.
use crate::error::Refusal;
use ptsan::Memory;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Reads `bytes` bytes (4 or 8) at physical address `phys`, a multiple of `bytes`, into `*value`,
/// and returns true. Returns false if there is no memory at that address.
///
/// It is called on the thread that called the library, one call at a time. It must not call the
/// library, and must return (no `longjmp`, no exception).
pub type PtsanRead =
    Option<unsafe extern "C" fn(user: *mut c_void, phys: u64, bytes: u8, value: *mut u64) -> bool>;

/// Where the tables are.
pub(crate) enum Source {
    /// Bytes of the program.
    Direct {
        /// The first of them.
        base: *const u8,
        /// How many there are.
        bytes: usize,
        /// The physical address of the first.
        start: u64,
    },
    /// A function of the program.
    Callback {
        /// The function.
        read: unsafe extern "C" fn(*mut c_void, u64, u8, *mut u64) -> bool,
        /// Its first argument.
        user: *mut c_void,
    },
}

// SAFETY: 1. `direct` and `callback` require memory and function to be usable on any thread that
// calls the library. 2. Code writes through the pointers atomically alone.
unsafe impl Send for Source {}
// SAFETY: as above. Memory is read atomically, and the sanitizer's lock is held for each call of
// the function.
unsafe impl Sync for Source {}

impl Source {
    /// Reads tables from `bytes` bytes at `base`, whose first has physical address `start`.
    ///
    /// # Safety
    /// 1. The bytes are readable as long as the source is used, on every thread.
    /// 2. Code that stores to them meanwhile stores whole entries.
    pub(crate) unsafe fn direct(base: *const c_void, bytes: usize, start: u64) -> Result<Self, Refusal> {
        let base = base.cast::<u8>();
        if base.is_null() {
            return Err(Refusal::argument("memory is NULL; give the address of its first byte"));
        }
        if !base.addr().is_multiple_of(8) || !start.is_multiple_of(8) {
            let at = base.addr();
            return Err(Refusal::argument(format!(
                "memory at {at:#x} stands for physical address {start:#x}; align both to 8 bytes"
            )));
        }
        let wraps = base.addr().checked_add(bytes).is_none() || start.checked_add(bytes as u64).is_none();
        if bytes == 0 || bytes > isize::MAX as usize || wraps {
            return Err(Refusal::argument(format!(
                "memory of {bytes} bytes at physical address {start:#x}; give a size above 0 that fits behind it"
            )));
        }
        Ok(Self::Direct { base, bytes, start })
    }

    /// Reads tables by calling `read` with `user`.
    ///
    /// # Safety
    /// The function keeps to [`PtsanRead`] with this `user`, on every thread, as long as the source
    /// is used.
    pub(crate) unsafe fn callback(read: PtsanRead, user: *mut c_void) -> Result<Self, Refusal> {
        match read {
            Some(read) => Ok(Self::Callback { read, user }),
            None => Err(Refusal::argument("the function that reads memory is NULL")),
        }
    }

    /// Returns where the `bytes` bytes at a physical address are, if they are the program's and
    /// aligned.
    fn at(&self, phys: u64, bytes: u8) -> Option<*mut u8> {
        let &Self::Direct { base, bytes: len, start } = self else { return None };
        let width = usize::from(bytes);
        let offset = usize::try_from(phys.checked_sub(start)?).ok()?;
        if offset.checked_add(width)? > len || !offset.is_multiple_of(width.max(1)) {
            return None;
        }
        // SAFETY: the offset lies within the bytes that `direct` was promised.
        Some(unsafe { base.add(offset) }.cast_mut())
    }
}

/// Returns the value that was there, whether it was exchanged or not.
fn either<T>(found: Result<T, T>) -> T {
    found.unwrap_or_else(|other| other)
}

impl Memory for Source {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        match *self {
            Self::Direct { .. } => {
                let at = self.at(phys, bytes)?;
                match bytes {
                    // SAFETY: 1. The bytes from `at` are readable. 2. They are aligned, because
                    // `base` is aligned to 8 and the offset to their number. 3. Other code stores
                    // whole entries, as a program does before a page walker.
                    8 => Some(unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Acquire)),
                    // SAFETY: as above.
                    4 => Some(unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::Acquire).into()),
                    _ => None,
                }
            }
            Self::Callback { read, user } => {
                let mut value = 0;
                // SAFETY: `callback` was promised that the function may be called so.
                let there = unsafe { read(user, phys, bytes, &raw mut value) };
                let mask = if bytes == 4 { u64::from(u32::MAX) } else { u64::MAX };
                there.then_some(value & mask)
            }
        }
    }

    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        let (at, order) = (self.at(phys, bytes)?, Ordering::SeqCst);
        match bytes {
            // SAFETY: 1. The bytes from `at` are aligned, as in `read`. 2. They are readable, and
            // writable: `ptsan_new` asks for it with the flag without which no sanitizer calls
            // this.
            // 3. Other code stores whole entries, as a program does before a page walker.
            8 => Some(either(
                unsafe { AtomicU64::from_ptr(at.cast()) }.compare_exchange(old, new, order, order),
            )),
            4 => {
                let (old, new) = (u32::try_from(old).ok()?, u32::try_from(new).ok()?);
                // SAFETY: as above.
                let entry = unsafe { AtomicU32::from_ptr(at.cast()) };
                Some(u64::from(either(entry.compare_exchange(old, new, order, order))))
            }
            _ => None,
        }
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        match *self {
            Self::Direct { base, bytes: len, start } => {
                let offset = usize::try_from(phys.checked_sub(start)?).ok()?;
                let words = usize::try_from(bytes).ok()? / 8;
                if offset.checked_add(words * 8)? > len || !offset.is_multiple_of(8) {
                    return None;
                }
                // SAFETY: as in `read`, for each of the words.
                let word = |n: usize| unsafe {
                    AtomicU64::from_ptr(base.add(offset + n * 8).cast_mut().cast()).load(Ordering::Relaxed)
                };
                // Compares cache lines, without a branch for each word.
                let line = |first: usize| (first..words.min(first + 8)).fold(0, |any, n| any | word(n));
                Some((0..words).step_by(8).all(|first| line(first) == 0))
            }
            Self::Callback { .. } => {
                for at in (phys..phys.checked_add(bytes)?).step_by(8) {
                    if self.read(at, 8)? != 0 {
                        return Some(false);
                    }
                }
                Some(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_its_start_to_its_end_and_nowhere_else() {
        let words = [0x8877_6655_4433_2211_u64, 7, 0];
        // SAFETY: the words outlive the source, and no code stores to them.
        let source = unsafe { Source::direct(words.as_ptr().cast(), 24, 0x1000) }.unwrap();
        assert_eq!(source.read(0x1000, 8), Some(words[0]));
        assert_eq!(source.read(0x1004, 4), Some(words[0] >> 32));
        assert_eq!(source.read(0x1008, 8), Some(7));
        for (phys, bytes) in
            [(0x0ff8, 8), (0x1004, 8), (0x1018, 8), (0x1016, 4), (!7, 8), (0, 8), (0x1000, 3)]
        {
            assert_eq!(source.read(phys, bytes), None, "{phys:#x}, {bytes}");
        }
        assert_eq!(source.is_zero(0x1000, 16), Some(false));
        assert_eq!(source.is_zero(0x1008, 8), Some(false));
        assert_eq!(source.is_zero(0x1010, 8), Some(true));
        assert_eq!(source.is_zero(0x1010, 16), None);
    }

    #[test]
    fn an_entry_is_exchanged_in_bytes_of_the_program_alone() {
        let words = [AtomicU64::new(7), AtomicU64::new(0x2222_2222_1111_1111)];
        // SAFETY: the words outlive the source, and may be stored to through a reference.
        let source = unsafe { Source::direct(words.as_ptr().cast(), 16, 0x1000) }.unwrap();
        assert_eq!((source.exchange(0x1000, 8, 7, 9), source.read(0x1000, 8)), (Some(7), Some(9)));
        assert_eq!(source.exchange(0x1000, 8, 7, 5), Some(9), "another value is there");
        assert_eq!(source.exchange(0x100c, 4, 0x2222_2222, 3), Some(0x2222_2222));
        assert_eq!(source.read(0x1008, 8), Some(0x0000_0003_1111_1111));
        for (phys, bytes) in [(0x1010, 8), (0x0ff8, 8), (0x1004, 8), (0x1002, 4), (0x1000, 2)] {
            assert_eq!(source.exchange(phys, bytes, 0, 1), None, "{phys:#x}");
        }
        unsafe extern "C" fn none(_: *mut c_void, _: u64, _: u8, _: *mut u64) -> bool {
            true
        }
        // SAFETY: the function may be called with any pointer.
        let source = unsafe { Source::callback(Some(none), std::ptr::null_mut()) }.unwrap();
        assert_eq!(source.exchange(0x1000, 8, 0, 1), None);
    }

    #[test]
    fn memory_that_cannot_be_read_is_refused() {
        let words = [0_u64; 2];
        let base: *const c_void = words.as_ptr().cast();
        for (base, bytes, start) in [
            (std::ptr::null(), 16, 0),
            (base.wrapping_byte_add(4), 8, 0),
            (base, 16, 4),
            (base, 0, 0),
            (base, usize::MAX, 0),
            (base, 16, !7),
        ] {
            // SAFETY: refused memory is never read.
            assert!(unsafe { Source::direct(base, bytes, start) }.is_err(), "{base:?} {bytes} {start:#x}");
        }
    }
}
