//! A program's memory, and `execve`.

use ptarmigan::addr::{FRAME_SIZE, VirtAddr, VirtRange};
use ptarmigan::format::Format;
use ptarmigan::space::{AreaFlags, Object, Space};

use super::elf::{Elf, HEADER, INTERPRETER, LOAD, Segment};
use super::stack::{self, Facts};
use crate::arch::{Abi, Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::fs::{DESCRIPTORS, Kind};
use crate::memory::user;
use crate::syscall::Sys;

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
    pub fn exec(&mut self, inode: u16) -> Result<(), Errno> {
        let file = self.state.tree.get(inode);
        let Kind::File(object) = file.kind else { return Err(Errno::EACCES) };
        if file.mode & 0o111 == 0 {
            return Err(Errno::EACCES);
        }
        let mut header = [0; HEADER];
        let n = self.kernel.read_object(object, 0, &mut header);
        let elf = Elf::parse(A::ABI, &header[..n])?;
        let on = self.on();
        let pages = stack::pages(&self.state.tasks.arguments);
        let mut space = Space::exec(on, VirtAddr(A::STACK_END), pages).map_err(|_| Errno::ENOMEM)?;
        match self.build(&mut space, object, &elf) {
            Ok((entry, stack, heap)) => {
                self.replace(space, inode, object, heap);
                self.body.context = A::Context::NEW;
                self.body.context.start(entry, stack);
                self.kernel.count(Count::Execs);
                A::load(&self.body.context);
                Ok(())
            }
            Err(e) => {
                let ended = space.end(on);
                debug_assert!(ended.is_ok(), "the space is of this machine");
                Err(e)
            }
        }
    }

    /// Maps the segments and writes the stack; returns where the program begins, its stack pointer
    /// and where its heap begins.
    fn build(
        &mut self,
        space: &mut Space<A::Format>,
        object: u32,
        elf: &Elf,
    ) -> Result<(u64, u64, u64), Errno> {
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
        let mut edit = space.edit(on).map_err(|_| Errno::ENOMEM)?;
        // The first call says where the heap begins.
        edit.brk(VirtAddr(heap)).map_err(|_| Errno::ENOMEM)?;
        let facts = Facts { headers, header_size: elf.segment_size, header_count: elf.segments, entry };
        let stack = stack::write::<A>(on, space, &self.state.tasks.arguments, &facts)?;
        Ok((entry, stack, heap))
    }

    /// Maps a segment; returns the end of its last page.
    fn map_segment(
        &mut self,
        space: &mut Space<A::Format>,
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
        let mut edit = space.edit(on).map_err(|_| Errno::ENOMEM)?;
        if file_pages > first {
            let range = VirtRange { start: first, end: file_pages };
            let backing = Object { id: object, offset: offset & !(PAGE - 1) };
            edit.mmap(range, permissions.with(AreaFlags::BACKED), backing).map_err(|_| Errno::ENOMEM)?;
        }
        if last > file_pages {
            let range = VirtRange { start: file_pages, end: last };
            edit.mmap(range, permissions, 0).map_err(|_| Errno::ENOMEM)?;
        }
        // What the file's last page has after the data is the program's, and zero.
        if in_memory > in_file && data_end < file_pages && permissions.has(AreaFlags::WRITE) {
            let n = (file_pages.min(end) - data_end) as usize;
            user::clear::<A>(on, space, data_end, n)?;
        }
        Ok(last)
    }

    /// Gives the task its new space, and takes the old one down.
    fn replace(&mut self, space: Space<A::Format>, inode: u16, object: u32, heap: u64) {
        let kernel = self.kernel;
        kernel.end_space(self.body, self.pin);
        crate::task::must(space.activate(kernel.on(self.pin)));
        self.body.space = Some(space);
        let me = self.me;
        for descriptor in 0..DESCRIPTORS {
            if self.state.tasks.get(me).files.is_closing(descriptor) {
                kernel.close(self.state, me, descriptor);
            }
        }
        self.state.tree.hold(inode);
        kernel.machine.get().objects.share(object);
        kernel.unmap_objects(self.state, me, |_| false);
        let task = self.state.tasks.get_mut(me);
        let before = core::mem::replace(&mut task.program, inode);
        (task.heap, task.heap_end) = (heap, heap);
        task.mapped[0] = object;
        task.signals.exec();
        kernel.let_go(self.state, before);
    }
}
