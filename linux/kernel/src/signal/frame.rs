//! Reads and writes fields of the frame of a signal's handler.

const WORD: usize = size_of::<usize>();

/// Writes bytes at a place; those that do not fit are left out.
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, value: &[u8; N]) {
    if let Some(place) = bytes.get_mut(at..at + N) {
        place.copy_from_slice(value);
    }
}

/// Writes words of the machine's size, one after the other.
pub fn put_words(bytes: &mut [u8], at: usize, words: &[usize]) {
    for (i, word) in words.iter().enumerate() {
        put(bytes, at + i * WORD, &word.to_le_bytes());
    }
}

/// Returns the bytes at a place; zeroes if the frame ends before.
pub fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|found| found.try_into().ok()).unwrap_or([0; N])
}

/// Returns the word at a place.
pub fn get_word(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(get(bytes, at))
}
