//! A trace in a file, checked as a whole before its first event is read.
use crate::{Header, ReadError, Reader, Summary, summary};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3Default;

/// A trace in a file, complete and unchanged.
pub struct TraceFile {
    file: File,
    header: Header,
    summary: Summary,
    bytes: u64,
}

impl TraceFile {
    /// Opens a trace: reads its header and its trailer, and compares the checksum of the whole file
    /// in one pass over the compressed bytes. The file must be seekable; for a pipe see
    /// [`Reader::new`].
    ///
    /// # Errors
    /// If the file cannot be read, or is not a complete trace of a supported version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::new(File::open(path)?)
    }

    /// As [`open`](Self::open), of an open file from its start.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn new(mut file: File) -> Result<Self, ReadError> {
        file.rewind()?;
        let mut input = BufReader::with_capacity(1 << 16, &mut file);
        let header = Header::decode(&mut input)?;
        let bytes = input.seek(SeekFrom::End(0))?;
        let Some(body) = bytes.checked_sub(summary::LEN as u64) else {
            return Err(ReadError::Truncated { event: 0 });
        };
        input.rewind()?;
        let mut hash = Xxh3Default::new();
        let mut left = body;
        let mut piece = vec![0; 1 << 16];
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            input.read_exact(&mut piece[..n])?;
            hash.update(&piece[..n]);
            left -= n as u64;
        }
        let mut tail = [0; summary::LEN];
        input.read_exact(&mut tail)?;
        let (summary, expected) = match Summary::decode(&tail, header.version) {
            // Without a trailer at its end, the file is truncated or has bytes behind it. Reading
            // it tells which.
            Err(_) if !Summary::starts(&tail) => {
                input.rewind()?;
                for event in Reader::new(input)? {
                    event?;
                }
                return Err(ReadError::Checksum { part: "trailer" });
            }
            other => other?,
        };
        if hash.digest() != expected {
            return Err(ReadError::Checksum { part: "events" });
        }
        Ok(Self { file, header, summary, bytes })
    }

    /// Returns the header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the trailer: the number of events by kind, and of lost events.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the length of the file in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the events, from the first. No more are read than the trailer counts, so a caller
    /// may provide for so many.
    ///
    /// # Errors
    /// If the file can no longer be read.
    pub fn events(mut self) -> Result<Reader<BufReader<File>>, ReadError> {
        self.file.rewind()?;
        let mut reader = Reader::new(BufReader::with_capacity(1 << 16, self.file))?;
        reader.limit(&self.summary);
        Ok(reader)
    }
}

impl Reader<BufReader<File>> {
    /// Opens a file and checks it as a whole, as [`TraceFile::open`] does.
    ///
    /// # Errors
    /// If the file cannot be read or is not a complete trace.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        TraceFile::open(path)?.events()
    }
}
