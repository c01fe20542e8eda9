//! Reads a log from a stream, one record at a time.
use crate::decode::{DecodeError, decode};
use crate::header::{HEADER_START, Header, HeaderError};
use crate::record::Record;
use crate::wire::{CHECK_BYTES, Check, MAX_PAYLOAD};
use std::fmt;
use std::io::{self, ErrorKind, Read};

/// The most bytes of a header, which may be longer than this version's.
const MAX_HEADER: usize = 1024;

/// A record, and where it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The number of the record, counted from 1.
    pub number: u64,
    /// Its first byte in the log.
    pub offset: u64,
    /// The address of the instruction that did it, if the log says so.
    pub pc: Option<u64>,
    /// The record.
    pub record: Record<'a>,
}

/// An error of a log.
#[derive(Debug)]
pub enum What {
    /// It could not be read.
    Io(io::Error),
    /// It is no log, or of another version.
    Header(HeaderError),
    /// The check of the header does not match.
    HeaderCheck,
    /// It ends in the middle of a record.
    Cut,
    /// It ends after a record, without a record that ends it.
    NoEnd,
    /// A record cannot be read.
    Record(DecodeError),
    /// Bytes follow the record that ends it.
    AfterEnd,
}

/// Where a log is wrong, and how.
#[derive(Debug)]
pub struct ReadError {
    /// The byte of the log at which the header or the record begins that is wrong.
    pub offset: u64,
    /// The number of the record, counted from 1; 0 is the header.
    pub record: u64,
    /// The kind of error.
    pub what: What,
}

impl ReadError {
    /// Returns whether the log only ends too early: the records before are intact.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        matches!(self.what, What::Cut | What::NoEnd)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}, ", self.offset)?;
        match self.record {
            0 => f.write_str("header: ")?,
            number => write!(f, "record {number}: ")?,
        }
        match &self.what {
            What::Io(e) => e.fmt(f),
            What::Header(e) => e.fmt(f),
            What::HeaderCheck => f.write_str("its check does not match: bytes were changed"),
            What::Cut => f.write_str("the log ends in the middle"),
            What::NoEnd => {
                f.write_str("the log ends without an end record; it was cut, or is still being written")
            }
            What::Record(e) => e.fmt(f),
            What::AfterEnd => f.write_str("bytes follow the end record"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.what {
            What::Io(e) => Some(e),
            What::Header(e) => Some(e),
            What::Record(e) => Some(e),
            _ => None,
        }
    }
}

/// Reads a log.
///
/// It holds one record. After an error, and after the end of the log, [`next`](Self::next) returns
/// `Ok(None)`.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    header: Header,
    version: u16,
    check: Check,
    buffer: [u8; 2 + MAX_PAYLOAD + CHECK_BYTES],
    /// The offset of the next record.
    offset: u64,
    number: u64,
    over: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. Give it a reader that buffers.
    ///
    /// # Errors
    /// The log cannot be read, is cut in its header, is no log, or is of a version that this crate
    /// does not know.
    pub fn new(mut from: R) -> Result<Self, ReadError> {
        let error = |what| ReadError { offset: 0, record: 0, what };
        let mut bytes = [0; MAX_HEADER];
        let (fixed, rest) = bytes.split_at_mut(HEADER_START);
        let have = fill(&mut from, fixed).map_err(|e| error(What::Io(e)))?;
        let Some(fixed) = fixed.first_chunk::<HEADER_START>().filter(|_| have == HEADER_START) else {
            // Whatever is shorter than that and begins otherwise is no log that was cut.
            let begins = crate::MAGIC.starts_with(&fixed[..have.min(8)]);
            return Err(error(if begins { What::Cut } else { What::Header(HeaderError::NotALog) }));
        };
        let (version, length) = Header::start(fixed).map_err(|e| error(What::Header(e)))?;
        let Some(rest) = rest.get_mut(..length + CHECK_BYTES) else {
            return Err(error(What::Header(HeaderError::Short(length))));
        };
        if fill(&mut from, rest).map_err(|e| error(What::Io(e)))? < rest.len() {
            return Err(error(What::Cut));
        }
        let (fields, found) = rest.split_at(length);
        let check = Check::new().with(fixed).with(fields);
        if found != check.value().to_le_bytes() {
            return Err(error(What::HeaderCheck));
        }
        let header = Header::fields(version, fields).map_err(|e| error(What::Header(e)))?;
        let offset = (HEADER_START + length + CHECK_BYTES) as u64;
        Ok(Self {
            from,
            header,
            version,
            check,
            buffer: [0; 2 + MAX_PAYLOAD + CHECK_BYTES],
            offset,
            number: 0,
            over: false,
        })
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the version of the format that the log is written in.
    #[must_use]
    pub const fn version(&self) -> u16 {
        self.version
    }

    /// Returns how many bytes of the log have been read without an error.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns how many records have been read without an error, those that were skipped included.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.number
    }

    /// Reads the next record. `None` is the end. Records of unknown kinds that may be skipped are.
    ///
    /// # Errors
    /// The log cannot be read, is cut, or is damaged. The records before are good.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        while !self.over {
            match self.load() {
                Ok(false) => {}
                Ok(true) => return self.current(),
                Err(what) => {
                    self.over = true;
                    return Err(ReadError { offset: self.offset, record: self.number + 1, what });
                }
            }
        }
        Ok(None)
    }

    /// Reads a record into the buffer. False: it may be skipped.
    fn load(&mut self) -> Result<bool, What> {
        let (start, rest) = self.buffer.split_at_mut(2);
        match fill(&mut self.from, start).map_err(What::Io)? {
            0 => return Err(What::NoEnd),
            1 => return Err(What::Cut),
            _ => {}
        }
        let rest = &mut rest[..usize::from(start[1]) + CHECK_BYTES];
        if fill(&mut self.from, rest).map_err(What::Io)? < rest.len() {
            return Err(What::Cut);
        }
        let decoded = decode(&self.buffer, self.check, self.version).map_err(What::Record)?;
        match decoded.record {
            Some(Record::End { .. }) => {
                if fill(&mut self.from, &mut [0]).map_err(What::Io)? > 0 {
                    // Said of the bytes that follow.
                    self.offset += decoded.used as u64;
                    self.number += 1;
                    return Err(What::AfterEnd);
                }
                Ok(true)
            }
            Some(_) => Ok(true),
            None => {
                self.offset += decoded.used as u64;
                self.number += 1;
                self.check = decoded.check;
                Ok(false)
            }
        }
    }

    /// Returns the record in the buffer.
    fn current(&mut self) -> Result<Option<Entry<'_>>, ReadError> {
        let (offset, number) = (self.offset, self.number + 1);
        let error = |what| ReadError { offset, record: number, what };
        let decoded = decode(&self.buffer, self.check, self.version).map_err(|e| error(What::Record(e)))?;
        self.check = decoded.check;
        self.offset += decoded.used as u64;
        self.number = number;
        self.over = matches!(decoded.record, Some(Record::End { .. }));
        Ok(decoded.record.map(|record| Entry { number, offset, pc: decoded.pc, record }))
    }
}

/// Reads until `to` is full or the stream ends; returns how many bytes there were.
fn fill(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < to.len() {
        match from.read(&mut to[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}
