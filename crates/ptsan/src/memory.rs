//! Reads physical memory for the walker.
//!
//! ```text
//!  walker of CPU 1    read(entry) ── acquire ──> reads the table that it links
//!  code under test    fills the table ── store(entry), release ──┘
//!  walker             exchange(entry: old -> old + accessed) ── another store came between: no bit
//! ```
//!
//! # Why
//!
//! Tests keep tables in plain bytes, in atomics that threads share, or in a simulated machine, so
//! that memory is a trait and a closure is enough. A walk reads each entry with acquire: otherwise
//! the walk could see a link and not the entries that were stored before it, and the sanitizer
//! would report a table that was right. A walker that sets bits exchanges the entry. A plain store
//! would undo a store of the code under test, and the sanitizer itself would make the bug that it
//! looks for.
use std::sync::atomic::{AtomicU64, Ordering};

/// Physical memory that holds page tables.
///
/// Implemented for bytes (address 0 is the first byte, little-endian), for atomic words (which
/// threads can share), and for closures `Fn(phys, bytes) -> Option<u64>`.
/// ```
/// use ptsan::{Arch, Memory, Session};
/// use std::collections::HashMap;
///
/// let words: HashMap<u64, u64> = [(0x1000, 0x83)].into();
/// let word = |phys| words.get(&phys).copied().unwrap_or(0);
/// let memory = |phys: u64, _bytes: u8| (phys < 1 << 20).then(|| word(phys));
/// assert_eq!(memory.is_zero(0x2000, 4096), Some(true));
/// let mut s = Session::new(Arch::x86_2level(), memory);
/// s.load(0x1000);
/// # let _ = s.sanitizer.total();
/// ```
pub trait Memory {
    /// Reads an entry of `bytes` bytes (4 or 8) at physical address `phys`, which is a multiple of
    /// `bytes`.
    ///
    /// `None` means that there is no memory at that address; the sanitizer reports it.
    fn read(&self, phys: u64, bytes: u8) -> Option<u64>;

    /// Returns whether the `bytes` bytes at `phys` are all zero, or `None` if some are outside
    /// memory. Both arguments are multiples of 8.
    ///
    /// Override it where whole tables can be compared faster than word by word.
    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        for at in (phys..phys.checked_add(bytes)?).step_by(8) {
            if self.read(at, 8)? != 0 {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Replaces an entry of `bytes` bytes at `phys` by `new` if it is `old`, in one piece, and
    /// returns the entry that was there. `None` means that walkers cannot store here, as in all
    /// memories that do not override it.
    ///
    /// Walkers that set accessed and dirty bits call it: see
    /// [`Config::walkers_set_bits`](crate::Config::walkers_set_bits). It is no store of the code
    /// under test.
    /// ```
    /// use ptsan::Memory;
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let ram = vec![AtomicU64::new(0x9007)];
    /// assert_eq!((ram.exchange(0, 8, 0x9007, 0x9067), ram.read(0, 8)), (Some(0x9007), Some(0x9067)));
    /// assert_eq!(vec![0u8; 8].exchange(0, 8, 0, 1), None);
    /// ```
    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        let _ = (phys, bytes, old, new);
        None
    }
}

/// Exchanges an entry of 4 or 8 bytes in the word that holds it, as [`Memory::exchange`] does.
/// `offset` is that of the entry in the word.
pub(crate) fn exchange_in_word(
    word: &AtomicU64,
    (offset, bytes): (u64, u8),
    (old, new): (u64, u64),
) -> Option<u64> {
    let (shift, mask) = match (bytes, offset) {
        (8, 0) => (0, u64::MAX),
        (4, 0 | 4) => (8 * offset, u64::from(u32::MAX)),
        _ => return None,
    };
    let entry = |word: u64| word >> shift & mask;
    let replaced = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
        (entry(word) == old).then_some(word & !(mask << shift) | (new & mask) << shift)
    });
    Some(entry(replaced.unwrap_or_else(|other| other)))
}

