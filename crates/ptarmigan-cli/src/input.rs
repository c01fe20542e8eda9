//! Traces named on the command line: files, or `-` for standard input.
use ptarmigan_trace::{ReadError, TraceFile};
use std::fs::{File, OpenOptions};
use std::io::Seek;
use std::os::fd::AsFd;
use std::path::Path;

/// Opens a trace, and checks it as a whole. `-` is standard input; a pipe is copied to a temporary
/// file, of the length of the trace, that has no name.
///
/// # Errors
/// If the trace cannot be read, or is not a complete trace of a supported version.
pub fn open(path: &Path) -> Result<TraceFile, ReadError> {
    if path.as_os_str() != "-" {
        return TraceFile::open(path);
    }
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    if input.stream_position().is_ok() && input.metadata()?.is_file() {
        return TraceFile::new(input);
    }
    let name = std::env::temp_dir().join(format!("ptarmigan-input-{}", std::process::id()));
    let mut copy = OpenOptions::new().read(true).write(true).create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    std::io::copy(&mut input, &mut copy)?;
    TraceFile::new(copy)
}
