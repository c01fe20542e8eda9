//! ELF files: the header and the segments that are loaded.

use crate::arch::Abi;
use crate::errno::Errno;

/// Segments that a program may have.
pub const SEGMENTS: usize = 32;
/// Bytes of the header and of a segment's header at the most.
pub const HEADER: usize = 64;

/// A program's header.
#[derive(Clone, Copy, Debug)]
pub struct Elf {
    /// It may be loaded anywhere.
    pub movable: bool,
    /// Where it begins.
    pub entry: u64,
    /// Where the headers of segments are in the file.
    pub segments_at: u64,
    /// Bytes of each.
    pub segment_size: usize,
    /// How many.
    pub segments: usize,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// What it is for.
    pub kind: u32,
    /// Permissions: 4 to read, 2 to write, 1 to execute.
    pub flags: u32,
    /// Where it is in the file.
    pub offset: u64,
    /// Where it is loaded.
    pub at: u64,
    /// Bytes in the file.
    pub in_file: u64,
    /// Bytes in memory.
    pub in_memory: u64,
}

/// A segment that is loaded.
pub const LOAD: u32 = 1;
/// The name of a program that loads this one.
pub const INTERPRETER: u32 = 3;

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Elf {
    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if it is no program of this ABI.
    pub fn parse(abi: Abi, bytes: &[u8]) -> Result<Self, Errno> {
        Self::try_parse(abi, bytes).ok_or(Errno::ENOEXEC)
    }

    fn try_parse(abi: Abi, bytes: &[u8]) -> Option<Self> {
        let (class, machine, least) = match abi {
            Abi::X86_64 => (2, 62, 56),
            Abi::I386 => (1, 3, 32),
        };
        // The magic number, the class, little-endian, version 1.
        if bytes.get(..7)? != [0x7f, b'E', b'L', b'F', class, 1, 1] || half(bytes, 18)? != machine {
            return None;
        }
        let movable = match half(bytes, 16)? {
            2 => false,
            3 => true,
            _ => return None,
        };
        let (entry, segments_at, sizes) = match abi {
            Abi::X86_64 => (long(bytes, 24)?, long(bytes, 32)?, 54),
            Abi::I386 => (word(bytes, 24)?.into(), word(bytes, 28)?.into(), 42),
        };
        let segment_size = usize::from(half(bytes, sizes)?);
        let segments = usize::from(half(bytes, sizes + 2)?);
        let fits = (least..=HEADER).contains(&segment_size) && (1..=SEGMENTS).contains(&segments);
        fits.then_some(Elf { movable, entry, segments_at, segment_size, segments })
    }
}

impl Segment {
    /// Reads the header of a segment.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if it is cut.
    pub fn parse(abi: Abi, bytes: &[u8]) -> Result<Self, Errno> {
        let parsed = match abi {
            Abi::X86_64 => Self::wide(bytes),
            Abi::I386 => Self::narrow(bytes),
        };
        parsed.ok_or(Errno::ENOEXEC)
    }

    fn wide(bytes: &[u8]) -> Option<Self> {
        Some(Segment {
            kind: word(bytes, 0)?,
            flags: word(bytes, 4)?,
            offset: long(bytes, 8)?,
            at: long(bytes, 16)?,
            in_file: long(bytes, 32)?,
            in_memory: long(bytes, 40)?,
        })
    }

    fn narrow(bytes: &[u8]) -> Option<Self> {
        Some(Segment {
            kind: word(bytes, 0)?,
            offset: word(bytes, 4)?.into(),
            at: word(bytes, 8)?.into(),
            in_file: word(bytes, 16)?.into(),
            in_memory: word(bytes, 20)?.into(),
            flags: word(bytes, 24)?,
        })
    }
}
