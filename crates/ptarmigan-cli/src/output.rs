//! The output file: a regular file, new or existing, named directly or through symbolic links.
use crate::error::{Context, Failure};
use std::fs::{self, FileType};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The output file of a recording.
pub(super) struct Output {
    /// The path on the command line.
    named: PathBuf,
    /// The file itself, with all symbolic links resolved.
    file: PathBuf,
}

impl Output {
    /// Resolves `path` to the file that the trace is written to.
    ///
    /// # Errors
    /// If `path` does not name a file, names something other than a regular file, is a symbolic
    /// link to nothing, or cannot be looked up.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let name_of_a_file = path.file_name().is_some_and(|last| {
            // `file_name` ignores a trailing slash, with or without a dot after it.
            path.as_os_str().as_bytes().ends_with(last.as_bytes())
        });
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound && name_of_a_file => {
                return Ok(Self { named: path.to_owned(), file: path.to_owned() });
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Failure::new(format!("{name}: not the name of a file")));
            }
            Err(e) => return Err(e).context(format_args!("{name}: cannot be written")),
            Ok(_) => {}
        }
        let kind = match fs::metadata(path) {
            Ok(found) => found.file_type(),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Failure::new(format!("{name}: a symbolic link to nothing; name a regular file")));
            }
            Err(e) => return Err(e).context(format_args!("{name}: cannot be written")),
        };
        if !kind.is_file() {
            return Err(Failure::new(format!("{name}: {}; name a regular file", describe(kind))));
        }
        let file = fs::canonicalize(path).context(format_args!("{name}: cannot be written"))?;
        Ok(Self { named: path.to_owned(), file })
    }

    /// Returns the file, with all symbolic links resolved.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Moves the finished trace to its place. Resolves the path again, as the recorded program may
    /// have changed it.
    ///
    /// # Errors
    /// As [`new`](Self::new), or if the trace cannot be moved.
    pub(super) fn install(&self, partial: &Path) -> Result<(), Failure> {
        let now = Self::new(&self.named)?;
        fs::rename(partial, &now.file).context(format_args!("{}: cannot be written", self.named.display()))
    }
}

/// Describes what is not a regular file.
fn describe(kind: FileType) -> &'static str {
    match kind {
        k if k.is_dir() => "a directory",
        k if k.is_char_device() || k.is_block_device() => "a device",
        k if k.is_fifo() => "a pipe",
        k if k.is_socket() => "a socket",
        _ => "not a regular file",
    }
}
