//! A program's memory, and `execve`.

use ptarmigan::addr::{FRAME_SIZE, VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::space::{AreaError, AreaFlags, Object, Space};

use super::elf::{Elf, HEADER, INTERPRETER, LOAD, Segment};
use super::stack::{self, Facts};
use crate::arch::{Abi, Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::fs::{DESCRIPTORS, Kind};
use crate::memory::{TaskSpace, user};
use crate::syscall::{Stop, Sys};
use crate::task::{SpaceRecord, Wait};

const PAGE: u64 = FRAME_SIZE as u64;

/// Where a movable program goes.
const fn base(abi: Abi) -> u64 {
    match abi {
        Abi::X86_64 => 0x5555_5555_4000,
        Abi::I386 => 0x5655_5000,
    }
}

fn round_up(at: u64) -> Result<u64, Errno> {
    at.checked_next_multiple_of(PAGE).ok_or(Errno::ENOEXEC)
}

impl<A: Arch> Sys<'_, A> {
    /// Begins the program in file `inode` in the place of the calling task's, with the arguments
    /// that `self.state` holds. The task is as it was on failure.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if the file is no program, [`Errno::EACCES`] if it is no file,
    /// [`Errno::ENOMEM`], [`Errno::E2BIG`].
    pub fn exec(&mut self, inode: u16) -> Result<(), Stop> {
        let file = self.state.tree.get(inode);
        let Kind::File(object) = file.kind else { return Err(Errno::EACCES.into()) };
        if file.mode & 0o111 == 0 {
            return Err(Errno::EACCES.into());
        }
        let mut header = [0; HEADER];
        let n = self.kernel.read_object(object, 0, &mut header);
        let elf = Elf::parse(A::ABI, &header[..n])?;
        let on = self.on();
        let pages = stack::pages(&self.state.tasks.arguments);
        let space = Space::exec(on, VirtAddr(A::STACK_END), pages).map_err(|_| Errno::ENOMEM)?;
        let mut space = TaskSpace::Own(space);
        match self.build(&mut space, object, &elf) {
            Ok((entry, stack, heap)) if self.process().threads == 1 => {
                self.replace(space, inode, object, heap);
                self.body.context = A::Context::NEW;
                self.body.context.start(entry, stack);
                self.kernel.count(Count::Execs);
                A::load(&self.body.context);
                Ok(())
            }
            made => {
                if let TaskSpace::Own(space) = space {
                    let ended = space.end(on);
                    debug_assert!(ended.is_ok(), "the space is of this machine");
                }
                // The program can begin, as soon as the caller is alone.
                made?;
                if self.task().is_leaving {
                    return Err(Errno::EINTR.into());
                }
                self.kernel.end_other_threads(self.state, self.me);
                Err(Stop::Block(Wait::Threads))
            }
        }
    }

    /// Maps the segments and writes the stack; returns where the program begins, its stack pointer
    /// and where its heap begins.
    fn build(&mut self, space: &mut TaskSpace<A>, object: u32, elf: &Elf) -> Result<(u64, u64, u64), Errno> {
        let shift = if elf.movable { base(A::ABI) } else { 0 };
        let (mut heap, mut headers) = (0, 0);
        for i in 0..elf.segments {
            let at = (i * elf.segment_size) as u64;
            let at = elf.segments_at.checked_add(at).ok_or(Errno::ENOEXEC)?;
            let mut bytes = [0; HEADER];
            let n = self.kernel.read_object(object, at, &mut bytes[..elf.segment_size]);
            let segment = Segment::parse(A::ABI, &bytes[..n])?;
            match segment.kind {
                // There is no program that loads others.
                INTERPRETER => return Err(Errno::ENOEXEC),
                LOAD if segment.in_memory > 0 => {
                    let end = self.map_segment(space, object, &segment, shift)?;
                    heap = heap.max(end);
                    if (segment.offset..segment.offset + segment.in_file).contains(&elf.segments_at) {
                        headers = segment.at + shift + (elf.segments_at - segment.offset);
                    }
                }
                _ => {}
            }
        }
        if heap == 0 {
            return Err(Errno::ENOEXEC);
        }
        let entry = elf.entry.checked_add(shift).filter(|at| *at < A::Format::USER_END);
        let entry = entry.ok_or(Errno::ENOEXEC)?;
        let on = self.on();
        // The first call says where the heap begins.
        space.edit(on, |mut edit| edit.brk(VirtAddr(heap)))?.map_err(|_| Errno::ENOMEM)?;
        let facts = Facts { headers, header_size: elf.segment_size, header_count: elf.segments, entry };
        let stack = stack::write::<A>(on, space, &self.state.tasks.arguments, &facts)?;
        Ok((entry, stack, heap))
    }

    /// Maps a segment; returns the end of its last page.
    fn map_segment(
        &mut self,
        space: &mut TaskSpace<A>,
        object: u32,
        segment: &Segment,
        shift: u64,
    ) -> Result<u64, Errno> {
        let Segment { flags, offset, at, in_file, in_memory, .. } = *segment;
        let bad = Errno::ENOEXEC;
        let start = at.checked_add(shift).ok_or(bad)?;
        let end = start.checked_add(in_memory).ok_or(bad)?;
        let file_end = offset.checked_add(in_file).ok_or(bad)?;
        let objects = &self.kernel.machine.get().objects;
        // Below the stack with its largest size, and not at address 0.
        let limit = (A::STACK_END - (16 << 20)).min(A::Format::USER_END);
        if in_file > in_memory
            || start % PAGE != offset % PAGE
            || file_end > objects.size(object)
            || end > limit
            || start < PAGE
        {
            return Err(bad);
        }
        let mut permissions = AreaFlags::default();
        for (bit, flag) in [(4, AreaFlags::READ), (2, AreaFlags::WRITE), (1, AreaFlags::EXEC)] {
            if flags & bit != 0 {
                permissions = permissions.with(flag);
            }
        }
        let first = start & !(PAGE - 1);
        let last = round_up(end)?;
        let data_end = start + in_file;
        let file_pages = if in_file == 0 { first } else { round_up(data_end)? };
        let on = self.on();
        let mapped = space.edit(on, |mut edit| {
            if file_pages > first {
                let range = VirtRange { start: first, end: file_pages };
                let backing = Object { id: object, offset: offset & !(PAGE - 1) };
                edit.mmap(range, permissions.with(AreaFlags::BACKED), backing)?;
            }
            if last > file_pages {
                edit.mmap(VirtRange { start: file_pages, end: last }, permissions, 0)?;
            }
            Ok::<_, AreaError>(())
        });
        mapped?.map_err(|_| Errno::ENOMEM)?;
        // What the file's last page has after the data is the program's, and zero.
        if in_memory > in_file && data_end < file_pages && permissions.has(AreaFlags::WRITE) {
            let n = (file_pages.min(end) - data_end) as usize;
            user::clear::<A>(on, space, data_end, n)?;
        }
        Ok(last)
    }

    /// Gives the task, which is alone in its process, its new space, and takes the old one down if
    /// nobody else runs in it.
    fn replace(&mut self, space: TaskSpace<A>, inode: u16, object: u32, heap: u64) {
        let (kernel, me, process) = (self.kernel, self.me, self.process_slot());
        let on = kernel.on(self.pin);
        crate::task::must(self.body.space.deactivate(on));
        kernel.leave_space(self.state, me, self.body, self.pin);
        crate::task::must(space.activate(on));
        self.body.space = space;
        for descriptor in 0..DESCRIPTORS {
            if self.state.tasks.process(process).files.is_closing(descriptor) {
                kernel.close(self.state, process, descriptor);
            }
        }
        self.state.tree.hold(inode);
        kernel.machine.get().objects.share(object);
        let tasks = &mut self.state.tasks;
        let number = tasks.free_space(me);
        let mut record = SpaceRecord { users: 1, heap, heap_end: heap, ..SpaceRecord::none() };
        record.mapped[0] = object;
        *tasks.space_mut(number) = record;
        // A thread that was not the first has the process's number from now on.
        let shared = tasks.process_mut(process);
        shared.space = number;
        shared.actions.exec();
        let (pid, before) = (shared.pid, core::mem::replace(&mut shared.program, inode));
        let task = tasks.get_mut(me);
        (task.tid, task.clear_tid, task.signals.suspended) = (pid, 0, None);
        kernel.let_go(self.state, before);
    }
}
