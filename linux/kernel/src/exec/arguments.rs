//! Arguments and environment of a program that is about to begin.
//!
//! The texts stand in the kernel's own memory up to [`BYTES`], and in an object from there on,
//! whose pages are given back when the program has begun, or could not. Their limits are those of
//! Linux: a quarter of the stack's, for texts and the words that lead to them.

use crate::Kernel;
use crate::arch::Arch;
use crate::errno::Errno;

/// Bytes that need no object.
pub(super) const BYTES: usize = 64 << 10;
/// Bytes of one text at the most, with its zero (`MAX_ARG_STRLEN`).
pub(super) const TEXT: usize = 128 << 10;
/// Bytes of all texts at the most, whatever the limit of the stack is; and bytes that there may be
/// always.
const MOST: u64 = 6 << 20;
const LEAST: u64 = 128 << 10;

/// Texts, each with a zero at its end: first the arguments, then the environment.
pub struct Arguments {
    pub(super) bytes: [u8; BYTES],
    pub(super) len: usize,
    /// The bytes behind [`BYTES`], if there are more.
    pub(super) more: Option<u32>,
    /// Bytes of texts, and words of `word` bytes, at the most.
    pub(super) limit: usize,
    word: usize,
    /// How many arguments.
    pub arguments: usize,
    /// How many texts of the environment.
    pub environment: usize,
    argument_bytes: usize,
}

impl Arguments {
    /// Makes a list without texts.
    pub const fn new() -> Self {
        Arguments {
            bytes: [0; BYTES],
            len: 0,
            more: None,
            limit: 0,
            word: 8,
            arguments: 0,
            environment: 0,
            argument_bytes: 0,
        }
    }

    /// Begins a list, for a program with words of `word` bytes that is found by a name of `name`
    /// bytes, with a limit of `stack` bytes for its stack.
    pub(super) fn begin(&mut self, stack: u64, word: usize, name: usize) {
        (self.len, self.arguments, self.environment, self.argument_bytes) = (0, 0, 0, 0);
        // The name stands on the stack, too. There is always a first argument.
        self.limit = ((stack / 4).clamp(LEAST, MOST) as usize).saturating_sub(name + 1);
        self.word = word;
    }

    /// Returns the number of bytes of all texts.
    pub fn total(&self) -> usize {
        self.len
    }

    /// Returns how many bytes of all texts are arguments.
    pub fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    /// Returns the room for another text that needs no object.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.len..).unwrap_or_default()
    }

    /// Notes that a text was added, of `len` bytes with its zero.
    pub(super) fn added(&mut self, environment: bool, len: usize) -> Result<(), Errno> {
        Errno::E2BIG.when(len > TEXT)?;
        self.len += len;
        if environment {
            self.environment += 1;
        } else {
            self.arguments += 1;
            self.argument_bytes = self.len;
        }
        let words = (self.arguments + self.environment) * self.word;
        Errno::E2BIG.when(self.len + words > self.limit)
    }

    /// Adds a text that needs no object: `fill` writes it to the start of its buffer, and returns
    /// its length without the zero.
    ///
    /// # Errors
    ///
    /// [`Errno::E2BIG`], and the error of `fill`.
    pub fn add(
        &mut self,
        environment: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let room = self.room();
        let n = fill(room)?;
        *room.get_mut(n).ok_or(Errno::E2BIG)? = 0;
        self.added(environment, n + 1)
    }

    /// Adds a text of the kernel's.
    ///
    /// # Errors
    ///
    /// [`Errno::E2BIG`].
    pub fn add_text(&mut self, environment: bool, text: &[u8]) -> Result<(), Errno> {
        self.add(environment, |room| {
            room.get_mut(..text.len()).ok_or(Errno::E2BIG)?.copy_from_slice(text);
            Ok(text.len())
        })
    }

    /// Calls `f` with the bytes of all texts, piece by piece.
    ///
    /// # Errors
    ///
    /// The error of `f`.
    pub fn each<A: Arch>(
        &self,
        kernel: &'static Kernel<A>,
        mut f: impl FnMut(&[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        f(self.bytes.get(..self.len.min(BYTES)).unwrap_or_default())?;
        let Some(more) = self.more else { return Ok(()) };
        let (mut at, mut piece) = (BYTES, [0; 512]);
        while at < self.len {
            let n = piece.len().min(self.len - at);
            kernel.read_object(more, (at - BYTES) as u64, &mut piece[..n]);
            f(&piece[..n])?;
            at += n;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_words_are_within_a_quarter_of_the_stack() {
        let mut arguments = Arguments::new();
        for (stack, limit) in [(0, 128 << 10), (8 << 20, 2 << 20), (u64::MAX, 6 << 20)] {
            arguments.begin(stack, 8, 4);
            assert_eq!(arguments.limit, limit - 5);
        }
        arguments.begin(0, 8, 0);
        assert_eq!(arguments.added(false, 100_000), Ok(()));
        assert_eq!(arguments.added(true, (128 << 10) - 1 - 100_000 - 16), Ok(()));
        assert_eq!((arguments.argument_bytes(), arguments.arguments, arguments.environment), (100_000, 1, 1));
        assert_eq!(arguments.added(true, 1), Err(Errno::E2BIG));
        arguments.begin(u64::MAX, 8, 0);
        assert_eq!(arguments.added(true, TEXT), Ok(()));
        assert_eq!(arguments.added(true, TEXT + 1), Err(Errno::E2BIG));
    }

    #[test]
    fn a_text_that_needs_an_object_is_not_added_without() {
        let mut arguments = Arguments::new();
        arguments.begin(u64::MAX, 8, 0);
        assert_eq!(arguments.add_text(false, &[b'x'; BYTES - 2]), Ok(()));
        assert_eq!(arguments.add_text(false, b"x"), Err(Errno::E2BIG));
        assert_eq!(arguments.add_text(false, b""), Ok(()));
        assert_eq!((arguments.total(), arguments.arguments), (BYTES, 2));
        assert_eq!(arguments.add_text(false, b""), Err(Errno::E2BIG));
    }
}
