//! Notes which object a mapping shows, and which runtimes a program has.
use super::describing::{CallersFound, DescribedProgram};
use super::state::TraceBuilder;
use crate::linux::callers::{CallerSample, Callers};
use crate::linux::object::MappedObject;
use crate::linux::raw::MmCall;
use crate::linux::runtimes;
use crate::linux::sources::samples::STACK;
use crate::linux::system::proc::PAGE_SHIFT;
use ptarmigan_trace::{Call, Cause, CloneKind, Kind, Note, Object, Place, PlaceId, Runtime, WriteError};
use std::io::Write;
use std::path::Path;

impl<'a, W: Write> TraceBuilder<'a, W> {
    /// Finds the callers of faults and calls, for the samples among the raw events.
    pub(crate) fn with_callers(mut self, callers: Option<Callers<'a>>) -> Self {
        self.describing.callers = callers;
        self
    }

    /// Returns what is known of callers so far.
    pub(crate) fn callers_found(&mut self) -> CallersFound {
        let Some(callers) = &mut self.describing.callers else { return CallersFound::default() };
        let unknown = std::mem::take(&mut callers.unknown).into_iter().collect();
        CallersFound { samples: callers.samples, unknown }
    }

    /// Writes the names of mapped files, without directories.
    pub(crate) fn with_names(mut self, names: bool) -> Self {
        self.describing.names = names;
        self
    }

    /// Notes the object of a mapping.
    fn note_object(&mut self, pid: i32, object: &MappedObject) -> Result<(), WriteError> {
        let Some(space) = self.space_of(pid) else { return Ok(()) };
        let kind = object.kind(&space.program.path);
        let name = object.name().filter(|_| self.describing.names);
        // Where a trace cannot have more names, an object has none.
        let name = name.and_then(|name| self.queue.text(&name));
        let MappedObject { start, pages, .. } = *object;
        self.map_code(pid, object);
        self.put(pid, Kind::Note(Note::Mapped { start, pages, object: kind, name }))?;
        match runtimes::of_library(&object.path) {
            Some(runtime) => self.note_runtime(pid, runtime),
            None => Ok(()),
        }
    }

    /// Follows the executable mappings, if callers are looked for.
    fn map_code(&mut self, pid: i32, object: &MappedObject) {
        if self.describing.callers.is_some() {
            self.describing.versions += 1;
            let (time, version) = (self.now, self.describing.versions);
            if let Some(space) = self.space_of(pid) {
                space.program.code.map(object, time, version);
            }
        }
    }

    /// Follows a range that is unmapped.
    pub(super) fn unmap_code(&mut self, pid: i32, start: u64, pages: u64) {
        if self.describing.callers.is_some() {
            self.describing.versions += 1;
            let version = self.describing.versions;
            if let Some(space) = self.space_of(pid) {
                space.program.code.unmap(start, pages, version);
            }
        }
    }

