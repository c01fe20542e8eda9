//! A program's memory, and `execve`.

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::Format;
use ptarmigan::space::{LargePages, Space};

use super::elf::{Elf, HEADER, INTERPRETER, LOAD};
use super::interpreter::Placed;
use super::segments::limit;
use super::stack::{self, ProgramFacts};
use crate::arch::{Arch, Context};
use crate::counts::Count;
use crate::errno::Errno;
use crate::fs::Kind;
use crate::memory::TaskSpace;
use crate::params::LargePolicy;
use crate::signal::SignalStack;
use crate::syscall::{Stop, Sys};
use crate::task::{LocksNew, Wait};

/// A space that a program can begin in.
struct Built {
    /// Where it begins: the program, or its interpreter.
    begin: u64,
    /// Its stack pointer.
    stack: u64,
    /// Where its heap begins.
    heap: u64,
    /// The pages of its interpreter's file.
    interpreter: Option<u32>,
}

impl<A: Arch> Sys<'_, A> {
    /// Begins the program in file `inode` in the place of the calling task's, with the arguments
    /// that `self.state` holds. The task is as it was on failure.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if the file is no program, [`Errno::EACCES`] if it is no file, those of
    /// an interpreter, [`Errno::ENOMEM`], [`Errno::E2BIG`].
    pub fn exec(&mut self, inode: u32) -> Result<(), Stop> {
        let file = self.state.tree.get(inode);
        let Kind::File(object) = file.kind else { return Err(Errno::EACCES.into()) };
        Errno::EACCES.when(file.mode & 0o111 == 0)?;
        let mut header = [0; HEADER];
        let n = self.kernel.read_object(object, 0, &mut header);
        let elf = Elf::parse(A::ABI, &header[..n])?;
        let on = self.on();
        let pages = stack::pages(&self.state.tasks.arguments);
        let space = Space::exec(on, VirtAddr(A::STACK_END), pages).map_err(|_| Errno::ENOMEM)?;
        let mut space = TaskSpace::Own(space);
        let built = self.build(&mut space, object, &elf).and_then(|built| {
            let is_alone = self.process().threads == 1;
            let record = if is_alone { Some(self.kernel.claim_space(self.state)?) } else { None };
            Ok((built, record))
        });
        match built {
            Ok((built, Some(number))) => {
                self.replace(space, number, inode, object, &built);
                self.body.context = A::Context::NEW;
                self.body.context.start(built.begin, built.stack);
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
                Errno::EINTR.when(self.task().is_leaving)?;
                self.kernel.end_other_threads(self.state, self.me);
                Err(Stop::Block(Wait::Threads))
            }
        }
    }

    /// Maps the segments, and those of the interpreter that the program names; writes the stack.
    fn build(&mut self, space: &mut TaskSpace<A>, object: u32, elf: &Elf) -> Result<Built, Errno> {
        let on = self.on();
        let in_new_areas = self.state.large_pages == LargePolicy::Always;
        // As under Linux, a large page that fork has shared is split by the first write.
        let (empty, unmapping) = (self.state.empty_tables, self.state.unmapping);
        space.edit(on, |mut edit| {
            edit.set_large_pages(LargePages { in_new_areas, copy: false });
            edit.set_empty_tables(empty);
            edit.set_unmapping(unmapping);
        })?;
        let shift = if elf.movable { A::ABI.base() } else { 0 };
        let stack_at = stack::begins_at::<A>(&self.state.tasks.arguments);
        let (mut heap, mut headers, mut interpreter) = (0, 0, None);
        for i in 0..elf.segments {
            let segment = self.segment(object, elf, i)?;
            match segment.kind {
                // As under Linux, the first one counts.
                INTERPRETER if interpreter.is_none() => {
                    interpreter = Some(self.find_interpreter(object, &segment)?);
                }
                LOAD if segment.in_memory > 0 => {
                    let end = self.map_segment(space, object, &segment, shift, limit(stack_at, heap == 0))?;
                    heap = heap.max(end);
                    headers = segment.address_of(elf.segments_at, shift).unwrap_or(headers);
                }
                _ => {}
            }
        }
        Errno::ENOEXEC.when(heap == 0)?;
        let entry = elf.entry(shift, A::Format::USER_END)?;
        // The first call says where the heap begins.
        let most = self.process().limits.stack.soft;
        space
            .edit(on, |mut edit| {
                edit.set_stack_limit(most);
                edit.brk(VirtAddr(heap))
            })?
            .map_err(|_| Errno::ENOMEM)?;
        let placed = match interpreter {
            Some(interpreter) => self.place_interpreter(space, interpreter)?,
            None => Placed { shift: 0, entry },
        };
        let facts = ProgramFacts {
            headers,
            header_size: elf.segment_size,
            header_count: elf.segments,
            interpreter: placed.shift,
            entry,
        };
        let stack = stack::write::<A>(on, space, &self.state.tasks.arguments, &facts)?;
        let interpreter = interpreter.map(|interpreter| interpreter.object);
        Ok(Built { begin: placed.entry, stack, heap, interpreter })
    }

    /// Gives the task, which is alone in its process, its new space with record `number`, and takes
    /// the old one down if nobody else runs in it.
    fn replace(&mut self, mut space: TaskSpace<A>, number: usize, inode: u32, object: u32, built: &Built) {
        let (kernel, me, process) = (self.kernel, self.me, self.process_slot());
        let on = kernel.on(self.pin);
        kernel.leave_robust_list(self.state, me, self.body, self.pin);
        crate::task::must(self.body.space.switch(|space| space.deactivate(on)));
        kernel.leave_space(self.state, me, self.body, self.pin);
        crate::task::must(space.switch(|space| space.activate(on)));
        self.body.space = space;
        while let Some(descriptor) = self.state.tasks.process(process).files.first_closing() {
            kernel.close(self.state, process, descriptor);
        }
        self.state.tree.hold(inode);
        kernel.objects().share(object);
        let tasks = &mut self.state.tasks;
        let arguments = super::stack::arguments_at::<A>(&tasks.arguments);
        let record = tasks.space_mut(number);
        record.arguments = arguments;
        (record.has_locks, record.locks_new) = (false, LocksNew::No);
        (record.users, record.heap, record.heap_end, record.forks_in_part) =
            (1, built.heap, built.heap, false);
        if record.shown.begin_only(object, built.interpreter)
            && let Some(interpreter) = built.interpreter
        {
            kernel.objects().share(interpreter);
        }
        let _ = self.body.space.count_shown(on, &mut record.shown);
        // A thread that was not the first has the process's number from now on.
        let shared = tasks.process_mut(process);
        shared.space = number;
        shared.actions.exec();
        let (pid, before) = (shared.pid, core::mem::replace(&mut shared.program, inode));
        tasks.change_number(me, pid);
        let task = tasks.get_mut(me);
        (task.space, task.clear_tid, task.signals.suspended) = (number, 0, None);
        task.signals.stack = SignalStack::NONE;
        self.state.timers.end(process);
        kernel.let_go(self.state, before);
    }
}
