//! Traces named on the command line: files, shipped recordings, or `-` for standard input.
pub mod shipped;

use ptarmigan_term::nearest;
use ptarmigan_trace::{ReadError, Reader, TraceFile};
use shipped::SHIPPED;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, IsTerminal, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Opens a trace, and checks it as a whole. `-` is standard input. The name of a shipped recording
/// stands for it if there is no such file. An input that cannot be read twice, such as a pipe, is
/// read to its end or to the first byte that is wrong, and copied to a temporary file that has no
/// name.
///
/// # Errors
/// If the trace cannot be read, or is not a complete trace of a supported version. The error for a
/// file that does not exist names the nearest that do.
pub fn open(path: &Path) -> Result<TraceFile, ReadError> {
    let mut input = if path.as_os_str() == "-" {
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        match File::open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return shipped(path),
            opened => opened?,
        }
    };
    if input.is_terminal() {
        let text = "a terminal; give a trace, as in `ptarmigan inspect - < make.ptrace`";
        return Err(io::Error::new(ErrorKind::InvalidInput, text).into());
    }
    let found = input.metadata()?;
    if found.is_file() && found.len() == 0 {
        // A file of /proc says so, too, and reading one may wait for ever.
        return check(io::empty()).and(Err(ReadError::Truncated { event: 0 }));
    }
    if found.is_file() && input.stream_position().is_ok() {
        return TraceFile::new(input);
    }
    let mut copying = Copying { input, copy: temporary()?, failed: None };
    let checked = check(BufReader::with_capacity(1 << 16, &mut copying));
    if let Some(e) = copying.failed {
        let what = format!("a temporary file in {}: {e}", std::env::temp_dir().display());
        return Err(io::Error::new(e.kind(), what).into());
    }
    checked?;
    TraceFile::new(copying.copy)
}

/// Returns the name of a trace in messages.
pub fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// Opens the shipped recording of that name.
fn shipped(path: &Path) -> Result<TraceFile, ReadError> {
    let Some((_, bytes)) = SHIPPED.iter().find(|(name, _)| path.as_os_str() == *name) else {
        return Err(io::Error::new(ErrorKind::NotFound, missing(path)).into());
    };
    let mut copy = temporary()?;
    copy.write_all(bytes)?;
    TraceFile::new(copy)
}

/// Lists the files that could be meant instead of one that does not exist.
fn missing(path: &Path) -> String {
    let mut known: Vec<String> = SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    for entry in std::fs::read_dir(directory.unwrap_or(Path::new("."))).into_iter().flatten().flatten() {
        if let Ok(name) = entry.file_name().into_string()
            && name.ends_with(".ptrace")
        {
            known.push(name);
        }
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hint = nearest::hint(&name, &known);
    if hint.is_empty() {
        let shipped: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        return format!("No such file; shipped recordings are {}", shipped.join(", "));
    }
    format!("No such file{hint}")
}

/// Reads all events of a trace.
fn check(input: impl io::BufRead) -> Result<(), ReadError> {
    Reader::new(input)?.try_for_each(|event| event.map(drop))
}

/// Input that is copied as it is read.
struct Copying {
    input: File,
    copy: File,
    /// Why it could not be copied.
    failed: Option<io::Error>,
}

impl Read for Copying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        if let Err(e) = self.copy.write_all(&buffer[..n]) {
            self.failed = Some(e);
            return Err(ErrorKind::Other.into());
        }
        Ok(n)
    }
}

/// Makes a file without a name, for reading and writing.
fn temporary() -> io::Result<File> {
    let path = |n: u32| -> PathBuf {
        std::env::temp_dir().join(format!("ptarmigan-input-{}-{n}", std::process::id()))
    };
    // A process that was killed may have left a name.
    let mut n = 0;
    let problem = |e: io::Error, path: &Path| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    loop {
        let path = path(n);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path).map_err(|e| problem(e, &path))?;
                return Ok(file);
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists && n < 1000 => n += 1,
            Err(e) => return Err(problem(e, &path)),
        }
    }
}
