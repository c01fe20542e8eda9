//! Structures that programs and the kernel exchange, as bytes.

use crate::arch::Abi;

/// Bytes that are put together field by field.
pub struct Layout<const N: usize> {
    bytes: [u8; N],
    len: usize,
    word: usize,
}

impl<const N: usize> Layout<N> {
    /// Makes an empty one.
    pub fn new(abi: Abi) -> Self {
        Layout { bytes: [0; N], len: 0, word: abi.word() }
    }

    /// Adds the lowest `size` bytes of a number; bytes that do not fit are left out.
    pub fn put(&mut self, size: usize, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes()[..size])
    }

    /// Adds a number of two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.put(2, value.into())
    }

    /// Adds a number of four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.put(4, value.into())
    }

    /// Adds a number of eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.put(8, value)
    }

    /// Adds a word of the program's size.
    pub fn word(&mut self, value: u64) -> &mut Self {
        self.put(self.word, value)
    }

    /// Goes on at byte `at`.
    pub fn at(&mut self, at: usize) -> &mut Self {
        self.len = at.min(N);
        self
    }

    /// Adds bytes; those that do not fit are left out.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        self
    }

    /// Returns the bytes that were added.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
