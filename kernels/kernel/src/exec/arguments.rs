//! Arguments and environment of a program that is about to begin.

use crate::errno::Errno;

/// Bytes of all texts together at the most.
const BYTES: usize = 64 << 10;
/// Texts at the most.
pub const TEXTS: usize = 1024;

/// Texts, each with a zero at its end: first the arguments, then the environment.
pub struct Arguments {
    bytes: [u8; BYTES],
    len: usize,
    /// How many arguments.
    pub arguments: usize,
    /// How many texts of the environment.
    pub environment: usize,
}

impl Arguments {
    /// Makes a list without texts.
    pub const fn new() -> Self {
        Arguments { bytes: [0; BYTES], len: 0, arguments: 0, environment: 0 }
    }

    /// Removes all texts.
    pub fn clear(&mut self) {
        (self.len, self.arguments, self.environment) = (0, 0, 0);
    }

    /// Returns the bytes of all texts.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns how many bytes of all texts are arguments.
    pub fn argument_bytes(&self) -> usize {
        let texts = self.bytes().split_inclusive(|byte| *byte == 0);
        texts.take(self.arguments).map(<[u8]>::len).sum()
    }

    /// Adds a text: `fill` writes it to the start of its buffer, and returns its length without the
    /// zero.
    ///
    /// # Errors
    ///
    /// [`Errno::E2BIG`], and the error of `fill`.
    pub fn add(
        &mut self,
        environment: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        Errno::E2BIG.when(self.arguments + self.environment >= TEXTS)?;
        let room = &mut self.bytes[self.len..];
        let n = match fill(room) {
            Err(Errno::ENAMETOOLONG) => return Err(Errno::E2BIG),
            result => result?,
        };
        *room.get_mut(n).ok_or(Errno::E2BIG)? = 0;
        self.len += n + 1;
        *(if environment { &mut self.environment } else { &mut self.arguments }) += 1;
        Ok(())
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
}
