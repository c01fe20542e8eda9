//! Temporary files beside the output. Raw events go there first, so the recorder's memory does not
//! grow with the recording.
use super::raw::{Made, Raw};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A directory that is removed with its contents on drop.
pub(super) struct Spill {
    dir: PathBuf,
}

impl Spill {
    /// Creates the directory beside `output`.
    pub(super) fn new(output: &Path) -> io::Result<Self> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let dir = output.with_file_name(format!(".{name}.{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Self { dir })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // A directory that cannot be removed is left behind.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The tracer's files: raw events in order of time, and what each execve made.
pub(super) struct Notes {
    events: BufWriter<File>,
    events_at: PathBuf,
    made: BufWriter<File>,
    made_at: PathBuf,
    made_len: u64,
    /// For each task: the times of its execs, and the offsets in `made`.
    execs: HashMap<i32, VecDeque<(u64, u64)>>,
}

impl Notes {
    pub(super) fn new(spill: &Spill) -> io::Result<Self> {
        let (events_at, made_at) = (spill.path("notes"), spill.path("made"));
        Ok(Self {
            events: BufWriter::new(File::create(&events_at)?),
            events_at,
            made: BufWriter::new(File::create(&made_at)?),
            made_at,
            made_len: 0,
            execs: HashMap::new(),
        })
    }

    pub(super) fn event(&mut self, raw: &Raw) -> io::Result<()> {
        for w in raw.encode() {
            self.events.write_all(&w.to_le_bytes())?;
        }
        Ok(())
    }

    pub(super) fn made(&mut self, time: u64, pid: i32, made: &Made) -> io::Result<()> {
        self.execs.entry(pid).or_default().push_back((time, self.made_len));
        for w in made.encode() {
            self.made.write_all(&w.to_le_bytes())?;
            self.made_len += 8;
        }
        Ok(())
    }

    /// Ends writing and starts reading.
    pub(super) fn read(mut self) -> io::Result<(NotedEvents, NotedExecs)> {
        self.events.flush()?;
        self.made.flush()?;
        Ok((
            NotedEvents { file: BufReader::new(File::open(&self.events_at)?) },
            NotedExecs { file: BufReader::new(File::open(&self.made_at)?), execs: self.execs },
        ))
    }
}

fn word(file: &mut impl Read) -> Option<u64> {
    let mut b = [0; 8];
    file.read_exact(&mut b).ok()?;
    Some(u64::from_le_bytes(b))
}

/// The tracer's raw events, in order of time.
pub(super) struct NotedEvents {
    file: BufReader<File>,
}

impl Iterator for NotedEvents {
    type Item = Raw;

    fn next(&mut self) -> Option<Raw> {
        let n = word(&mut self.file)?;
        let words: Vec<u64> = (0..n).map_while(|_| word(&mut self.file)).collect();
        Raw::decode(&words)
    }
}

/// What each execve made, by task and time.
pub(super) struct NotedExecs {
    file: BufReader<File>,
    execs: HashMap<i32, VecDeque<(u64, u64)>>,
}

impl NotedExecs {
    /// Returns what the execve made that task `pid` began at `time`.
    pub(super) fn after(&mut self, pid: i32, time: u64) -> Option<Made> {
        let execs = self.execs.get_mut(&pid)?;
        while execs.front().is_some_and(|(done, _)| *done < time) {
            execs.pop_front();
        }
        let (_, at) = execs.pop_front()?;
        if execs.is_empty() {
            self.execs.remove(&pid);
        }
        self.file.seek(SeekFrom::Start(at)).ok()?;
        Made::decode(|| word(&mut self.file))
    }
}
