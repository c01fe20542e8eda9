//! Reading and writing open files, to and from the memory of programs.

use ptarmigan::addr::{FRAME_SIZE, Pfn};
use ptarmigan::format::Access;

use super::blocking::waits;
use super::console;
use super::open::What;
use super::pipe::{PIPE_BUF, PipeRun};
use super::tree::{Device, Kind, Proc};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::machine::stored;
use crate::signal::info::{SI_USER, SignalInfo};
use crate::signal::number;
use crate::syscall::{Stop, Sys};
use crate::task::Wait;

const PAGE: u64 = FRAME_SIZE as u64;
/// `O_APPEND`.
pub const APPEND: u32 = 0o2000;
/// Bytes of one call at the most.
const MOST: usize = 1 << 30;

impl<A: Arch> Sys<'_, A> {
    /// Reads from an open file at its position, or at `at` if that is said; how many bytes.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it may not be read, [`Errno::EISDIR`], [`Errno::EFAULT`],
    /// [`Errno::EAGAIN`]; or the call waits.
    pub fn read_file(&mut self, file: usize, to: u64, len: usize, at: Option<u64>) -> Result<usize, Stop> {
        let open = *self.state.open.get(file);
        Errno::EBADF.when(!open.reads())?;
        let len = len.min(MOST);
        let inode = match open.what {
            What::Inode(inode) => inode,
            What::PipeRead(pipe) => return self.read_pipe(pipe, to, len, open.flags),
            What::Counter(counter) => return self.read_counter(counter, to, len, open.flags),
            What::Timer(timer) => return self.read_timer(timer, to, len, open.flags),
            What::Set(_) => return Err(Errno::EINVAL.into()),
            What::PipeWrite(_) | What::Nothing => return Err(Errno::EBADF.into()),
        };
        let offset = at.unwrap_or(open.offset);
        let n = match self.state.tree.get(inode).kind {
            Kind::File(object) => self.read_pages(object, offset, to, len)?,
            Kind::Device(Device::Null) => 0,
            Kind::Device(Device::Zero | Device::Full) => {
                let on = self.on();
                self.space().clear(on, to, len)?;
                len
            }
            Kind::Device(Device::Random | Device::Urandom) => self.random_bytes(to, len)?,
            Kind::Device(Device::Console) => return self.read_console(to, len, open.flags),
            Kind::Proc(what) => self.read_text_file(what, file, offset, to, len)?,
            Kind::Directory => return Err(Errno::EISDIR.into()),
            Kind::Free | Kind::Link(_) | Kind::Name(_) | Kind::Magic(_) => return Err(Errno::EBADF.into()),
        };
        if at.is_none() {
            self.state.open.get_mut(file).offset = offset + n as u64;
        }
        Ok(n)
    }

    /// Copies pages of an object to the program; how many bytes there were.
    fn read_pages(&mut self, object: u32, offset: u64, to: u64, len: usize) -> Result<usize, Errno> {
        let (on, machine) = (self.on(), self.kernel.machine.get());
        let left = machine.objects().size(object).saturating_sub(offset);
        let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        self.space().each_piece(on, to, len, Access::Write, |to, done, n| {
            let mut moved = 0;
            while moved < n {
                let at = offset + (done + moved) as u64;
                let from = (at % PAGE) as usize;
                let step = (FRAME_SIZE - from).min(n - moved);
                let target = to.wrapping_add(moved);
                match machine.objects().page(object, at / PAGE) {
                    // SAFETY: 1. `each_piece` passes `n` bytes of the program's, of which these are
                    // a part.
                    None => unsafe { target.write_bytes(0, step) },
                    Some(pfn) => A::page(on.pin(), pfn, |page| {
                        // SAFETY: 1. As above for the target. 2. The page is the object's, which
                        // stays while the kernel lock is held, and `from + step` bytes lie in it.
                        // The program may have mapped it, at `to` even: hence `copy`.
                        unsafe { target.copy_from(page.wrapping_add(from), step) }
                    })?,
                }
                moved += step;
            }
            Ok(())
        })?;
        Ok(len)
    }

    /// Reads an open file of `/proc`.
    fn read_text_file(
        &mut self,
        what: Proc,
        file: usize,
        offset: u64,
        to: u64,
        len: usize,
    ) -> Result<usize, Errno> {
        let text = match what {
            Proc::Own(own) => {
                let open = self.state.open.get(file);
                let (process, mut mark) = (open.process, open.mark);
                let text = self.own_text(own, process, offset, &mut mark)?;
                self.state.open.get_mut(file).mark = mark;
                text
            }
            what => self.kernel.proc_text(self.state, what, offset),
        };
        let bytes = &text.bytes()[..text.bytes().len().min(len)];
        self.write_bytes(to, bytes)?;
        Ok(bytes.len())
    }

    fn read_console(&mut self, to: u64, len: usize, flags: u32) -> Result<usize, Stop> {
        self.kernel.take_typed(self.state);
        if len == 0 {
            return Ok(0);
        }
        if !self.state.console.is_readable() {
            return Err(waits(flags, Wait::Console));
        }
        let mut bytes = [0; 256];
        let most = len.min(bytes.len());
        let n = self.state.console.take(&mut bytes[..most]);
        self.write_bytes(to, &bytes[..n])?;
        Ok(n)
    }

    fn read_pipe(&mut self, number: u16, to: u64, len: usize, flags: u32) -> Result<usize, Stop> {
        let mut done = 0;
        while done < len {
            let PipeRun { page, at, len: most } = self.state.pipes.get(number).readable();
            let n = most.min(len - done);
            let Some(frame) = self.kernel.pipe_page(self.state, number, page).filter(|_| n > 0) else {
                break;
            };
            let copied = self.each_with(frame, to + done as u64, n, Access::Write, |to, page, step| {
                // SAFETY: 1. `step` bytes of the program's. 2. As many of the pipe's page, which no
                // program maps.
                unsafe { to.copy_from_nonoverlapping(page.wrapping_add(at), step) };
            });
            match copied {
                Err(e) if done == 0 => return Err(e.into()),
                Err(_) => break,
                Ok(()) => self.kernel.consume_pipe(self.state, number, n),
            }
            done += n;
        }
        let is_over = len == 0 || self.state.pipes.get(number).writers == 0;
        self.pipe_done(number, done, is_over, flags)
    }

    /// Writes to an open file at its position, or at `at` if that is said; how many bytes.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] if it may not be written, [`Errno::EFAULT`], [`Errno::EPIPE`],
    /// [`Errno::EAGAIN`], [`Errno::ENOMEM`]; or the call waits.
    pub fn write_file(&mut self, file: usize, from: u64, len: usize, at: Option<u64>) -> Result<usize, Stop> {
        let open = *self.state.open.get(file);
        Errno::EBADF.when(!open.writes())?;
        let len = len.min(MOST);
        let inode = match open.what {
            What::Inode(inode) => inode,
            What::PipeWrite(pipe) => return self.write_pipe(pipe, from, len, open.flags),
            What::Counter(counter) => return self.write_counter(counter, from, len, open.flags),
            What::Timer(_) | What::Set(_) => return Err(Errno::EINVAL.into()),
            What::PipeRead(_) | What::Nothing => return Err(Errno::EBADF.into()),
        };
        match self.state.tree.get(inode).kind {
            Kind::File(object) => {
                let append = open.flags & APPEND != 0 && at.is_none();
                let offset =
                    if append { self.kernel.objects().size(object) } else { at.unwrap_or(open.offset) };
                let len = self.within_limit(offset, len as u64)? as usize;
                let n = self.write_pages(object, offset, from, len)?;
                self.state.tree.get_mut(inode).changed = self.wall_time();
                if at.is_none() {
                    self.state.open.get_mut(file).offset = offset + n as u64;
                }
                Ok(n)
            }
            Kind::Device(Device::Null | Device::Zero | Device::Random | Device::Urandom) => Ok(len),
            Kind::Device(Device::Full) => Err(Errno::ENOSPC.into()),
            Kind::Device(Device::Console) => {
                let (on, termios) = (self.on(), self.state.console.termios);
                self.space().each_piece(on, from, len, Access::Read, |from, _, n| {
                    let mut bytes = [0; 64];
                    let mut shown = 0;
                    while shown < n {
                        let step = (n - shown).min(bytes.len());
                        // SAFETY: 1. `each_piece` passes `n` bytes of the program's. 2. `bytes` is
                        // the kernel's own and has room for `step`.
                        unsafe {
                            from.wrapping_add(shown).copy_to_nonoverlapping(bytes.as_mut_ptr(), step);
                        }
                        console::show::<A>(&termios, &bytes[..step]);
                        shown += step;
                    }
                    Ok(())
                })?;
                Ok(len)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Checks that a file may have `end` bytes (`RLIMIT_FSIZE`).
    ///
    /// # Errors
    ///
    /// [`Errno::EFBIG`], and a signal.
    pub fn may_reach(&mut self, end: u64) -> Result<(), Errno> {
        if end <= self.process().limits.file.soft {
            return Ok(());
        }
        self.kernel.send_to_task(self.state, self.me, number::SIGXFSZ, SignalInfo::KERNEL);
        Err(Errno::EFBIG)
    }

    /// Returns how many of `len` bytes may be written to a file at `at`.
    ///
    /// # Errors
    ///
    /// As of [`may_reach`](Self::may_reach), if no byte may be written.
    pub fn within_limit(&mut self, at: u64, len: u64) -> Result<u64, Errno> {
        if len > 0 {
            self.may_reach(at.saturating_add(1))?;
        }
        Ok(len.min(self.process().limits.file.soft.saturating_sub(at)))
    }

    fn write_pages(&mut self, object: u32, offset: u64, from: u64, len: usize) -> Result<usize, Errno> {
        let (on, machine) = (self.on(), self.kernel.machine.get());
        let end = offset.checked_add(len as u64).ok_or(Errno::EFBIG)?;
        Errno::EFBIG.when(end > crate::memory::objects::MOST_BYTES)?;
        let mut written = 0;
        let result = self.space().each_piece(on, from, len, Access::Read, |from, done, n| {
            let mut moved = 0;
            while moved < n {
                let at = offset + (done + moved) as u64;
                let to = (at % PAGE) as usize;
                let step = (FRAME_SIZE - to).min(n - moved);
                let pfn = machine.objects().page_or_new(object, at / PAGE)?;
                A::page(on.pin(), pfn, |page| {
                    // SAFETY: 1. The page is the object's, and `to + step` bytes lie in it. 2. As
                    // in `read_pages`, with the sides swapped.
                    unsafe { page.wrapping_add(to).copy_from(from.wrapping_add(moved), step) }
                })?;
                stored::<A>(pfn);
                moved += step;
                written += step;
            }
            Ok(())
        });
        let reached = offset + written as u64;
        if written > 0 && reached > machine.objects().size(object) {
            machine.objects().set_size(object, reached)?;
        }
        match result {
            Err(e) if written == 0 => Err(e),
            _ => Ok(written),
        }
    }

    fn write_pipe(&mut self, number: u16, from: u64, len: usize, flags: u32) -> Result<usize, Stop> {
        if self.state.pipes.get(number).readers == 0 {
            let info = SignalInfo::sent(SI_USER, self.process().pid);
            self.kernel.send_to_task(self.state, self.me, number::SIGPIPE, info);
            return Err(Errno::EPIPE.into());
        }
        // Short writes are not torn: all of their pages are made first.
        let short = len <= PIPE_BUF;
        let whole = short && self.state.pipes.get(number).room() < len;
        let mut done = 0;
        while done < len && !whole {
            let PipeRun { at, len: most, .. } = self.state.pipes.get(number).writable();
            let n = most.min(len - done);
            if n == 0 {
                break;
            }
            let made = if short { len - done } else { n };
            let frame = match self.kernel.make_pipe_pages(self.state, number, made) {
                Ok(frame) => frame,
                Err(e) if done == 0 => return Err(e.into()),
                Err(_) => break,
            };
            let copied = self.each_with(frame, from + done as u64, n, Access::Read, |from, page, step| {
                // SAFETY: 1. `step` bytes of the pipe's page, which no program maps. 2. As many of
                // the program's.
                unsafe { page.wrapping_add(at).copy_from_nonoverlapping(from, step) };
            });
            match copied {
                Err(e) if done == 0 => return Err(e.into()),
                Err(_) => break,
                Ok(()) => self.state.pipes.get_mut(number).produce(n),
            }
            done += n;
        }
        self.pipe_done(number, done, len == 0, flags)
    }

    /// Ends a call that has moved `done` bytes of a pipe. It waits without any, unless `is_over`.
    fn pipe_done(&mut self, number: u16, done: usize, is_over: bool, flags: u32) -> Result<usize, Stop> {
        if done > 0 {
            self.kernel.pipe_changed(self.state, number);
        }
        if done > 0 || is_over { Ok(done) } else { Err(waits(flags, Wait::Pipe(number))) }
    }

    /// Calls `f` for each piece of the program's `len` bytes at `at` that lies in one page, with
    /// pointers to the piece and to the byte of a frame that goes with it, and the piece's length.
    fn each_with(
        &mut self,
        frame: Pfn,
        at: u64,
        len: usize,
        access: Access,
        mut f: impl FnMut(*mut u8, *mut u8, usize),
    ) -> Result<(), Errno> {
        let on = self.on();
        self.space().each_piece(on, at, len, access, |piece, first, n| {
            Ok(A::page(on.pin(), frame, |page| f(piece, page.wrapping_add(first), n))?)
        })
    }
}
