//! The file that a recording is written to.
//!
//! Without `--output` its name is chosen at the end, by the program with most page tables. Such a
//! file replaces no other.
use ptarmigan_term::output::Output;
use ptarmigan_term::{Context, Failure};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The end of a trace's name.
const EXTENSION: &str = "ptrace";

/// The most files of one name, numbered from 2 on.
const MOST: u32 = 10_000;

/// The place of the trace.
pub(crate) enum Target {
    /// The file of `--output`.
    Named(PathBuf, Output),
    /// A new file in a directory, named at the end.
    New(PathBuf),
}

impl Target {
    /// Checks the file of `--output`, if there is one.
    pub(crate) fn new(output: Option<&Path>) -> Result<Self, Failure> {
        Ok(match output {
            Some(path) => Self::Named(path.to_owned(), Output::new(path)?),
            None => Self::New(PathBuf::new()),
        })
    }

    /// Returns the file beside which temporary files are.
    pub(crate) fn beside(&self) -> PathBuf {
        match self {
            Self::Named(_, output) => output.file().to_owned(),
            Self::New(directory) => directory.join("ptarmigan"),
        }
    }

    /// Returns the start of a message: the trace, and that it cannot be written.
    pub(crate) fn problem(&self) -> String {
        match self {
            Self::Named(path, _) => format!("{}: cannot be written", path.display()),
            Self::New(_) => "this directory cannot be written to; name a file with -o".to_owned(),
        }
    }

    /// Moves a finished trace into place and returns its path. `name` is that of the workload.
    pub(crate) fn install(&self, partial: &Path, name: &str) -> Result<PathBuf, Failure> {
        let directory = match self {
            Self::Named(path, output) => return output.install(partial).map(|()| path.clone()),
            Self::New(directory) => directory,
        };
        for n in 1..=MOST {
            let file = directory.join(file_name(name, n));
            match move_to_new(partial, &file) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                other => {
                    return other
                        .map(|()| file.clone())
                        .context(format_args!("{}: cannot be written", file.display()));
                }
            }
        }
        Err(Failure::new(format!("there are {MOST} files {} already; name one with -o", file_name(name, 1))))
    }
}

/// Returns the name of the `n`th file for a workload.
fn file_name(name: &str, n: u32) -> String {
    let plain: String = name.chars().map(|c| if c.is_whitespace() { '-' } else { c }).collect();
    // A file is neither hidden nor taken for an option.
    let plain = plain.trim_start_matches(['.', '-']);
    let plain = if plain.is_empty() { "trace" } else { plain };
    if n == 1 { format!("{plain}.{EXTENSION}") } else { format!("{plain}-{n}.{EXTENSION}") }
}

/// Moves a file to a name that no file has.
fn move_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // File systems without that request have links.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        other => Ok(other?),
    }
}

/// Returns whether a path is named like a trace and leads to a file.
pub(crate) fn is_trace(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION) && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(file_name("postgres", 1), "postgres.ptrace");
        assert_eq!(file_name("postgres", 2), "postgres-2.ptrace");
        assert_eq!(file_name("Web Content", 1), "Web-Content.ptrace");
        assert_eq!(file_name("..-x", 1), "x.ptrace");
        assert_eq!(file_name("-", 3), "trace-3.ptrace");
    }

    #[test]
    fn a_new_file_replaces_no_other() {
        let directory = std::env::temp_dir().join(format!("ptarmigan-target-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let target = Target::New(directory.clone());
        let partial = directory.join("partial");
        for name in ["a.ptrace", "a-2.ptrace", "a-3.ptrace"] {
            fs::write(&partial, name).expect("room");
            assert_eq!(target.install(&partial, "a").ok(), Some(directory.join(name)));
        }
        for name in ["a.ptrace", "a-2.ptrace", "a-3.ptrace"] {
            assert_eq!(fs::read_to_string(directory.join(name)).expect("it is there"), name);
        }
        fs::remove_dir_all(&directory).expect("our directory");
    }
}
