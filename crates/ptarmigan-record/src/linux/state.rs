//! The state of an address space, read from `/proc` of a process that runs.
use crate::linux::object::MappedObject;
use crate::linux::system::pagemap::{self, PresentPages};
use crate::linux::system::proc::{self, Area, PAGE_SHIFT};
use crate::linux::system::sys;
use ptarmigan_trace::{AreaKind, MapFlags, Prot};
use std::fs::{self, File};
use std::io::{self, Read};

/// The usual advice on areas that a fork looks at, and that on huge pages, by their two letters in
/// `smaps` and their numbers in `madvise`.
const ADVICE: [(&str, i32); 4] = [
    ("dc", libc::MADV_DONTFORK),
    ("wf", libc::MADV_WIPEONFORK),
    ("hg", libc::MADV_HUGEPAGE),
    ("nh", libc::MADV_NOHUGEPAGE),
];

/// An area with everything that `/proc` says about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateArea {
    pub(crate) area: Area,
    /// For shared memory and areas with properties that execve does not give: those of `mmap`.
    pub(crate) flags: MapFlags,
    /// Whether `/proc` calls it the heap.
    pub(crate) heap: bool,
    /// Whether a thread but the first has its stack there.
    pub(crate) stack: bool,
    /// The advice of [`ADVICE`] that holds, as bits.
    pub(crate) advised: u8,
}

impl StateArea {
    /// Returns the advice that was given on the area, as numbers of `madvise`.
    pub(crate) fn advice(&self) -> impl Iterator<Item = u16> {
        let bits = self.advised;
        ADVICE
            .iter()
            .enumerate()
            .filter(move |(n, _)| bits >> n & 1 != 0)
            .map(|(_, (_, advice))| *advice as u16)
    }

    /// Parses a line of `maps`.
    fn parse(line: &str) -> Option<Self> {
        let area = proc::area(line)?;
        let name = line.split_ascii_whitespace().nth(5).unwrap_or("");
        let mut flags = MapFlags(0);
        if area.shared {
            let memory = ["/dev/zero", "/memfd:", "/SYSV", "/dev/shm/"];
            let anon = area.inode == 0 || memory.iter().any(|start| name.starts_with(start));
            let segment = if name.starts_with("/SYSV") { MapFlags::SEGMENT } else { 0 };
            flags.0 = MapFlags::SHARED | segment | if anon { MapFlags::ANON } else { 0 };
        }
        Some(Self { area, flags, heap: name == "[heap]", stack: false, advised: 0 })
    }

    /// Adds the flags of a line of `smaps` that begins with `VmFlags:`.
    fn add_flags(&mut self, line: &str) {
        for word in line.split_ascii_whitespace() {
            let bit = match word {
                "gd" if self.area.kind != AreaKind::Stack => MapFlags::GROWSDOWN,
                "lo" => MapFlags::LOCKED,
                "nr" => MapFlags::NORESERVE,
                "ht" => MapFlags::HUGE_ONLY,
                _ => 0,
            };
            self.flags.0 |= bit;
            if let Some(n) = ADVICE.iter().position(|(letters, _)| *letters == word) {
                self.advised |= 1 << n;
            }
        }
    }
}

/// The state of an address space.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SpaceState {
    /// The process that made this one.
    pub(crate) parent: i32,
    /// When the areas were known: the pages were read after that.
    pub(crate) areas_at: u64,
    /// First page of the heap.
    pub(crate) heap: u64,
    /// Limit of the stack, in pages; 0 if it could not be read.
    pub(crate) stack_limit: u64,
    pub(crate) name: String,
    /// `VmPTE`, in pages.
    pub(crate) tables: u32,
    pub(crate) areas: Vec<StateArea>,
    /// The present pages, in order.
    pub(crate) present: Vec<PresentPages>,
    /// The path of the program. It stays in temporary files.
    pub(crate) program: String,
    /// The objects of areas that have one.
    pub(crate) objects: Vec<MappedObject>,
}

