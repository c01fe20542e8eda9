//! Follows the mappings of all address spaces of a recording.
//!
//! A mapping is known by the events that make and change it, in traces of all formats. Where a
//! trace has notes about objects, the kind of its file and maybe its name are known, too.
mod history;
mod space;

pub use history::PageAt;
pub use space::SpaceMap;

use foldhash::{HashMap, HashSet, HashSetExt};
use ptarmigan_trace::{AreaKind, CloneKind, Event, Kind, MapFlags, Note, Object, Prot, Symbols, Text};
use std::sync::Arc;

/// The kind of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MappingKind {
    /// The program itself, or its loader where the trace does not tell them apart.
    Program,
    /// Data of the program that begin as zeros.
    Zeroed,
    /// A shared library, or another file with executable pages.
    Library,
    /// A file of data.
    File,
    /// The heap that `brk` grows.
    Heap,
    /// Private memory of `mmap` without a file.
    Anonymous,
    /// The stack of the first thread.
    Stack,
    /// The stack of another thread.
    ThreadStack,
    /// Memory shared between processes.
    SharedMemory,
    /// A device.
    Device,
    /// Mapped by the kernel: vdso and its data.
    Special,
}

impl MappingKind {
    /// Returns a short name: `heap`, `shared memory`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Zeroed => "zeroed data",
            Self::Library => "library",
            Self::File => "file",
            Self::Heap => "heap",
            Self::Anonymous => "anonymous",
            Self::Stack => "stack",
            Self::ThreadStack => "thread stack",
            Self::SharedMemory => "shared memory",
            Self::Device => "device",
            Self::Special => "kernel's pages",
        }
    }
}

impl From<Object> for MappingKind {
    fn from(object: Object) -> Self {
        match object {
            Object::Program => Self::Program,
            Object::Library => Self::Library,
            Object::SharedMemory => Self::SharedMemory,
            Object::Device => Self::Device,
            Object::ThreadStack => Self::ThreadStack,
            // Also kinds that later formats add.
            _ => Self::File,
        }
    }
}

/// A mapping. Parts of one that was cut have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first page.
    pub start: u64,
    /// The first page after it.
    pub end: u64,
    /// Its kind.
    pub kind: MappingKind,
    /// The name of its object, without directories, if the trace has it.
    pub name: Option<Text>,
    /// The task that made it.
    pub task: u32,
    /// The thread whose stack it is, if it is known.
    pub thread: Option<u32>,
    /// Whether it grows downwards at faults below it.
    pub grows: bool,
    /// Its length when it was made, in pages. A heap or a stack grows.
    pub made: u64,
    /// Whether only huge pages are in it (`MAP_HUGETLB`).
    pub huge_only: bool,
    /// Counts the mappings of the trace.
    pub number: u32,
}

impl Mapping {
    /// Returns its kind and its name: `heap`, `file data.db`, `stack of thread 3`.
    #[must_use]
    pub fn label(&self, symbols: &Symbols) -> String {
        let kind = self.kind.name();
        match (self.kind, self.thread, self.name) {
            (MappingKind::ThreadStack, Some(thread), _) => format!("stack of thread {thread}"),
            (_, _, Some(name)) => format!("{kind} {}", symbols.text(name)),
            _ => kind.to_owned(),
        }
    }
}

/// Follows the mappings of a trace, event by event.
#[derive(Clone, Debug)]
pub struct MappingTracker {
    /// The mappings of each space, with the number of its tasks.
    spaces: HashMap<u32, (Arc<SpaceMap>, u32)>,
    /// The space of each task that is alive.
    tasks: HashMap<u32, u32>,
    /// The spaces that ran before the recording: their areas are of all kinds.
    running: HashSet<u32>,
    next_space: u32,
    next_mapping: u32,
}

impl Default for MappingTracker {
    fn default() -> Self {
        let spaces = HashMap::from_iter([(0, (Arc::default(), 1))]);
        Self {
            spaces,
            tasks: HashMap::from_iter([(0, 0)]),
            running: HashSet::new(),
            next_space: 1,
            next_mapping: 0,
        }
    }
}

impl MappingTracker {
    /// Returns the space of a task. Spaces are numbered as the replay numbers them: in the order of
    /// forks and execves.
    #[must_use]
    pub fn space(&self, task: u32) -> Option<u32> {
        self.tasks.get(&task).copied()
    }

    /// Returns the mappings of a space.
    #[must_use]
    pub fn map_of(&self, space: u32) -> Option<&SpaceMap> {
        self.spaces.get(&space).map(|(map, _)| &**map)
    }

    /// Returns the mapping of a page in the space of a task.
    #[must_use]
    pub fn at(&self, task: u32, page: u64) -> Option<Mapping> {
        self.map_of(self.space(task)?)?.at(page)
    }

    fn change(&mut self, task: u32, with: impl FnOnce(&mut SpaceMap)) {
        if let Some((map, _)) = self.tasks.get(&task).and_then(|space| self.spaces.get_mut(space)) {
            with(Arc::make_mut(map));
        }
    }

