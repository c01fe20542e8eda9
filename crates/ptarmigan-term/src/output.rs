//! Output files: regular files, new or existing, named directly or through symbolic links. They are
//! written under another name and moved into place, so a file is complete or not there.
use crate::error::{Context, Failure};
use std::fs::{self, FileType, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// An output file.
pub struct Output {
    /// The path on the command line.
    named: PathBuf,
    /// The file itself, with all symbolic links resolved.
    file: PathBuf,
}

impl Output {
    /// Resolves `path` to the file that is written.
    ///
    /// # Errors
    /// If `path` does not name a file, names something other than a regular file, is a dangling
    /// symbolic link, or cannot be looked up, or if its directory is not there.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            fs::metadata(parent).context(format_args!("{name}: cannot be written"))?;
        }
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
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Writes `bytes` to a temporary file beside the output, and moves it into place.
    ///
    /// # Errors
    /// As [`install`](Self::install), or if the file cannot be written. The temporary file is gone
    /// then, and the output is as it was.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Failure> {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let partial = self.file.with_file_name(format!(".{name}.{}", std::process::id()));
        let problem = format!("{}: cannot be written", self.named.display());
        let mut file = OpenOptions::new().write(true).create_new(true).open(&partial).context(&problem)?;
        let written = file.write_all(bytes).context(&problem);
        drop(file);
        let done = written.and_then(|()| self.install(&partial));
        if done.is_err() {
            // If the removal fails, too, the partial file stays.
            let _ = fs::remove_file(&partial);
        }
        done
    }

    /// Moves a finished file to the place of the output. Resolves the path again, as it may have
    /// changed since: a recorded program may have done so.
    ///
    /// # Errors
    /// As [`new`](Self::new), or if the file cannot be moved.
    pub fn install(&self, partial: &Path) -> Result<(), Failure> {
        let now = Self::new(&self.named)?;
        fs::rename(partial, &now.file).context(format_args!("{}: cannot be written", self.named.display()))
    }
}

/// Describes a file that is not a regular one.
fn describe(kind: FileType) -> &'static str {
    match kind {
        k if k.is_dir() => "a directory",
        k if k.is_char_device() || k.is_block_device() => "a device",
        k if k.is_fifo() => "a pipe",
        k if k.is_socket() => "a socket",
        _ => "not a regular file",
    }
}
