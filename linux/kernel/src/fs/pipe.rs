//! Pipes: a ring of bytes each, in pages that come with the bytes.

use ptarmigan::addr::{FRAME_SIZE, Pfn};

use crate::arch::Arch;
use crate::errno::Errno;
use crate::task::Wait;
use crate::timer::Changes;
use crate::{Kernel, State};

/// Pipes at the most.
pub const PIPES: usize = 64;
/// Bytes that a new pipe holds, as on Linux.
const CAPACITY: usize = 16 * FRAME_SIZE;
/// Bytes that a pipe may hold, as on Linux.
const MOST: u64 = 1 << 31;
/// `PIPE_BUF`: writes of at most so many bytes are not torn.
pub const PIPE_BUF: usize = FRAME_SIZE;

/// A pipe.
#[derive(Clone, Copy)]
pub struct Pipe {
    /// The object whose pages hold the bytes; 0 in a free slot.
    object: u32,
    /// Bytes that it holds: whole pages, a power of two.
    pub capacity: usize,
    start: usize,
    /// Whether a page beyond the first may have a frame.
    wide: bool,
    /// Reads and writes so far, and closed ends: how often it became ready to be read, and to be
    /// written.
    pub changes: Changes,
    /// Bytes that wait to be read.
    pub len: usize,
    /// Open files that read.
    pub readers: u32,
    /// Open files that write.
    pub writers: u32,
}

/// A run of bytes in one page of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeRun {
    /// The page, in the pipe's ring.
    pub page: u64,
    /// The first byte in the page.
    pub at: usize,
    /// The number of bytes.
    pub len: usize,
}

impl PipeRun {
    /// Returns the run of at most `most` bytes from byte `at` of a ring of `capacity` bytes on.
    fn new(at: usize, capacity: usize, most: usize) -> Self {
        let (page, at) = ((at & (capacity - 1)) / FRAME_SIZE, at % FRAME_SIZE);
        PipeRun { page: page as u64, at, len: most.min(FRAME_SIZE - at) }
    }
}

impl Pipe {
    const NONE: Pipe = Pipe {
        object: 0,
        capacity: CAPACITY,
        start: 0,
        wide: false,
        changes: (0, 0),
        len: 0,
        readers: 0,
        writers: 0,
    };

    /// Returns the bytes that can be written.
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Returns the first run of bytes to be read.
    pub fn readable(&self) -> PipeRun {
        PipeRun::new(self.start, self.capacity, self.len)
    }

    /// Returns the first run of bytes that can be written.
    pub fn writable(&self) -> PipeRun {
        PipeRun::new(self.start + self.len, self.capacity, self.room())
    }

    /// Says that `n` bytes were read. An empty ring begins at its first page.
    fn consume(&mut self, n: usize) {
        let n = n.min(self.len);
        self.len -= n;
        self.changes.1 += 1;
        self.start = if self.len == 0 { 0 } else { (self.start + n) & (self.capacity - 1) };
    }

    /// Says that `n` bytes were written.
    pub fn produce(&mut self, n: usize) {
        self.len = (self.len + n).min(self.capacity);
        self.changes.0 += 1;
    }
}

/// All pipes.
pub struct Pipes([Pipe; PIPES]);