impl SpaceState {
    /// Encodes the state as 64-bit words.
    pub(crate) fn encode(&self) -> Vec<u64> {
        let mut name = [0; 16];
        let len = self.name.len().min(15);
        name[..len].copy_from_slice(&self.name.as_bytes()[..len]);
        let parent = self.parent as u32;
        let mut w = vec![parent.into(), self.areas_at, self.heap, self.stack_limit, self.tables.into()];
        w.extend(name.as_chunks::<8>().0.iter().map(|half| u64::from_le_bytes(*half)));
        w.extend([self.areas.len() as u64, self.present.len() as u64]);
        for a in &self.areas {
            let Area { start, pages, prot, kind, shared, offset, inode } = a.area;
            let bits = u64::from(prot.0)
                | (kind as u64) << 8
                | u64::from(a.flags.0) << 16
                | u64::from(a.advised) << 32
                | u64::from(a.heap) << 40
                | u64::from(shared) << 41
                | u64::from(a.stack) << 42;
            w.extend([start, pages, bits, offset, inode]);
        }
        w.extend(self.present.iter().map(|found| found.word()));
        MappedObject { path: self.program.clone(), ..MappedObject::default() }.encode(&mut w);
        self.objects.iter().for_each(|object| object.encode(&mut w));
        w
    }

    /// Decodes the words of [`encode`](Self::encode).
    pub(crate) fn decode(words: &[u64]) -> Option<Self> {
        let [parent, areas_at, heap, stack_limit, tables, low, high, areas, present, rest @ ..] = words
        else {
            return None;
        };
        let name = [low.to_le_bytes(), high.to_le_bytes()].concat();
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        let (areas, rest) = rest.split_at_checked((*areas as usize).checked_mul(5)?)?;
        let (present, rest) = rest.split_at_checked(*present as usize)?;
        let mut rest = rest.iter().copied().peekable();
        let program = MappedObject::decode(|| rest.next())?.path;
        let mut objects = Vec::new();
        while rest.peek().is_some() {
            objects.push(MappedObject::decode(|| rest.next())?);
        }
        let (areas, _) = areas.as_chunks::<5>();
        let area = |&[start, pages, bits, offset, inode]: &[u64; 5]| StateArea {
            area: Area {
                start,
                pages,
                prot: Prot(bits as u8),
                kind: match bits >> 8 & 0xff {
                    0 => AreaKind::File,
                    1 => AreaKind::Anon,
                    2 => AreaKind::Stack,
                    _ => AreaKind::Special,
                },
                shared: bits >> 41 & 1 != 0,
                offset,
                inode,
            },
            flags: MapFlags((bits >> 16) as u16),
            heap: bits >> 40 & 1 != 0,
            stack: bits >> 42 & 1 != 0,
            advised: (bits >> 32) as u8,
        };
        Some(Self {
            parent: *parent as i32,
            areas_at: *areas_at,
            heap: *heap,
            stack_limit: *stack_limit,
            name,
            tables: *tables as u32,
            areas: areas.iter().map(area).collect(),
            present: present.iter().map(|word| PresentPages::of(*word)).collect(),
            program,
            objects,
        })
    }
}

/// A reading of an address space.
pub(crate) struct Reading {
    pub(crate) state: SpaceState,
    /// Whether nothing seems to have changed during the reading.
    pub(crate) steady: bool,
}

/// How far a reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The areas are known. A process that stands still may go on, and the rest is read while it
    /// runs.
    Areas,
    /// The process need not stand still any longer.
    All,
}

