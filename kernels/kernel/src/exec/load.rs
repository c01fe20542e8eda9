//! A program's memory, and `execve`.

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::Format;
use ptarmigan::space::{AreaFlags, Object, Space};

use super::elf::{Elf, HEADER, INTERPRETER, LOAD, Pages, Segment};
use super::stack::{self, Facts};
use crate::arch::{Abi, Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::fs::{DESCRIPTORS, Kind};
use crate::memory::user;
use crate::syscall::Sys;

/// Where a movable program goes.
const fn base(abi: Abi) -> u64 {
    match abi {
        Abi::X86_64 => 0x5555_5555_4000,
        Abi::I386 => 0x5655_5000,
    }
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
            let mut bytes = [0; HEADER];
            let n = self.kernel.read_object(object, elf.segment_at(i)?, &mut bytes[..elf.segment_size]);
            let segment = Segment::parse(A::ABI, &bytes[..n])?;
            match segment.kind {
                // There is no program that loads others.
                INTERPRETER => return Err(Errno::ENOEXEC),
                LOAD if segment.in_memory > 0 => {
                    let end = self.map_segment(space, object, &segment, shift)?;
                    heap = heap.max(end);
                    headers = segment.address_of(elf.segments_at, shift).unwrap_or(headers);
                }
                _ => {}
            }
        }
        if heap == 0 {
            return Err(Errno::ENOEXEC);
        }
        let entry = elf.entry(shift, A::Format::USER_END)?;
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
        let objects = &self.kernel.machine.get().objects;
        // Below the stack with its largest size.
        let limit = (A::STACK_END - (16 << 20)).min(A::Format::USER_END);
        let Pages { file, offset, zero, tail } = segment.pages(shift, limit, objects.size(object))?;
        let mut permissions = AreaFlags::default();
        for (bit, flag) in [(4, AreaFlags::READ), (2, AreaFlags::WRITE), (1, AreaFlags::EXEC)] {
            if segment.flags & bit != 0 {
                permissions = permissions.with(flag);
            }
        }
        let on = self.on();
        let mut edit = space.edit(on).map_err(|_| Errno::ENOMEM)?;
        if file.start < file.end {
            let backing = Object { id: object, offset };
            edit.mmap(file, permissions.with(AreaFlags::BACKED), backing).map_err(|_| Errno::ENOMEM)?;
        }
        if zero.start < zero.end {
            edit.mmap(zero, permissions, 0).map_err(|_| Errno::ENOMEM)?;
        }
        // What the file's last page has after the data is the program's, and zero.
        if tail.start < tail.end && permissions.has(AreaFlags::WRITE) {
            user::clear::<A>(on, space, tail.start, (tail.end - tail.start) as usize)?;
        }
        Ok(zero.end)
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
