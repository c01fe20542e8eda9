//! What can be wrong with a trace, each as one line that says what, where, and what to do.
use std::{fmt, io};

/// Why a trace could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file does not start as a trace does.
    NotATrace,
    /// The format is newer than this crate.
    NewerVersion {
        /// Version of the file.
        found: u16,
        /// Newest version that can be read.
        known: u16,
    },
    /// The file ends too early.
    Truncated {
        /// Events that were read before the end.
        event: u64,
    },
    /// The bytes are not those that were written.
    Checksum {
        /// The part of the file that differs.
        part: &'static str,
    },
    /// A value makes no sense where it stands.
    Damaged {
        /// Number of the event, from 0.
        event: u64,
        /// Offset of the event in the uncompressed rows, in bytes.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// There are bytes after the end of the trace.
    TrailingBytes,
    /// The operating system could not read the file.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotATrace => write!(f, "not a trace: it does not start with the mark of a ptarmigan trace"),
            Self::NewerVersion { found, known } => write!(
                f,
                "made by a newer version (format {found}, this program reads up to {known}): update ptarmigan"
            ),
            Self::Truncated { event } => {
                write!(f, "truncated: the file ends after event {event}; copy or record it again")
            }
            Self::Checksum { part } => {
                write!(f, "checksum of the {part} differs: the file was changed; copy or record it again")
            }
            Self::Damaged { event, offset, what } => write!(
                f,
                "damaged at event {event} (byte {offset} of the uncompressed rows): {what}; copy or record it again"
            ),
            Self::TrailingBytes => {
                write!(f, "there are bytes after the end of the trace: remove them, or copy it again")
            }
            Self::Io(e) => write!(f, "cannot be read: {e}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Why a trace could not be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// An event that no reader would accept; it was not written and the trace may go on.
    Invalid {
        /// Number that the event would have had.
        event: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A header that no reader would accept.
    Header(&'static str),
    /// The operating system could not write.
    Io(io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { event, what } => write!(f, "event {event} cannot be written: {what}"),
            Self::Header(what) => write!(f, "the header cannot be written: {what}"),
            Self::Io(e) => write!(f, "cannot be written: {e}"),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}