/// Reads the space of a process. `None` if it has none, any more. `each` is called often, from when
/// the areas are known.
pub(crate) fn read(process: i32, mut each: impl FnMut(Progress)) -> Option<Reading> {
    let mut between = || each(Progress::Areas);
    // The first thread may have ended before the others.
    let pid = proc::threads(process).into_iter().find(|&pid| proc::counts(pid).is_some())?;
    let maps = || fs::read(format!("/proc/{pid}/maps")).ok().filter(|maps| !maps.is_empty());
    // The shorter the time until the areas are known, the fewer calls fall into it.
    let areas = maps()?;
    let areas_at = sys::now();
    between();
    let before = (areas, proc::counts(pid)?);
    // Advice and locks that are newer than the areas are carried out again.
    let properties = read_in_parts(&format!("/proc/{pid}/smaps"), &mut between).unwrap_or_default();
    let present = pagemap::present_privately_in_parts(pid, &mut between)?;
    let after = (maps()?, proc::counts(pid)?);
    let program = proc::program(pid)?;
    each(Progress::All);
    let text = String::from_utf8_lossy(&before.0);
    let mut areas: Vec<StateArea> = text.lines().filter_map(StateArea::parse).collect();
    add_properties(&mut areas, &properties);
    add_stacks(&mut areas, process);
    let objects = text.lines().filter_map(|line| proc::object(line, &proc::area(line)?)).collect();
    let state = SpaceState {
        parent: proc::status(&process.to_string(), "PPid").and_then(|pid| pid.parse().ok()).unwrap_or(0),
        areas_at,
        heap: program.heap.div_ceil(1 << PAGE_SHIFT),
        stack_limit: proc::stack_limit(pid).unwrap_or(0),
        name: program.name,
        tables: before.1.tables,
        areas,
        present,
        program: proc::program_path(pid),
        objects,
    };
    Some(Reading { state, steady: before == after })
}

/// Reads a file, and calls `between` after each part of it.
fn read_in_parts(path: &str, mut between: impl FnMut()) -> io::Result<String> {
    let (mut file, mut text, mut part) = (File::open(path)?, Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut part)?;
        between();
        if read == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&part[..read]);
    }
}

/// Marks the areas that the stack pointers of threads are in. A thread that runs does not show its
/// own.
fn add_stacks(areas: &mut [StateArea], process: i32) {
    for thread in proc::threads(process).into_iter().filter(|thread| *thread != process) {
        let Some(page) = proc::stack_page(process, thread) else { continue };
        let found = areas.iter_mut().find(|a| (a.area.start..a.area.start + a.area.pages).contains(&page));
        if let Some(area) = found.filter(|a| a.area.kind == AreaKind::Anon && !a.area.shared && !a.heap) {
            area.stack = true;
        }
    }
}

