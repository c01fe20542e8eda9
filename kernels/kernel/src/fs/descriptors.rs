//! The descriptors of a task.

use crate::errno::Errno;

/// Descriptors of a task at the most.
pub const DESCRIPTORS: usize = 64;

/// Which open file each descriptor of a task leads to. Open file `n` is `n + 1` here; 0 is a free
/// descriptor.
#[derive(Clone)]
pub struct Descriptors {
    files: [u16; DESCRIPTORS],
    /// Those that `exec` closes.
    closing: u64,
}

impl Descriptors {
    /// Makes a table without open files.
    pub const fn new() -> Self {
        Descriptors { files: [0; DESCRIPTORS], closing: 0 }
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

    /// Gives an open file the lowest free descriptor from `least` on.
    ///
    /// # Errors
    ///
    /// [`Errno::EMFILE`].
    pub fn add(&mut self, file: usize, least: usize, closing: bool) -> Result<usize, Errno> {
        let free = self.files.iter().skip(least).position(|file| *file == 0).ok_or(Errno::EMFILE)? + least;
        self.set(free, file, closing);
        Ok(free)
    }

    /// Gives a descriptor that is free an open file.
    pub fn set(&mut self, descriptor: usize, file: usize, closing: bool) {
        if let Some(place) = self.files.get_mut(descriptor) {
            *place = file as u16 + 1;
            self.set_closing(descriptor, closing);
        }
    }

    /// Frees a descriptor; returns its open file.
    pub fn remove(&mut self, descriptor: usize) -> Option<usize> {
        let place = self.files.get_mut(descriptor)?;
        let file = core::mem::replace(place, 0);
        self.set_closing(descriptor, false);
        usize::from(file).checked_sub(1)
    }

    /// Whether `exec` closes a descriptor.
    pub fn is_closing(&self, descriptor: usize) -> bool {
        descriptor < DESCRIPTORS && self.closing >> descriptor & 1 != 0
    }

    /// Says whether `exec` closes a descriptor.
    pub fn set_closing(&mut self, descriptor: usize, closing: bool) {
        if descriptor < DESCRIPTORS {
            self.closing = self.closing & !(1 << descriptor) | u64::from(closing) << descriptor;
        }
    }

    /// Returns the open files of all descriptors.
    pub fn each(&self) -> impl Iterator<Item = usize> + '_ {
        self.files.iter().filter_map(|file| usize::from(*file).checked_sub(1))
    }
}
