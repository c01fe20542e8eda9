//! Where the trace goes: a regular file, new or old, named directly or through a symbolic link.
use crate::error::{Context, Failure};
use std::fs::{self, FileType};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The output file of a recording.
pub(super) struct Output {
    /// As the command line names it.
    named: PathBuf,
    /// The file itself, behind all symbolic links.
    file: PathBuf,
}

impl Output {
    /// Resolves `path` to the file that the trace is written to.
    ///
    /// # Errors
    /// If `path` is the name of a directory, names something that is no regular file, is a symbolic link to nothing,
    /// or cannot be looked up.
    pub(super) fn new(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let name_of_a_file = path.file_name().is_some_and(|last| {
            // `file_name` ignores a slash, and a dot behind it, at the end.
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

    /// Returns the file, behind all symbolic links.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Puts the finished trace in place. The name is resolved again: the recorded program may have changed it.
    ///
    /// # Errors
    /// As [`new`](Self::new), or if the file cannot be moved there.
    pub(super) fn install(&self, partial: &Path) -> Result<(), Failure> {
        let now = Self::new(&self.named)?;
        fs::rename(partial, &now.file).context(format_args!("{}: cannot be written", self.named.display()))
    }
}

/// Names what is no regular file.
fn describe(kind: FileType) -> &'static str {
    match kind {
        k if k.is_dir() => "a directory",
        k if k.is_char_device() || k.is_block_device() => "a device",
        k if k.is_fifo() => "a pipe",
        k if k.is_socket() => "a socket",
        _ => "not a regular file",
    }
}