impl Pipes {
    /// Makes a table without pipes.
    pub const fn new() -> Self {
        Pipes([Pipe::NONE; PIPES])
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

impl<A: Arch> Kernel<A> {
    /// Makes a pipe with one reader and one writer.
    ///
    /// # Errors
    ///
    /// [`Errno::ENFILE`], [`Errno::ENOMEM`].
    pub(crate) fn create_pipe(&'static self, state: &mut State) -> Result<u16, Errno> {
        let free = state.pipes.0.iter().position(|pipe| pipe.object == 0).ok_or(Errno::ENFILE)?;
        let object = self.objects().create(CAPACITY as u64)?;
        state.pipes.0[free] = Pipe { object, readers: 1, writers: 1, ..Pipe::NONE };
        Ok(free as u16)
    }

    /// Returns the frame of a page of a pipe that has bytes; `None` if the page has no frame.
    pub(crate) fn pipe_page(&'static self, state: &State, number: u16, page: u64) -> Option<Pfn> {
        self.objects().page(state.pipes.get(number).object, page)
    }

    /// Makes the pages of the next `len` bytes that are written to a pipe, of which there is room.
    /// Returns the frame of the first.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`].
    pub(crate) fn make_pipe_pages(
        &'static self,
        state: &mut State,
        number: u16,
        len: usize,
    ) -> Result<Pfn, Errno> {
        let (machine, pipe) = (self.machine.get(), state.pipes.get_mut(number));
        let make = |page| machine.objects().page_or_new(pipe.object, page);
        let first = pipe.writable();
        let (mut made, page) = (first.len, make(first.page)?);
        pipe.wide |= first.page > 0;
        while made < len {
            let run = PipeRun::new(pipe.start + pipe.len + made, pipe.capacity, len - made);
            make(run.page)?;
            pipe.wide |= run.page > 0;
            made += run.len;
        }
        Ok(page)
    }

    /// Has a pipe hold `bytes` bytes, rounded up to a power of two of pages; returns how many.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for more than Linux has, [`Errno::EBUSY`] if it has more bytes,
    /// [`Errno::ENOMEM`].
    pub(crate) fn resize_pipe(
        &'static self,
        state: &mut State,
        number: u16,
        bytes: u64,
    ) -> Result<u64, Errno> {
        Errno::EINVAL.when(bytes > MOST)?;
        let bytes = bytes.max(FRAME_SIZE as u64).next_power_of_two();
        let pipe = *state.pipes.get(number);
        Errno::EBUSY.when((pipe.len as u64) > bytes)?;
        let capacity = usize::try_from(bytes).map_err(|_| Errno::ENOMEM)?;
        let object = self.objects().create(bytes).map_err(|_| Errno::ENOMEM)?;
        let mut new = Pipe { object, capacity, start: 0, len: 0, wide: false, ..pipe };
        let mut left = pipe;
        while left.len > 0 {
            let (from, to) = (left.readable(), new.writable());
            let mut bytes = [0; 512];
            let n = from.len.min(to.len).min(bytes.len());
            let place = |run: PipeRun| run.page * FRAME_SIZE as u64 + run.at as u64;
            self.read_object(pipe.object, place(from), &mut bytes[..n]);
            self.write_object(object, place(to), &bytes[..n])
                .inspect_err(|_| self.objects().release(object))?;
            left.consume(n);
            new.produce(n);
            new.wide |= to.page > 0;
        }
        new.changes = pipe.changes;
        *state.pipes.get_mut(number) = new;
        self.objects().release(pipe.object);
        // There may be room now.
        self.pipe_changed(state, number);
        Ok(bytes)
    }

    /// Says that `n` bytes of a pipe were read. An empty pipe keeps one page.
    pub(crate) fn consume_pipe(&'static self, state: &mut State, number: u16, n: usize) {
        let (machine, pipe) = (self.machine.get(), state.pipes.get_mut(number));
        pipe.consume(n);
        if pipe.len == 0 && core::mem::take(&mut pipe.wide) {
            // The pipe is the object's only user, so that pages beyond the size are given back.
            // Both sizes are within the most.
            for size in [FRAME_SIZE, pipe.capacity] {
                let _ = machine.objects().set_size(pipe.object, size as u64);
            }
        }
    }

    /// One end of a pipe has no open file any more.
    pub(crate) fn close_pipe(&'static self, state: &mut State, number: u16, reader: bool) {
        let pipe = state.pipes.get_mut(number);
        let users = if reader { &mut pipe.readers } else { &mut pipe.writers };
        *users = users.saturating_sub(1);
        pipe.changes = (pipe.changes.0 + 1, pipe.changes.1 + 1);
        if pipe.readers == 0 && pipe.writers == 0 {
            let object = core::mem::replace(&mut pipe.object, 0);
            self.objects().release(object);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_round_the_ring_in_runs_within_pages() {
        let mut pipe = Pipe::NONE;
        assert_eq!(pipe.writable(), PipeRun { page: 0, at: 0, len: FRAME_SIZE });
        assert_eq!(pipe.readable().len, 0);
        pipe.produce(CAPACITY);
        assert_eq!((pipe.room(), pipe.writable().len), (0, 0));
        pipe.consume(100);
        assert_eq!(pipe.readable(), PipeRun { page: 0, at: 100, len: FRAME_SIZE - 100 });
        assert_eq!(pipe.writable(), PipeRun { page: 0, at: 0, len: 100 });
        pipe.consume(15 * FRAME_SIZE);
        pipe.produce(200);
        assert_eq!(pipe.readable(), PipeRun { page: 15, at: 100, len: FRAME_SIZE - 100 });
        assert_eq!(pipe.writable(), PipeRun { page: 0, at: 200, len: FRAME_SIZE - 200 });
        // An empty pipe begins at the first page again.
        pipe.consume(CAPACITY);
        assert_eq!((pipe.len, pipe.writable()), (0, PipeRun { page: 0, at: 0, len: FRAME_SIZE }));
    }
}
