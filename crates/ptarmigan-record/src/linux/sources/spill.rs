//! Temporary files beside the output. Raw events go there first, so the recorder's memory does not
//! grow with the recording.
//!
//! ```text
//!  start      reserve: 1 MiB for each CPU ── set aside
//!  write      disk full ── failed ──> end: ended = now, reserve removed ──> flush again: room
//!  later      keeps(time)? ── time > ended ──> dropped: the recording ends at one moment
//! ```
//!
//! # Why
//!
//! A full disk must not cost the recording: events that are already on their way would be lost in
//! the middle, and a trace with holes is no trace. So room is set aside at the start. When the rest
//! is taken, one writer wins the exchange of `ended`, and all of them keep events from before that
//! moment only. The trace then ends early, says so, and has no hole.
//!
//! The directory lies beside the output, because a rename to the output must not cross file
//! systems, and a user who chose a large disk chose it for this.
use super::ring::StrangeRecords;
use crate::linux::exec_result::ExecResult;
use crate::linux::largest::Largest;
use crate::linux::raw::{Raw, RawKind};
use crate::linux::system::held::Held;
use crate::linux::system::pagemap::Unwritten;
use crate::linux::system::sys;
use crate::linux::watchdog;
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory that is removed with its contents on drop.
pub(crate) struct Spill {
    dir: PathBuf,
    _held: Held,
    /// The room that it has on its disk.
    pub(crate) room: Arc<Room>,
    /// Records of the kernel that could not be taken.
    pub(crate) strange: StrangeRecords,
}

/// Room on a disk that a recording may fill. A part is set aside at the start and given back when
/// the rest is taken: events on their way then have a place.
pub(crate) struct Room {
    reserve: PathBuf,
    /// When the recording ended for lack of room, or 0.
    ended: AtomicU64,
}

/// Bytes that are set aside for each CPU, and for the tracer.
const RESERVE: u64 = 1 << 20;

impl Room {
    /// Ends the recording: no later event is kept.
    pub(crate) fn end(&self) {
        if self.ended.compare_exchange(0, sys::now(), Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // Without the removal there is less room, or no room.
            let _ = fs::remove_file(&self.reserve);
        }
    }

    /// When the recording ended, if it did.
    pub(crate) fn ended(&self) -> Option<u64> {
        Some(self.ended.load(Ordering::SeqCst)).filter(|&time| time != 0)
    }

    /// Whether an event of this time is kept: room that was set aside is for events from before the
    /// end alone.
    pub(crate) fn keeps(&self, time: u64) -> bool {
        self.ended().is_none_or(|ended| time <= ended)
    }

    /// Writes to a file. If there is no room, the recording ends, and the room that was set aside
    /// is used.
    pub(crate) fn write(&self, to: &mut BufWriter<File>, bytes: &[u8]) -> io::Result<()> {
        // No byte of `bytes` is in the buffer after an error.
        if to.buffer().len() + bytes.len() > to.capacity()
            && let Err(e) = to.flush()
        {
            self.failed(e)?;
            to.flush()?;
        }
        to.write_all(bytes)
    }

    /// Writes the contents of the buffer.
    pub(crate) fn flush(&self, to: &mut BufWriter<File>) -> io::Result<()> {
        to.flush().or_else(|e| self.failed(e).and_then(|()| to.flush()))
    }

