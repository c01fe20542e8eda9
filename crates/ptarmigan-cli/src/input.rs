//! Traces named on the command line: files, shipped recordings, or `-` for standard input.
use crate::nearest;
use crate::shipped::SHIPPED;
use ptarmigan_trace::{ReadError, TraceFile};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

/// Opens a trace, and checks it as a whole. `-` is standard input; a pipe is copied to a temporary
/// file, of the length of the trace, that has no name. The name of a shipped recording stands for
/// it if there is no such file.
///
/// # Errors
/// If the trace cannot be read, or is not a complete trace of a supported version. The error for a
/// file that does not exist names the nearest that do.
pub fn open(path: &Path) -> Result<TraceFile, ReadError> {
    if path.as_os_str() != "-" {
        return match TraceFile::open(path) {
            Err(ReadError::Io(e)) if e.kind() == ErrorKind::NotFound => shipped(path),
            opened => opened,
        };
    }
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    if input.is_terminal() {
        let text = "standard input is a terminal; give a trace, as in `ptarmigan inspect - < make.ptrace`";
        return Err(Error::new(ErrorKind::InvalidInput, text).into());
    }
    if input.stream_position().is_ok() && input.metadata()?.is_file() {
        return TraceFile::new(input);
    }
    TraceFile::new(nameless(&mut input)?)
}

/// Opens the shipped recording of that name.
fn shipped(path: &Path) -> Result<TraceFile, ReadError> {
    let found = SHIPPED.iter().find(|(name, _)| path.as_os_str() == *name);
    match found {
        Some(&(_, mut bytes)) => TraceFile::new(nameless(&mut bytes)?),
        None => Err(Error::new(ErrorKind::NotFound, missing(path)).into()),
    }
}

/// Copies a trace to a temporary file without a name.
fn nameless(from: &mut impl Read) -> Result<File, Error> {
    let name = std::env::temp_dir().join(format!("ptarmigan-input-{}", std::process::id()));
    let mut copy = OpenOptions::new().read(true).write(true).create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    std::io::copy(from, &mut copy)?;
    copy.rewind()?;
    Ok(copy)
}

/// Says what there is instead of a file that does not exist.
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
        return format!("no such file; shipped recordings are {}", shipped.join(", "));
    }
    format!("no such file{hint}")
}
