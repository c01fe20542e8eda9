//! The descriptors of a process.

use core::ops::Range;

use crate::errno::Errno;

/// Descriptors of a process at the most.
pub const DESCRIPTORS: usize = 512;

const BITS: usize = u64::BITS as usize;

/// Which open file each descriptor of a process leads to. Open file `n` is `n + 1` here; 0 is a
/// free descriptor.
pub struct Descriptors {
    files: [u16; DESCRIPTORS],
    /// All from here on are free.
    end: usize,
    /// Those that `exec` closes.
    closing: [u64; DESCRIPTORS / BITS],
}

impl Descriptors {
    /// Makes a table without open files.
    pub const fn new() -> Self {
        Descriptors { files: [0; DESCRIPTORS], end: 0, closing: [0; DESCRIPTORS / BITS] }
    }

    /// Makes the table one of the same files as `other`.
    pub fn copy_from(&mut self, other: &Descriptors) {
        let n = self.end.max(other.end);
        if let (Some(to), Some(from)) = (self.files.get_mut(..n), other.files.get(..n)) {
            to.copy_from_slice(from);
        }
        (self.end, self.closing) = (other.end, other.closing);
    }

    /// Returns the first descriptor behind all that are open.
    pub fn end(&self) -> usize {
        self.end
    }

    /// Whether all descriptors below `most` are open.
    pub fn is_full(&self, most: usize) -> bool {
        let most = most.min(DESCRIPTORS);
        self.end >= most && self.files.iter().take(most).all(|file| *file != 0)
    }

    /// Returns the open file of a descriptor.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`].
    pub fn get(&self, descriptor: usize) -> Result<usize, Errno> {
        match self.files.get(descriptor) {
            Some(0) | None => Err(Errno::EBADF),
            Some(file) => Ok(usize::from(*file) - 1),
        }
    }

    /// Gives an open file the lowest free descriptor of a range.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`].
    pub fn add(&mut self, file: usize, mut among: Range<usize>, closing: bool) -> Result<usize, Errno> {
        among.end = among.end.min(DESCRIPTORS);
        let free = among.find(|descriptor| self.get(*descriptor).is_err()).ok_or(Errno::EMFILE)?;
        self.set(free, file, closing);
        Ok(free)
    }

    /// Gives a descriptor that is free an open file.
    pub fn set(&mut self, descriptor: usize, file: usize, closing: bool) {
        if let Some(place) = self.files.get_mut(descriptor) {
            *place = file as u16 + 1;
            self.end = self.end.max(descriptor + 1);
            self.set_closing(descriptor, closing);
        }
    }

    /// Frees a descriptor; returns its open file.
    pub fn remove(&mut self, descriptor: usize) -> Option<usize> {
        let place = self.files.get_mut(descriptor)?;
        let file = usize::from(core::mem::replace(place, 0)).checked_sub(1)?;
        self.set_closing(descriptor, false);
        if descriptor + 1 == self.end {
            let below = self.files.get(..descriptor).unwrap_or_default();
            self.end = below.iter().rposition(|file| *file != 0).map_or(0, |last| last + 1);
        }
        Some(file)
    }

    /// Whether `exec` closes a descriptor.
    pub fn is_closing(&self, descriptor: usize) -> bool {
        self.closing.get(descriptor / BITS).is_some_and(|bits| bits >> (descriptor % BITS) & 1 != 0)
    }

    /// Says whether `exec` closes a descriptor.
    pub fn set_closing(&mut self, descriptor: usize, closing: bool) {
        if let Some(bits) = self.closing.get_mut(descriptor / BITS) {
            *bits = *bits & !(1 << (descriptor % BITS)) | u64::from(closing) << (descriptor % BITS);
        }
    }

    /// Returns the first descriptor that `exec` closes.
    pub fn first_closing(&self) -> Option<usize> {
        let (word, bits) = self.closing.iter().enumerate().find(|(_, bits)| **bits != 0)?;
        Some(word * BITS + bits.trailing_zeros() as usize)
    }

    /// Returns the open files of all descriptors.
    pub fn each(&self) -> impl Iterator<Item = usize> + '_ {
        let used = self.files.get(..self.end).unwrap_or_default();
        used.iter().filter_map(|file| usize::from(*file).checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_lowest_free_descriptor_of_a_range_is_given() {
        let mut files = Descriptors::new();
        for descriptor in 0..DESCRIPTORS {
            assert_eq!(files.add(descriptor + 7, 0..usize::MAX, false), Ok(descriptor));
        }
        assert_eq!(files.add(1, 0..usize::MAX, false), Err(Errno::EMFILE));
        assert!(files.is_full(DESCRIPTORS) && files.is_full(usize::MAX) && files.is_full(0));
        assert_eq!([files.remove(300), files.remove(300), files.remove(70)], [Some(307), None, Some(77)]);
        assert!(!files.is_full(71) && files.is_full(70));
        assert_eq!(files.add(1, 71..300, false), Err(Errno::EMFILE));
        assert_eq!(files.add(1, 71..301, false), Ok(300));
        assert_eq!(
            (files.get(70), files.get(71), files.get(DESCRIPTORS)),
            (Err(Errno::EBADF), Ok(78), Err(Errno::EBADF))
        );
    }

    #[test]
    fn the_end_follows_the_last_one_that_is_open() {
        let mut files = Descriptors::new();
        for descriptor in [0, 1, 2, 200] {
            files.set(descriptor, descriptor, false);
        }
        assert_eq!((files.end(), files.each().collect::<Vec<_>>()), (201, Vec::from([0, 1, 2, 200])));
        let mut copy = Descriptors::new();
        copy.set(400, 9, true);
        copy.copy_from(&files);
        assert_eq!((copy.end(), copy.get(400), copy.first_closing()), (201, Err(Errno::EBADF), None));
        for (descriptor, end) in [(1, 201), (200, 3), (2, 1), (0, 0)] {
            assert_eq!((copy.remove(descriptor), copy.end()), (Some(descriptor), end));
        }
    }

    #[test]
    fn a_descriptor_that_is_freed_is_not_closed_by_exec() {
        let mut files = Descriptors::new();
        for descriptor in [3, 64, 511] {
            files.set(descriptor, 1, true);
        }
        files.set_closing(64, false);
        assert_eq!(
            [3, 64, 511, 512].map(|descriptor| files.is_closing(descriptor)),
            [true, false, true, false]
        );
        let mut closed = Vec::new();
        while let Some(descriptor) = files.first_closing() {
            closed.push(descriptor);
            files.remove(descriptor);
        }
        assert_eq!(closed, [3, 511]);
    }
}