    fn failed(&self, e: io::Error) -> io::Result<()> {
        self.end();
        if is_full(&e) { Ok(()) } else { Err(e) }
    }
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Spill {
    /// Creates the directory beside `output`.
    ///
    /// # Errors
    /// If it cannot be created, or there is not even room for [`RESERVE`] bytes.
    pub(crate) fn new(output: &Path) -> io::Result<Self> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let dir = output.with_file_name(format!(".{name}.{}", watchdog::number()));
        // Names of files are in it, those of other users' programs among them.
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let held = Held::new(&dir).and_then(|held| File::create(dir.join(MARK)).map(|_| held));
        let held = held.inspect_err(|_| drop(fs::remove_dir(&dir)))?;
        let reserve = dir.join("reserve");
        let parts = std::thread::available_parallelism().map_or(1, |n| n.get()) as u64 + 1;
        let set_aside = |bytes| Ok(fallocate(&File::create(&reserve)?, FallocateFlags::empty(), 0, bytes)?);
        // File systems that cannot set room aside have another error.
        let full = |done: &io::Result<()>| done.as_ref().is_err_and(is_full);
        let least = if full(&set_aside(parts * RESERVE)) { set_aside(RESERVE) } else { Ok(()) };
        let room = Arc::new(Room { reserve, ended: AtomicU64::new(0) });
        let spill = Self { dir, _held: held, room, strange: StrangeRecords::default() };
        if full(&least) { least.map(|()| spill) } else { Ok(spill) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// The file that tells a recorder's directory from others: the first in it, and the last.
const MARK: &str = ".ptarmigan-recording";

/// Removes the directories beside `output` of recorders that are gone, whatever their outputs. One
/// that is empty has no mark: it has to have the name of `output`, and the number of no process.
pub(crate) fn remove_stale(output: &Path) {
    let own = output.file_name().unwrap_or_default().to_string_lossy();
    let beside = output.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let parts = name.to_str().and_then(|name| name.strip_prefix('.')?.rsplit_once('.'));
        let Some((of, Ok(number))) = parts.map(|(of, number)| (of, number.parse::<u32>())) else { continue };
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Some(_held) = Held::of_none(&path) else { continue };
        // Directories that cannot be removed stay.
        if path.join(MARK).is_file() {
            let _ = remove(&path);
        } else if of == own && !Path::new(&format!("/proc/{number}")).exists() {
            let _ = fs::remove_dir(&path);
        }
    }
}

/// Removes a directory. It has its mark for as long as it has files, also if that is interrupted.
fn remove(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten().filter(|entry| entry.file_name() != MARK) {
        fs::remove_file(entry.path())?;
    }
    // Without the mark the directory is empty now.
    let _ = fs::remove_file(dir.join(MARK));
    fs::remove_dir(dir)
}

impl Drop for Spill {
    fn drop(&mut self) {
        // A directory that cannot be removed is left behind.
        let _ = remove(&self.dir);
    }
}

/// The tracer's files: raw events in order of time, and the results of execves.
pub(crate) struct Notes {
    events: BufWriter<File>,
    events_at: PathBuf,
    made: BufWriter<File>,
    made_at: PathBuf,
    made_len: u64,
    /// For each task: the times of its execs, and the offsets in `made`.
    execs: HashMap<i32, VecDeque<(u64, u64)>>,
    unwritten: BufWriter<File>,
    unwritten_at: PathBuf,
    unwritten_len: u64,
    /// For each process: the times of the looks before its forks, and the offsets in `unwritten`.
    looks: HashMap<i32, VecDeque<(u64, u64)>>,
    largest: Largest,
    room: Arc<Room>,
    /// Why writing has stopped.
    failed: Option<io::Error>,
}

impl Notes {
    pub(crate) fn new(spill: &Spill) -> io::Result<Self> {
        let (events_at, made_at) = (spill.path("notes"), spill.path("made"));
        let unwritten_at = spill.path("unwritten");
        Ok(Self {
            events: BufWriter::new(File::create(&events_at)?),
            events_at,
            made: BufWriter::new(File::create(&made_at)?),
            made_at,
            made_len: 0,
            execs: HashMap::new(),
            unwritten: BufWriter::new(File::create(&unwritten_at)?),
            unwritten_at,
            unwritten_len: 0,
            looks: HashMap::new(),
            largest: Largest::default(),
            room: Arc::clone(&spill.room),
            failed: None,
        })
    }

    /// Adds an event. A sample of tables is of a task that is still there.
    pub(crate) fn event(&mut self, raw: &Raw) {
        match &raw.what {
            RawKind::Tables { tables, .. } | RawKind::LastTables { tables } => {
                self.largest.sample(raw.pid, *tables);
            }
            RawKind::ReadDone(state) => {
                self.largest.started(&state.name);
                self.largest.sample(raw.pid, state.tables);
            }
            _ => {}
        }
        if self.failed.is_none() && self.room.ended().is_none() {
            self.failed = self.room.write(&mut self.events, &bytes_of(raw)).err();
        }
    }

    pub(crate) fn made(&mut self, time: u64, pid: i32, made: &ExecResult) {
        self.largest.started(&made.name);
        if self.failed.is_none() && self.room.ended().is_none() {
            self.execs.entry(pid).or_default().push_back((time, self.made_len));
            let bytes: Vec<u8> = made.encode().iter().flat_map(|w| w.to_le_bytes()).collect();
            self.made_len += bytes.len() as u64;
            self.failed = self.room.write(&mut self.made, &bytes).err();
        }
    }

    /// Adds the pages of a process that nobody has written, before it forks.
    pub(crate) fn unwritten(&mut self, time: u64, group: i32, found: &[Unwritten]) {
        if self.failed.is_none() && self.room.ended().is_none() {
            self.looks.entry(group).or_default().push_back((time, self.unwritten_len));
            let words = found.iter().flat_map(|one| [one.start, one.pages, one.since]);
            let words = [found.len() as u64].into_iter().chain(words);
            let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            self.unwritten_len += bytes.len() as u64;
            self.failed = self.room.write(&mut self.unwritten, &bytes).err();
        }
    }

    /// Ends writing and starts reading.
    pub(crate) fn read(mut self) -> io::Result<NotesRead> {
        let flushed = self.room.flush(&mut self.events).and_then(|()| self.room.flush(&mut self.made));
        let flushed = flushed.and_then(|()| self.room.flush(&mut self.unwritten));
        Ok(NotesRead {
            events: noted(&self.events_at)?,
            execs: NotedExecs { file: BufReader::new(File::open(&self.made_at)?), execs: self.execs },
            reads: NotedReads {
                file: BufReader::new(File::open(&self.unwritten_at)?),
                looks: self.looks,
                current: HashMap::new(),
            },
            largest: self.largest,
            failed: self.failed.or(flushed.err()),
        })
    }
}

/// The tracer's files, to be read.
pub(crate) struct NotesRead {
    pub(crate) events: NotedEvents,
    pub(crate) execs: NotedExecs,
    pub(crate) reads: NotedReads,
    /// The program with most tables.
    pub(crate) largest: Largest,
    /// Why the notes are not complete, if so.
    pub(crate) failed: Option<io::Error>,
}

/// A temporary file that is read once. Its space is given back as it is read, so that there is room
/// for the trace even on a disk that the recording has filled.
pub(crate) struct Consumed {
    file: File,
    /// Bytes read.
    read: u64,
    /// Bytes given back.
    freed: u64,
}

/// Bytes that are given back at once.
const FREED: u64 = 1 << 20;

/// Opens a temporary file to read it once.
pub(crate) fn consume(path: &Path) -> io::Result<BufReader<Consumed>> {
    let file = File::options().read(true).write(true).open(path)?;
    Ok(BufReader::with_capacity(1 << 18, Consumed { file, read: 0, freed: 0 }))
}

impl Read for Consumed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.read += n as u64;
        if self.read - self.freed >= FREED {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where a file system cannot do it, the space stays taken.
            let _ = fallocate(&self.file, hole, self.freed, self.read - self.freed);
            self.freed = self.read;
        }
        Ok(n)
    }
}

