//! ELF files: the header and the segments that are loaded.

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan_kernel_base::number;

use crate::arch::Abi;
use crate::errno::Errno;

const PAGE: u64 = FRAME_SIZE as u64;

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
    /// Its purpose.
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

/// The pages of a segment, below the end of programs' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentPages {
    /// Pages of the file; empty if it has no such pages.
    pub file: VirtRange,
    /// Where the first of them is in the file.
    pub offset: u64,
    /// Pages of zeroes, behind those of the file.
    pub zero: VirtRange,
    /// Bytes that have to be zero: from the end of the data up to the end of the file's last page,
    /// if there is memory behind the data.
    pub tail: VirtRange,
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

    /// Returns how many bytes the header of a file has.
    pub const fn least(abi: Abi) -> usize {
        if abi.word() == 8 { 64 } else { 52 }
    }

    fn try_parse(abi: Abi, bytes: &[u8]) -> Option<Self> {
        let word = abi.word();
        let (least, sizes) = if word == 8 { (56, 54) } else { (32, 42) };
        // As under Linux, the machine says the rest: class, byte order and version are not looked
        // at.
        if bytes.get(..4)? != b"\x7fELF" || number(bytes, 18, 2)? != abi.machine() {
            return None;
        }
        let movable = match number(bytes, 16, 2)? {
            2 => false,
            3 => true,
            _ => return None,
        };
        let (entry, segments_at) = (number(bytes, 24, word)?, number(bytes, 24 + word, word)?);
        let [segment_size, segments] = [sizes, sizes + 2].map(|at| number(bytes, at, 2));
        let (segment_size, segments) = (segment_size? as usize, segments? as usize);
        let fits = (least..=HEADER).contains(&segment_size) && (1..=SEGMENTS).contains(&segments);
        fits.then_some(Elf { movable, entry, segments_at, segment_size, segments })
    }

    /// Returns where the header of segment `i` is in the file.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if the header would lie at no offset.
    pub fn segment_at(&self, i: usize) -> Result<u64, Errno> {
        self.segments_at.checked_add((i * self.segment_size) as u64).ok_or(Errno::ENOEXEC)
    }

    /// Returns where a program that is moved by `shift` begins.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if that is at or above `end`.
    pub fn entry(&self, shift: u64, end: u64) -> Result<u64, Errno> {
        self.entry.checked_add(shift).filter(|at| *at < end).ok_or(Errno::ENOEXEC)
    }
}

impl Segment {
    /// Reads the header of a segment.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if it is cut.
    pub fn parse(abi: Abi, bytes: &[u8]) -> Result<Self, Errno> {
        let parsed = match abi.word() {
            8 if bytes.len() >= 56 => Self::read(bytes, 4, [8, 16, 32, 40], |at| number(bytes, at, 8)),
            4 if bytes.len() >= 32 => Self::read(bytes, 24, [4, 8, 16, 20], |at| number(bytes, at, 4)),
            _ => None,
        };
        parsed.ok_or(Errno::ENOEXEC)
    }

    /// Reads a header with its flags at `flags`, and the fields that are words at `words`.
    fn read(
        bytes: &[u8],
        flags: usize,
        words: [usize; 4],
        word: impl Fn(usize) -> Option<u64>,
    ) -> Option<Self> {
        Some(Segment {
            kind: number(bytes, 0, 4)? as u32,
            flags: number(bytes, flags, 4)? as u32,
            offset: word(words[0])?,
            at: word(words[1])?,
            in_file: word(words[2])?,
            in_memory: word(words[3])?,
        })
    }

    /// Returns where the byte at `offset` of the file is in a program that is moved by `shift`, if
    /// the segment has it. The segment has [`pages`](Self::pages).
    pub fn address_of(&self, offset: u64, shift: u64) -> Option<u64> {
        let inside = offset.checked_sub(self.offset).filter(|inside| *inside < self.in_file)?;
        self.at.checked_add(shift)?.checked_add(inside)
    }

