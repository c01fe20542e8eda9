//! Pipes: a page of bytes each.

use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::machine::Machine as _;

use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::Wait;
use crate::{Kernel, State};

/// Pipes at the most.
pub const PIPES: usize = 64;

/// A pipe.
#[derive(Clone, Copy)]
pub struct Pipe {
    /// The object whose first page holds the bytes; 0 in a free slot.
    object: u32,
    page: Pfn,
    start: usize,
    /// Bytes that wait to be read.
    pub len: usize,
    /// Open files that read.
    pub readers: u32,
    /// Open files that write.
    pub writers: u32,
}

impl Pipe {
    /// Returns the bytes that can be written.
    pub fn room(&self) -> usize {
        FRAME_SIZE - self.len
    }

    /// Returns the place of the first run of bytes to be read: where, how many.
    pub fn readable(&self) -> (usize, usize) {
        (self.start, self.len.min(FRAME_SIZE - self.start))
    }

    /// Returns the place of the first run of bytes that can be written.
    pub fn writable(&self) -> (usize, usize) {
        let at = (self.start + self.len) % FRAME_SIZE;
        (at, self.room().min(FRAME_SIZE - at))
    }

    /// Returns the page of the bytes.
    pub fn page(&self) -> Pfn {
        self.page
    }

    /// Says that `n` bytes were read.
    pub fn consume(&mut self, n: usize) {
        let n = n.min(self.len);
        self.start = (self.start + n) % FRAME_SIZE;
        self.len -= n;
    }

    /// Says that `n` bytes were written.
    pub fn produce(&mut self, n: usize) {
        self.len = (self.len + n).min(FRAME_SIZE);
    }
}

/// All pipes.
pub struct Pipes([Pipe; PIPES]);

impl Pipes {
    /// Makes a table without pipes.
    pub const fn new() -> Self {
        let none = Pipe { object: 0, page: Pfn::NONE, start: 0, len: 0, readers: 0, writers: 0 };
        Pipes([none; PIPES])
    }

    /// Returns a pipe.
    pub fn get(&self, pipe: u16) -> &Pipe {
        &self.0[usize::from(pipe) % PIPES]
    }

    /// Returns a pipe, to be changed.
    pub fn get_mut(&mut self, pipe: u16) -> &mut Pipe {
        &mut self.0[usize::from(pipe) % PIPES]
    }
}

impl Default for Pipes {
    fn default() -> Self {
        Pipes::new()
    }
}

impl<A: Arch> Kernel<A> {
    /// Makes a pipe with one reader and one writer.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`], [`Errno::ENOMEM`].
    pub(crate) fn create_pipe(&'static self, state: &mut State) -> Result<u16, Errno> {
        let free = state.pipes.0.iter().position(|pipe| pipe.object == 0).ok_or(Errno::ENFILE)?;
        let machine = self.machine.get();
        let object = machine.objects.create(FRAME_SIZE as u64)?;
        match machine.objects.page_or_new(machine.frames(), machine.low(), object, 0) {
            Ok(page) => {
                state.pipes.0[free] = Pipe { object, page, start: 0, len: 0, readers: 1, writers: 1 };
                Ok(free as u16)
            }
            Err(e) => {
                machine.objects.release(machine.frames(), machine.low(), object);
                Err(e.into())
            }
        }
    }

    /// One end of a pipe has no open file any more.
    pub(crate) fn close_pipe(&'static self, state: &mut State, number: u16, reader: bool) {
        let pipe = state.pipes.get_mut(number);
        let users = if reader { &mut pipe.readers } else { &mut pipe.writers };
        *users = users.saturating_sub(1);
        if pipe.readers == 0 && pipe.writers == 0 {
            let object = core::mem::replace(&mut pipe.object, 0);
            let machine = self.machine.get();
            machine.objects.release(machine.frames(), machine.low(), object);
        }
        self.pipe_changed(state, number);
    }

    /// Has calls that wait for a pipe look again.
    pub(crate) fn pipe_changed(&'static self, state: &mut State, number: u16) {
        if state.tasks.wake(|wait| wait == Wait::Pipe(number) || wait == Wait::Poll) {
            self.wake_idle(state);
        }
    }
}