    fn new_mapping(&mut self, task: u32, start: u64, pages: u64, kind: MappingKind) -> Mapping {
        self.next_mapping += 1;
        Mapping {
            start,
            end: start.saturating_add(pages),
            kind,
            name: None,
            task,
            thread: None,
            grows: false,
            made: pages,
            huge_only: false,
            number: self.next_mapping - 1,
        }
    }

    /// Follows one event. Faults change no mapping, but tell whose stack a mapping is.
    pub fn see(&mut self, event: &Event) {
        let task = event.task;
        match event.kind {
            Kind::Clone { child, kind } => self.clone_task(task, child, kind),
            Kind::Exec { arg_pages, .. } => {
                self.leave(task);
                if arg_pages == 0 {
                    self.running.insert(self.next_space);
                }
                self.tasks.insert(task, self.next_space);
                self.spaces.insert(self.next_space, (Arc::default(), 1));
                self.next_space += 1;
            }
            Kind::Exit { .. } => self.leave(task),
            Kind::Area { start, pages, kind, .. } => {
                let ran = self.space(task).is_some_and(|space| self.running.contains(&space));
                let (kind, grows) = match kind {
                    AreaKind::File if ran => (MappingKind::File, false),
                    AreaKind::Anon if ran => (MappingKind::Anonymous, false),
                    AreaKind::File => (MappingKind::Program, false),
                    AreaKind::Anon => (MappingKind::Zeroed, false),
                    AreaKind::Stack => (MappingKind::Stack, true),
                    AreaKind::Special => (MappingKind::Special, false),
                };
                let mapping = Mapping { grows, ..self.new_mapping(task, start, pages, kind) };
                self.change(task, |map| map.map(mapping));
            }
            Kind::Mmap { start, pages, prot, flags } => {
                let has = |flag| flags.0 & flag != 0;
                let mapping = Mapping {
                    grows: has(MapFlags::GROWSDOWN),
                    huge_only: has(MapFlags::HUGE_ONLY),
                    ..self.new_mapping(task, start, pages, kind_of(prot, flags))
                };
                self.change(task, |map| map.map(mapping));
            }
            Kind::Munmap { start, pages } => {
                self.change(task, |map| drop(map.unmap(start, start.saturating_add(pages))));
            }
            Kind::Brk { end } => {
                let empty = self.new_mapping(task, end, 0, MappingKind::Heap);
                self.change(task, |map| map.brk(end, empty));
            }
            Kind::Mremap { from, old_pages, to, new_pages, keep } => {
                self.change(task, |map| map.remap((from, old_pages), (to, new_pages), keep));
            }
            Kind::StackLimit { pages } => self.change(task, |map| map.stack_limit = Some(pages)),
            Kind::Note(Note::Mapped { start, pages, object, name }) => {
                self.change(task, |map| {
                    map.describe(start, start.saturating_add(pages), object.into(), name)
                });
            }
            Kind::Fault { page, .. } => self.find_stack(task, page),
            _ => {}
        }
    }

    fn clone_task(&mut self, task: u32, child: u32, kind: CloneKind) {
        let Some(space) = self.space(task) else { return };
        let of = if kind == CloneKind::Fork {
            let map = self.spaces.get(&space).map(|(map, _)| Arc::clone(map)).unwrap_or_default();
            self.next_space += 1;
            self.spaces.insert(self.next_space - 1, (map, 0));
            self.next_space - 1
        } else {
            space
        };
        if let Some((_, users)) = self.spaces.get_mut(&of) {
            *users += 1;
        }
        self.tasks.insert(child, of);
    }

    fn leave(&mut self, task: u32) {
        let Some(space) = self.tasks.remove(&task) else { return };
        if let Some((_, users)) = self.spaces.get_mut(&space) {
            *users = users.saturating_sub(1);
            if *users == 0 {
                self.spaces.remove(&space);
                self.running.remove(&space);
            }
        }
    }

    /// A thread's stack is that of the first other task that uses it.
    fn find_stack(&mut self, task: u32, page: u64) {
        let Some(area) = self.at(task, page) else { return };
        if area.kind == MappingKind::ThreadStack && area.thread.is_none() && area.task != task {
            self.change(task, |map| map.stack_of(page, task));
        }
    }
}

/// Returns the kind that a call of `mmap` tells.
fn kind_of(prot: Prot, flags: MapFlags) -> MappingKind {
    let has = |flag| flags.0 & flag != 0;
    if has(MapFlags::SEGMENT) || has(MapFlags::ANON) && has(MapFlags::SHARED) {
        MappingKind::SharedMemory
    } else if has(MapFlags::ALONE) {
        MappingKind::Device
    } else if has(MapFlags::ANON) {
        if has(MapFlags::NO_HUGE) { MappingKind::ThreadStack } else { MappingKind::Anonymous }
    } else if prot.0 & Prot::EXEC != 0 {
        MappingKind::Library
    } else {
        MappingKind::File
    }
}

#[cfg(test)]
mod tests;