    /// Returns the pages of a segment that is moved by `shift`, in a program that may use addresses
    /// below `limit`. The file may have fewer bytes than the segment names, as under Linux.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if it has no bytes, has more in the file than in memory, or wants bytes
    /// at no offset of the ABI, or addresses that it may not use: in page 0, and at or above the
    /// limit.
    pub fn pages(&self, abi: Abi, shift: u64, limit: u64) -> Result<SegmentPages, Errno> {
        self.try_pages(abi, shift, limit).ok_or(Errno::ENOEXEC)
    }

    fn try_pages(&self, abi: Abi, shift: u64, limit: u64) -> Option<SegmentPages> {
        let Segment { offset, at, in_file, in_memory, .. } = *self;
        let limit = limit & !(PAGE - 1);
        let start = at.checked_add(shift)?;
        let end = start.checked_add(in_memory)?;
        if in_memory == 0 || in_file > in_memory || start < PAGE || end > limit {
            return None;
        }
        let first = start & !(PAGE - 1);
        // At or below the limit, which is a page's border.
        let last = end.next_multiple_of(PAGE);
        let nothing = VirtRange::fixed::<0, 0>();
        if in_file == 0 {
            let zero = VirtRange::new(first, last).ok()?;
            return Some(SegmentPages { file: nothing, offset: 0, zero, tail: nothing });
        }
        let last_offset = if abi.word() == 8 { i64::MAX as u64 } else { u32::MAX.into() };
        if start % PAGE != offset % PAGE || offset.checked_add(in_file)? > last_offset & !(PAGE - 1) {
            return None;
        }
        let data_end = start + in_file;
        let file = VirtRange::new(first, data_end.next_multiple_of(PAGE)).ok()?;
        // Linux clears the whole page, whatever the memory needs of it: loaders begin their heaps
        // in the rest.
        let tail_end = if end > data_end { file.end } else { data_end };
        Some(SegmentPages {
            file,
            offset: offset & !(PAGE - 1),
            zero: VirtRange::new(file.end, last).ok()?,
            tail: VirtRange::new(data_end, tail_end).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const LIMIT: u64 = 0xbeff_f000;
    const SIZE: usize = 0x2000;
    const ABIS: [Abi; 4] = [Abi::X86_64, Abi::I386, Abi::Aarch64, Abi::Riscv64];

    /// The result of loading a file: the entry and all pages, or an error.
    fn load(abi: Abi, file: &[u8]) -> Result<(u64, Vec<SegmentPages>), Errno> {
        let elf = Elf::parse(abi, &file[..file.len().min(HEADER)])?;
        let shift = if elf.movable { 0x5655_5000 } else { 0 };
        let mut all = Vec::new();
        for i in 0..elf.segments {
            let at = usize::try_from(elf.segment_at(i)?).unwrap_or(usize::MAX).min(file.len());
            let bytes = &file[at..];
            let segment = Segment::parse(abi, &bytes[..bytes.len().min(elf.segment_size)])?;
            if segment.kind == LOAD && segment.in_memory > 0 {
                let pages = segment.pages(abi, shift, LIMIT)?;
                check(&segment, &pages);
                let headers = segment.address_of(elf.segments_at, shift);
                assert!(headers.is_none_or(|at| (pages.file.start..pages.file.end).contains(&at)));
                all.push(pages);
            }
        }
        Ok((elf.entry(shift, LIMIT)?, all))
    }

    fn check(segment: &Segment, pages: &SegmentPages) {
        let SegmentPages { file, offset, zero, tail } = *pages;
        for range in [file, zero] {
            assert!(range.start <= range.end && range.end <= LIMIT, "{segment:x?} {pages:x?}");
            assert_eq!((range.start % PAGE, range.end % PAGE), (0, 0), "{segment:x?} {pages:x?}");
        }
        assert!(file.start >= PAGE && zero.start == file.end || file.start == file.end);
        assert!(file.end - file.start + zero.end - zero.start > 0);
        assert!(offset % PAGE == 0 && offset.checked_add(file.end - file.start).is_some());
        assert!(tail.start <= tail.end && tail.end <= file.end && tail.end - tail.start < PAGE);
    }

    /// A program of five segments: one that is whole pages, one with pages of memory behind its
    /// bytes, one of memory alone, one with memory that ends in its last page, and one that ends
    /// with its bytes.
    fn program(abi: Abi) -> Vec<u8> {
        let wide = abi.word() == 8;
        let mut file = vec![0; SIZE];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, 1, 1]);
        let word = |file: &mut Vec<u8>, at: usize, value: u64, len: usize| {
            file[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        let size = if wide { 8 } else { 4 };
        word(&mut file, 16, 2, 2);
        word(&mut file, 18, abi.machine(), 2);
        word(&mut file, 24, 0x40_0100, size);
        word(&mut file, if wide { 32 } else { 28 }, 64, size);
        let sizes = if wide { 54 } else { 42 };
        word(&mut file, sizes, if wide { 56 } else { 32 }, 2);
        word(&mut file, sizes + 2, 5, 2);
        let segments = [
            (0, 0x40_0000, 0x1000, 0x1000),
            (0x1000, 0x40_1000, 0x800, 0x1900),
            (0, 0x50_0000, 0, 0x10),
            (0x1000, 0x60_0000, 0x800, 0x828),
            (0x1000, 0x70_0000, 0x800, 0x800),
        ];
        for (i, (offset, at, in_file, in_memory)) in segments.into_iter().enumerate() {
            let start = 64 + i * if wide { 56 } else { 32 };
            word(&mut file, start, 1, 4);
            if wide {
                word(&mut file, start + 4, 6, 4);
                for (n, value) in [offset, at, at, in_file, in_memory].into_iter().enumerate() {
                    word(&mut file, start + 8 + 8 * n, value, 8);
                }
            } else {
                for (n, value) in [offset, at, at, in_file, in_memory, 6].into_iter().enumerate() {
                    word(&mut file, start + 4 + 4 * n, value, 4);
                }
            }
        }
        file
    }

    #[test]
    fn pages_are_those_of_the_file_and_then_zeroes() {
        let range = |start, end| VirtRange::new(start, end).expect("in order");
        for abi in ABIS {
            let (entry, pages) = load(abi, &program(abi)).expect("a program");
            assert_eq!(entry, 0x40_0100);
            assert_eq!(pages[0].file, range(0x40_0000, 0x40_1000));
            assert_eq!((pages[1].file, pages[1].offset), (range(0x40_1000, 0x40_2000), 0x1000));
            assert_eq!(
                (pages[1].zero, pages[1].tail),
                (range(0x40_2000, 0x40_3000), range(0x40_1800, 0x40_2000))
            );
            assert_eq!(
                (pages[2].file.end - pages[2].file.start, pages[2].zero),
                (0, range(0x50_0000, 0x50_1000))
            );
            // Memory of 40 bytes: the rest of the page is cleared with it. No byte is cleared
            // behind a segment without memory of its own.
            assert_eq!(pages[3].tail, range(0x60_0800, 0x60_1000));
            assert_eq!((pages[3].zero.start, pages[3].zero.end), (0x60_1000, 0x60_1000));
            assert_eq!(pages[4].tail, range(0x70_0800, 0x70_0800));
        }
    }

    #[test]
    fn a_program_is_refused_if_its_headers_are_cut() {
        for abi in ABIS {
            let file = program(abi);
            let end = 64 + 5 * if abi.word() == 8 { 56 } else { 32 };
            for len in 0..end {
                assert_eq!(load(abi, &file[..len]), Err(Errno::ENOEXEC), "{len}");
            }
            // The bytes of segments may be missing.
            assert_eq!(load(abi, &file[..end]), load(abi, &file));
        }
    }

    #[test]
    fn a_program_for_another_machine_is_refused() {
        for abi in ABIS {
            for other in ABIS.into_iter().filter(|other| *other != abi) {
                assert_eq!(load(abi, &program(other)), Err(Errno::ENOEXEC), "{other:?} on {abi:?}");
            }
            // The magic number; type; machine.
            for at in (0..4).chain([16, 17, 18, 19]) {
                let mut file = program(abi);
                file[at] ^= 0x55;
                assert_eq!(load(abi, &file), Err(Errno::ENOEXEC), "byte {at}");
            }
            // Class, byte order, version, as Linux has it.
            for at in 4..7 {
                let mut file = program(abi);
                file[at] ^= 0x55;
                assert!(load(abi, &file).is_ok(), "byte {at}");
            }
        }
    }

    #[test]
    fn addresses_that_programs_may_not_have_are_refused() {
        let good =
            Segment { kind: LOAD, flags: 6, offset: 0x1234, at: 0x40_0234, in_file: 0x100, in_memory: 0x200 };
        let pages = |segment: Segment| segment.pages(Abi::X86_64, 0, LIMIT);
        assert!(pages(good).is_ok());
        // Behind the end of the file, up to the last offset.
        assert!(pages(Segment { offset: (1 << 62) | 0x234, ..good }).is_ok());
        let last = Segment { at: LIMIT - 0x1000, offset: 0, in_memory: 0x1000, ..good };
        assert!(pages(last).is_ok());
        for bad in [
            Segment { at: 0x234, ..good },
            Segment { at: LIMIT + 0x234, ..good },
            Segment { in_memory: 0x1001, ..last },
            Segment { at: 0xffff_f234, ..good },
            Segment { at: !0xfff | 0x234, ..good },
            Segment { in_memory: u64::MAX, ..good },
            Segment { in_memory: u64::MAX - 0x40_0234, ..good },
            Segment { in_memory: 0xff, ..good },
            Segment { in_memory: 0, in_file: 0, ..good },
            Segment { offset: 0x1235, ..good },
            Segment { offset: (i64::MAX as u64 & !0xfff) | 0x234, ..good },
            Segment { offset: !0xfff | 0x234, ..good },
            Segment { in_file: u64::MAX, in_memory: u64::MAX, ..good },
        ] {
            assert_eq!(pages(bad), Err(Errno::ENOEXEC), "{bad:x?}");
        }
        assert_eq!(good.pages(Abi::X86_64, u64::MAX, LIMIT), Err(Errno::ENOEXEC));
        let far = Segment { offset: 0xffff_f234, ..good };
        assert!(far.pages(Abi::X86_64, 0, LIMIT).is_ok());
        assert_eq!(far.pages(Abi::I386, 0, LIMIT), Err(Errno::ENOEXEC));
    }

    #[test]
    fn no_file_makes_it_panic() {
        let mut state = 0x5eed_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> 8
        };
        let extremes =
            [0, 1, 0xfff, 0x1000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 47, 1 << 63, u64::MAX];
        for abi in ABIS {
            let good = program(abi);
            let mut file = good.clone();
            let mut loaded = 0;
            for _ in 0..50_000 {
                // One to four fields of the headers.
                let changes: Vec<usize> = (0..1 + random() % 4).map(|_| random() as usize % 224).collect();
                for at in &changes {
                    let extreme = extremes[random() as usize % extremes.len()];
                    let value = if random() % 2 == 0 { extreme } else { random() };
                    let len = [1, 2, 4, 8][random() as usize % 4];
                    file[*at..*at + len].copy_from_slice(&value.to_le_bytes()[..len]);
                }
                loaded += usize::from(load(abi, &file).is_ok());
                for at in changes {
                    file[at..at + 8].copy_from_slice(&good[at..at + 8]);
                }
            }
            // Some of the changes do not matter.
            assert!(loaded > 1_000, "{loaded}");
        }
    }
}