/// Adds the properties that only `smaps` has. An area that it shows otherwise keeps none: it has
/// changed since, and an event tells.
fn add_properties(areas: &mut [StateArea], smaps: &str) {
    let mut at = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let Some(shown) = at.take().map(|a: StateArea| a.area) else { continue };
            let found = areas.binary_search_by_key(&shown.start, |a| a.area.start);
            if let Some(area) = found.ok().and_then(|at| areas.get_mut(at))
                && area.area.pages == shown.pages
            {
                area.add_flags(flags);
            }
        } else if line
            .as_bytes()
            .first()
            .is_some_and(|first| first.is_ascii_hexdigit() && !first.is_ascii_uppercase())
        {
            at = StateArea::parse(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 [heap]
Size: 8 kB
VmFlags: rd wr mr mw me lo dc ac
7000-9000 rw-s 00000000 00:01 77 /memfd:x (deleted)
VmFlags: rd wr sh mr mw me ms
9000-a000 rw-s 00002000 fe:00 78 /var/data
VmFlags: rd wr sh ht nr hg
";

    fn areas() -> Vec<StateArea> {
        let lines = SMAPS.lines().filter(|line| line.contains('-'));
        let mut areas: Vec<StateArea> = lines.filter_map(StateArea::parse).collect();
        add_properties(&mut areas, SMAPS);
        areas
    }

    #[test]
    fn areas_have_the_properties_of_smaps() {
        let [heap, memory, file] = areas()[..] else { panic!("three areas") };
        assert!(heap.heap && heap.flags.0 == MapFlags::LOCKED);
        assert_eq!(heap.advice().collect::<Vec<_>>(), [libc::MADV_DONTFORK as u16]);
        assert_eq!(memory.flags.0, MapFlags::SHARED | MapFlags::ANON);
        assert_eq!(file.flags.0, MapFlags::SHARED | MapFlags::HUGE_ONLY | MapFlags::NORESERVE);
        assert_eq!(file.advice().collect::<Vec<_>>(), [libc::MADV_HUGEPAGE as u16]);
        // An area that has changed between the two files keeps no property.
        let mut grown = [StateArea::parse("1000-4000 rw-p 00000000 00:00 0 [heap]").expect("an area")];
        add_properties(&mut grown, SMAPS);
        assert_eq!(grown[0].flags.0, 0);
    }

    #[test]
    fn words_and_back() {
        let found = PresentPages { start: 5, pages: 6, private: true, exclusive: false, huge: false };
        let state = SpaceState {
            parent: 7,
            areas_at: 1 << 60,
            heap: 9,
            stack_limit: 2048,
            name: "a program".to_owned(),
            tables: 12,
            areas: areas(),
            present: vec![found; 3],
            program: "/bin/a program".to_owned(),
            objects: vec![MappedObject { start: 1, path: "/lib/l".to_owned(), ..MappedObject::default() }; 2],
        };
        let words = state.encode();
        assert_eq!(SpaceState::decode(&words[..words.len() - 1]), None);
        assert_eq!(SpaceState::decode(&words), Some(state));
        assert_eq!(SpaceState::decode(&[1, 2, 3, 4, 5, 6, 7, u64::MAX, 0]), None);
        assert_eq!(SpaceState::decode(&[1, 2, 3, 4, 5, 6, 7, 0, u64::MAX]), None);
    }

    #[test]
    fn this_process_can_be_read() {
        if !pagemap::works() {
            return;
        }
        let mut calls = Vec::new();
        let Reading { state, .. } =
            read(std::process::id() as i32, |progress| calls.push(progress)).expect("our own");
        assert!(state.areas.iter().any(|a| a.area.kind == AreaKind::Stack));
        // After the areas, two parts of the properties and one of the pages.
        assert!(calls.len() >= 5 && calls.iter().filter(|one| **one == Progress::All).count() == 1);
        assert!(state.tables >= 3 && !state.present.is_empty() && !state.name.is_empty());
        let own = state.objects.iter().filter(|object| object.path == state.program);
        assert!(own.filter(|object| object.executable).count() == 1, "{}", state.program);
    }

    #[test]
    fn the_stack_of_a_waiting_thread_is_found() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (say, hear) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let local = 0_u8;
            say.send((sys::own_thread(), (&raw const local) as u64 >> PAGE_SHIFT)).expect("it listens");
            let _ = wait.recv();
        });
        let (number, page) = hear.recv().expect("it says so");
        let process = std::process::id() as i32;
        let stack = || {
            let found = proc::stack_page(process, number)?;
            let maps = fs::read_to_string("/proc/self/maps").ok()?;
            let mut areas: Vec<StateArea> = maps.lines().filter_map(StateArea::parse).collect();
            add_stacks(&mut areas, process);
            let area =
                areas.into_iter().find(|a| (a.area.start..a.area.start + a.area.pages).contains(&page))?;
            Some((found, area.stack))
        };
        // It may be about to wait.
        let found = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            stack().filter(|(_, is_stack)| *is_stack)
        });
        drop(done);
        thread.join().expect("it ends");
        let (found, _) = found.expect("it waits");
        assert!(found.abs_diff(page) < 16, "{found:#x} and {page:#x}");
    }
}
