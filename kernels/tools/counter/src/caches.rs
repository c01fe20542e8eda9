//! A model of caches: misses of data and of instructions in the first level, and of both in the
//! second.
//!
//! Caches have lines of 64 bytes, physical addresses, and in each set the lines that were used last
//! (LRU). A line that is missed comes into both levels. Tables that the MMU walks are not seen.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of a line.
pub const LINE: u64 = 64;
/// Kinds of misses: of data in the first level, of instructions there, of both in the second.
pub const MISSES: usize = 3;

/// The plugin models caches.
pub static MODELLED: AtomicBool = AtomicBool::new(false);

/// A cache, as the numbers of its lines.
struct Cache {
    ways: usize,
    /// For each set its lines, the last used first. No line has this number.
    lines: Vec<u64>,
}

const NO_LINE: u64 = u64::MAX;

impl Cache {
    fn new(kib: usize, ways: usize) -> Self {
        Cache { ways, lines: vec![NO_LINE; kib * 1024 / LINE as usize] }
    }

    /// Uses a line; returns whether it was there.
    fn touch(&mut self, line: u64) -> bool {
        let sets = self.lines.len() / self.ways;
        let first = (line % sets as u64) as usize * self.ways;
        let set = &mut self.lines[first..first + self.ways];
        let found = set.iter().position(|other| *other == line);
        set[..=found.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = line;
        found.is_some()
    }
}

/// The caches of a CPU.
pub struct Caches {
    data: Cache,
    code: Cache,
    second: Cache,
    /// The line of the last instruction.
    last: u64,
    /// Misses so far.
    pub misses: [u64; MISSES],
}

impl Default for Caches {
    /// 32 KiB of 8 ways for each of data and instructions, 1 MiB of 16 ways behind them.
    fn default() -> Self {
        Caches {
            data: Cache::new(32, 8),
            code: Cache::new(32, 8),
            second: Cache::new(1024, 16),
            last: NO_LINE,
            misses: [0; MISSES],
        }
    }
}

impl Caches {
    /// Looks for a line that the first level lacks, for a kind of access.
    fn miss(&mut self, kind: usize, line: u64) {
        self.misses[kind] += 1;
        self.misses[2] += u64::from(!self.second.touch(line));
    }

    /// An access to data at a physical address.
    pub fn access(&mut self, at: u64) {
        if !self.data.touch(at / LINE) {
            self.miss(0, at / LINE);
        }
    }

    /// Executes instructions in a line.
    pub fn execute(&mut self, line: u64) {
        if line != self.last && !self.code.touch(line) {
            self.miss(1, line);
        }
        self.last = line;
    }
}

/// Whether caches are modelled.
pub fn are_modelled() -> bool {
    MODELLED.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_was_used_longest_ago_goes() {
        // Two sets of two ways.
        let mut cache = Cache { ways: 2, lines: vec![NO_LINE; 4] };
        let touches = |cache: &mut Cache, lines: &[u64]| -> Vec<bool> {
            lines.iter().map(|line| cache.touch(*line)).collect()
        };
        assert_eq!(touches(&mut cache, &[0, 2, 0, 1]), [false, false, true, false]);
        // 2 goes, and not 0, which was used behind it; 1 is in the other set.
        assert_eq!(touches(&mut cache, &[4, 0, 1, 2]), [false, true, true, false]);
        assert_eq!(touches(&mut cache, &[0, 4]), [true, false]);
    }

    #[test]
    fn misses_are_counted_by_kind() {
        let mut caches = Caches::default();
        // 64 KiB twice: more than the first level, less than the second.
        for _ in 0..2 {
            (0..1024).for_each(|line| caches.access(line * LINE + 8));
        }
        assert_eq!(caches.misses, [2048, 0, 1024]);
        // 16 KiB of instructions of their own, each line twice in a row.
        for _ in 0..2 {
            (1 << 20..(1 << 20) + 256).for_each(|line| {
                caches.execute(line);
                caches.execute(line);
            });
        }
        assert_eq!(caches.misses, [2048, 256, 1280]);
    }
}
