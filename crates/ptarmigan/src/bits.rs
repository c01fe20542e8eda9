//! Sets of small numbers, as words of 64 bits.

/// Returns the first number from `from` on that is in the set `words`, or is not.
pub(crate) fn next(words: &[u64], from: usize, is_in: bool) -> Option<usize> {
    const BITS: usize = u64::BITS as usize;
    let mut seen = u64::MAX << (from % BITS);
    for (at, word) in words.iter().enumerate().skip(from / BITS) {
        let found = if is_in { *word } else { !*word } & seen;
        if found != 0 {
            return Some(at * BITS + found.trailing_zeros() as usize);
        }
        seen = u64::MAX;
    }
    None
}