    /// Notes the caller that a sample tells. The note of a call stands before it.
    pub(super) fn note_caller(&mut self, pid: i32, sample: &CallerSample) -> Result<(), WriteError> {
        let Some(number) = self.tasks.get(&pid).filter(|task| task.recorded).map(|task| task.space) else {
            return Ok(());
        };
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.copied = Some((sample.sp, sample.sp.saturating_add(STACK.into())));
        }
        if sample.events == 0 {
            return Ok(());
        }
        let (Some(space), Some(callers)) = (self.spaces.get(&number), &mut self.describing.callers) else {
            return Ok(());
        };
        if !self.started {
            return Ok(());
        }
        let frames = callers.find(number, &space.program.code, sample);
        let mut place: Option<PlaceId> = None;
        for frame in frames.iter().rev() {
            let mut text = |text: Option<&str>| text.and_then(|text| self.queue.text(text));
            let (function, module) = (text(frame.function.as_deref()), text(Some(&frame.module)));
            let file = text(frame.file.as_deref());
            let line = if file.is_some() { frame.line } else { 0 };
            place = self.queue.place(Place { function, module, file, line, caller: place });
        }
        let CallerSample { cause, page, events, .. } = *sample;
        if let Cause::Call(Call::Fork | Call::Vfork | Call::Clone) = cause {
            // Which of them it is, the event tells.
            if let Some(task) = self.tasks.get_mut(&pid) {
                task.clone_by = Some(place);
            }
            return Ok(());
        }
        self.put(pid, Kind::Note(Note::Caller { cause, page, events, place }))
    }

    /// Notes the caller of a clone that was just sampled, before its event.
    pub(super) fn note_clone(&mut self, pid: i32, kind: CloneKind) -> Result<(), WriteError> {
        let Some(place) = self.tasks.get_mut(&pid).and_then(|task| task.clone_by.take()) else {
            return Ok(());
        };
        let call = match kind {
            CloneKind::Fork => Call::Fork,
            CloneKind::Vfork => Call::Vfork,
            CloneKind::Share => Call::Clone,
        };
        let cause = Cause::Call(call);
        self.put(pid, Kind::Note(Note::Caller { cause, page: 0, events: 1, place }))
    }

    fn note_runtime(&mut self, pid: i32, runtime: Runtime) -> Result<(), WriteError> {
        let Some(space) = self.space_of(pid) else { return Ok(()) };
        if space.program.runtimes.contains(&runtime) {
            return Ok(());
        }
        space.program.runtimes.push(runtime);
        self.put(pid, Kind::Note(Note::Runtime(runtime)))
    }

    /// Notes the objects of a new program.
    pub(super) fn note_program(
        &mut self,
        pid: i32,
        program: &str,
        objects: &[MappedObject],
    ) -> Result<(), WriteError> {
        let Some(space) = self.space_of(pid) else { return Ok(()) };
        space.program = DescribedProgram { path: program.into(), ..DescribedProgram::default() };
        for object in objects {
            self.note_object(pid, object)?;
        }
        let path = Path::new(program);
        let base = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(runtime) = runtimes::of_program(&base) {
            self.note_runtime(pid, runtime)?;
        }
        let linked = match self.describing.linked.get(path) {
            Some(linked) => linked.clone(),
            None => {
                let linked = runtimes::of_file(path);
                self.describing.linked.insert(path.to_owned(), linked.clone());
                linked
            }
        };
        linked.into_iter().try_for_each(|runtime| self.note_runtime(pid, runtime))
    }

    /// Keeps the object of the `mmap` in progress. Other calls, and execve, are described
    /// otherwise.
    pub(super) fn object_seen(&mut self, pid: i32, object: MappedObject) {
        if let Some(task) = self.tasks.get_mut(&pid)
            && task.call.is_some_and(|call| call.call == MmCall::Mmap)
        {
            task.object = Some(Box::new(object));
        }
    }

    /// Notes the object of an `mmap` that has succeeded.
    pub(super) fn note_mmap(&mut self, pid: i32, args: [u64; 5], result: i64) -> Result<(), WriteError> {
        let object = self.tasks.get_mut(&pid).and_then(|task| task.object.take());
        if (-4095..0).contains(&result) {
            return Ok(());
        }
        let (start, pages) = (result as u64 >> PAGE_SHIFT, args[1].div_ceil(1 << PAGE_SHIFT));
        let has = |flag: i32| args[3] & flag as u64 != 0;
        if let Some(object) = object {
            return self.note_object(pid, &MappedObject { start, pages, ..*object });
        }
        let object = match (has(libc::MAP_ANONYMOUS), has(libc::MAP_STACK)) {
            // The type of a shared mapping is 1 or 3.
            (true, _) if args[3] & 1 != 0 => Object::SharedMemory,
            (true, true) => Object::ThreadStack,
            _ => return Ok(()),
        };
        self.put(pid, Kind::Note(Note::Mapped { start, pages, object, name: None }))
    }
}
