//! Errors of reading and writing. Each message is one line that says what is wrong, where, and what
//! to do.
use std::{fmt, io};

/// The reason why a trace cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file does not begin like a trace.
    NotATrace,
    /// The format is newer than this crate supports.
    NewerVersion {
        /// Version of the file.
        found: u16,
        /// Newest supported version.
        known: u16,
    },
    /// The file ends early.
    Truncated {
        /// Number of events before the end.
        event: u64,
    },
    /// The checksum does not match: the file was changed.
    Checksum {
        /// The part of the file with the wrong checksum.
        part: &'static str,
    },
    /// A value is invalid at its place.
    Damaged {
        /// Number of the event, from 0.
        event: u64,
        /// Offset of the event in the uncompressed rows, in bytes.
        offset: u64,
        /// The defect.
        what: &'static str,
    },
    /// Bytes follow the end of the trace.
    TrailingBytes,
    /// The operating system reported an error.
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

/// The reason why a trace cannot be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// A reader would reject the event. It was not written, and the trace can continue.
    Invalid {
        /// Number that the event would have had.
        event: u64,
        /// The defect.
        what: &'static str,
    },
    /// A reader would reject the header.
    Header(&'static str),
    /// The operating system reported an error.
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