fn word(file: &mut impl Read) -> Option<u64> {
    let mut b = [0; 8];
    file.read_exact(&mut b).ok()?;
    Some(u64::from_le_bytes(b))
}

/// Encodes a raw event for a temporary file.
pub(crate) fn bytes_of(raw: &Raw) -> Vec<u8> {
    raw.encode().iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Opens a temporary file of encoded raw events to read it once.
pub(crate) fn noted(path: &Path) -> io::Result<NotedEvents> {
    Ok(NotedEvents { file: consume(path)? })
}

/// Raw events from a temporary file, in order of time.
pub(crate) struct NotedEvents {
    file: BufReader<Consumed>,
}

impl Iterator for NotedEvents {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        let n = word(&mut self.file)?;
        let words: Vec<u64> = (0..n).map_while(|_| word(&mut self.file)).collect();
        Raw::decode(&words)
    }
}

/// The results of execves, by task and time.
pub(crate) struct NotedExecs {
    file: BufReader<File>,
    execs: HashMap<i32, VecDeque<(u64, u64)>>,
}

impl NotedExecs {
    /// Returns the result of the execve that task `pid` began at `time`.
    pub(crate) fn after(&mut self, pid: i32, time: u64) -> Option<ExecResult> {
        let execs = self.execs.get_mut(&pid)?;
        while execs.front().is_some_and(|(done, _)| *done < time) {
            execs.pop_front();
        }
        let (_, at) = execs.pop_front()?;
        if execs.is_empty() {
            self.execs.remove(&pid);
        }
        self.file.seek(SeekFrom::Start(at)).ok()?;
        ExecResult::decode(|| word(&mut self.file))
    }
}

/// The pages that nobody had written before forks, by process and time.
pub(crate) struct NotedReads {
    file: BufReader<File>,
    looks: HashMap<i32, VecDeque<(u64, u64)>>,
    /// Of each process the look that is in memory: its time, and its pages in order.
    current: HashMap<i32, (u64, Vec<Unwritten>)>,
}

impl NotedReads {
    /// Returns whether the fault of a process on `page` at `time` is known to have read: the page
    /// had not been written when the process forked next.
    pub(crate) fn knows(&mut self, group: i32, time: u64, page: u64) -> bool {
        if self.current.get(&group).is_none_or(|(until, _)| *until < time) {
            self.current.remove(&group);
            let Some(looks) = self.looks.get_mut(&group) else { return false };
            while looks.front().is_some_and(|(look, _)| *look < time) {
                looks.pop_front();
            }
            let Some((look, at)) = looks.pop_front() else {
                self.looks.remove(&group);
                return false;
            };
            let Some(found) = self.read(at) else { return false };
            self.current.insert(group, (look, found));
        }
        let Some((_, found)) = self.current.get(&group) else { return false };
        let after = found.partition_point(|one| one.start <= page);
        let before = after.checked_sub(1).and_then(|at| found.get(at));
        before.is_some_and(|one| page < one.start + one.pages && one.since < time)
    }

    fn read(&mut self, at: u64) -> Option<Vec<Unwritten>> {
        self.file.seek(SeekFrom::Start(at)).ok()?;
        let n = word(&mut self.file)?;
        let mut one = || {
            let [start, pages, since] = [(); 3].map(|()| word(&mut self.file));
            Some(Unwritten { start: start?, pages: pages?, since: since? })
        };
        (0..n).map(|_| one()).collect()
    }
}