impl<F: Fn(u64, u8) -> Option<u64>> Memory for F {
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        self(phys, bytes)
    }
}

impl Memory for [u8] {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        let start = usize::try_from(phys).ok()?;
        let raw = self.get(start..start.checked_add(usize::from(bytes))?)?;
        Some(match *raw {
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        })
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        let start = usize::try_from(phys).ok()?;
        let raw = self.get(start..start.checked_add(usize::try_from(bytes).ok()?)?)?;
        // Compares cache lines, without a branch for each word.
        let any = |words: &[[u8; 8]]| words.iter().fold(0, |any, word| any | u64::from_ne_bytes(*word));
        let (words, tail) = raw.as_chunks::<8>();
        let (lines, rest) = words.as_chunks::<8>();
        Some(lines.iter().all(|line| any(line) == 0) && any(rest) == 0 && tail.iter().all(|byte| *byte == 0))
    }
}

impl Memory for Vec<u8> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        self.as_slice().read(phys, bytes)
    }

    fn is_zero(&self, phys: u64, bytes: u64) -> Option<bool> {
        self.as_slice().is_zero(phys, bytes)
    }
}

impl Memory for [AtomicU64] {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        let word = self.get(usize::try_from(phys / 8).ok()?)?.load(Ordering::Acquire);
        match (bytes, phys % 8) {
            (8, 0) => Some(word),
            (4, offset @ (0 | 4)) => Some(word >> (8 * offset) & u64::from(u32::MAX)),
            _ => None,
        }
    }

    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        let word = self.get(usize::try_from(phys / 8).ok()?)?;
        exchange_in_word(word, (phys % 8, bytes), (old, new))
    }
}

impl Memory for Vec<AtomicU64> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        self.as_slice().read(phys, bytes)
    }

    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        self.as_slice().exchange(phys, bytes, old, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_words_read_as_their_bytes_do() {
        let words = vec![AtomicU64::new(0x8877_6655_4433_2211), AtomicU64::new(7)];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        for at in (0..24).step_by(4) {
            assert_eq!(words.read(at, 4), bytes.read(at, 4), "{at}");
        }
        for at in [0, 8, 16, !7] {
            assert_eq!(words.read(at, 8), bytes.read(at, 8), "{at}");
        }
    }

    #[test]
    fn an_exchange_needs_the_old_entry_and_spares_neighbours() {
        let words = vec![AtomicU64::new(0x2222_2222_1111_1111), AtomicU64::new(7)];
        assert_eq!(words.exchange(4, 4, 0x2222_2222, 0x3333_3333), Some(0x2222_2222));
        assert_eq!(words.exchange(0, 4, 0x1111_1110, 5), Some(0x1111_1111), "another one is there");
        assert_eq!(words.read(0, 8), Some(0x3333_3333_1111_1111));
        assert_eq!((words.exchange(8, 8, 7, u64::MAX), words.read(8, 8)), (Some(7), Some(u64::MAX)));
        for (phys, bytes) in [(16, 8), (4, 8), (2, 4), (0, 2), (!7, 8)] {
            assert_eq!(words.exchange(phys, bytes, 7, 8), None, "{phys:#x} {bytes}");
        }
    }

    #[test]
    fn bytes_are_zero_if_each_is_at_any_alignment() {
        for (at, bytes) in [(0u64, 64u64), (8, 56), (8, 200), (64, 136), (24, 8), (72, 12), (0, 0)] {
            let mut memory = vec![1u8; 512];
            memory[at as usize..][..bytes as usize].fill(0);
            assert_eq!(memory.is_zero(at, bytes), Some(true), "{at} {bytes}");
            for one in (at..at + bytes).step_by(3).chain((at + bytes).checked_sub(1).filter(|_| bytes > 0)) {
                memory[one as usize] = 0x80;
                assert_eq!(memory.is_zero(at, bytes), Some(false), "{at} {bytes} {one}");
                memory[one as usize] = 0;
            }
        }
        assert_eq!(vec![0u8; 64].is_zero(0, 72), None);
    }
}
