//! The initial file system: a cpio archive (newc), which becomes files in memory.

use core::fmt;

use ptarmigan_kernel_base::say;

use super::path;
use super::tree::{Kind, ROOT};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::{Kernel, State};

/// Bytes of a header: a magic number and thirteen numbers of eight digits.
const HEADER: usize = 110;
const MAGIC: &[u8] = b"070701";
const END: &[u8] = b"TRAILER!!!";
/// Entries that are named on the console if they are left out; more are only counted.
const NAMED: usize = 8;

/// An error in an archive, and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpioError {
    /// It ends in the middle of something.
    Cut(usize),
    /// A header does not begin with its magic number, or a number is malformed.
    Header(usize),
    /// A name does not end with a zero.
    Name(usize),
    /// There is no memory for the entry.
    NoRoom(usize),
}

impl fmt::Display for CpioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpioError::Cut(at) => {
                write!(f, "it is cut, or lies about sizes: it ends within the entry at byte {at}")
            }
            CpioError::Header(at) => write!(f, "no header of a cpio archive (newc) at byte {at}"),
            CpioError::NoRoom(at) => {
                write!(f, "it does not fit into memory, from byte {at} on; give the machine more memory")
            }
            CpioError::Name(at) => write!(f, "the name of the entry at byte {at} does not end with a zero"),
        }
    }
}

impl CpioError {
    /// Returns the name of the entry for which there was no room.
    pub(crate) fn name(self, archive: &[u8]) -> Option<&str> {
        let CpioError::NoRoom(at) = self else { return None };
        core::str::from_utf8(entry(archive, at).ok()?.name).ok()
    }
}

/// Counts of an archive's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Those that are there.
    pub made: usize,
    /// Those that could not be made.
    pub left_out: usize,
}

/// An entry of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpioEntry<'a> {
    mode: u32,
    /// When it was changed, in seconds since 1970.
    changed: u64,
    name: &'a [u8],
    data: &'a [u8],
    next: usize,
}

fn entry(archive: &[u8], at: usize) -> Result<CpioEntry<'_>, CpioError> {
    let cut = CpioError::Cut(at);
    let header = archive.get(at..at.checked_add(HEADER).ok_or(cut)?).ok_or(cut)?;
    let bad = CpioError::Header(at);
    if !header.starts_with(MAGIC) {
        return Err(bad);
    }
    let field = |n: usize| -> Result<usize, CpioError> {
        let digits = header.get(6 + 8 * n..14 + 8 * n).ok_or(bad)?;
        digits.iter().try_fold(0, |all, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(bad)?;
            Ok(all << 4 | digit as usize)
        })
    };
    let (mode, changed, data_len, name_len) = (field(1)?, field(5)? as u64, field(6)?, field(11)?);
    let name_at = at + HEADER;
    let name_end = name_at.checked_add(name_len).ok_or(cut)?;
    let name = archive.get(name_at..name_end).ok_or(cut)?;
    let name = name.split(|byte| *byte == 0).next().filter(|n| n.len() < name.len());
    let name = name.ok_or(CpioError::Name(at))?;
    let data_at = name_end.checked_next_multiple_of(4).ok_or(cut)?;
    let data_end = data_at.checked_add(data_len).ok_or(cut)?;
    let data = archive.get(data_at..data_end).ok_or(cut)?;
    Ok(CpioEntry {
        mode: mode as u32,
        changed,
        name,
        data,
        next: data_end.checked_next_multiple_of(4).ok_or(cut)?,
    })
}

impl<A: Arch> Kernel<A> {
    /// Makes files of an archive. Entries that cannot be made, other than for want of room, are
    /// named on the console and left out.
    ///
    /// # Errors
    ///
    /// [`CpioError`]; entries before are there.
    pub(crate) fn unpack(&'static self, state: &mut State, archive: &[u8]) -> Result<Unpacked, CpioError> {
        let (mut at, mut unpacked) = (0, Unpacked::default());
        loop {
            let CpioEntry { mode, changed, name, data, next } = entry(archive, at)?;
            if name == END {
                break;
            }
            match self.make(state, (mode, changed), name, data) {
                Ok(()) => unpacked.made += 1,
                Err(Errno::ENOMEM) => return Err(CpioError::NoRoom(at)),
                Err(e) => {
                    unpacked.left_out += 1;
                    if unpacked.left_out <= NAMED {
                        let name = core::str::from_utf8(name).unwrap_or("?");
                        say!("kernel: initial file system: {name:.64} is left out ({e})");
                    }
                }
            }
            at = next;
        }
        if unpacked.left_out > NAMED {
            let more = unpacked.left_out - NAMED;
            say!("kernel: initial file system: {more} more are left out");
        }
        Ok(unpacked)
    }

    fn make(
        &'static self,
        state: &mut State,
        (mode, changed): (u32, u64),
        name: &[u8],
        data: &[u8],
    ) -> Result<(), Errno> {
        if name == b"." {
            return Ok(());
        }
        let found = path::resolve(&state.tree, ROOT, name, false)?;
        let permissions = (mode & 0o7777) as u16;
        let made = match mode & 0o170_000 {
            0o040_000 if state.tree.is_directory(found.file) => found.file,
            0o040_000 => state.tree.create(found.directory, found.name(), Kind::Directory, permissions)?,
            0o100_000 => {
                let object = self.objects().create(0)?;
                let kind = Kind::File(object);
                // Written first: a file that memory is short of is not there at all.
                self.write_object(object, 0, data)
                    .and_then(|()| state.tree.create(found.directory, found.name(), kind, permissions))
                    .inspect_err(|_| self.objects().release(object))?
            }
            0o120_000 => state.tree.create_link(found.directory, found.name(), data)?,
            // Devices are made by the kernel itself.
            _ => return Ok(()),
        };
        state.tree.get_mut(made).changed = changed * 1_000_000_000;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn put(archive: &mut Vec<u8>, mode: u32, name: &str, data: &[u8]) {
        let mut fields = [0; 13];
        (fields[1], fields[6], fields[11]) = (mode as usize, data.len(), name.len() + 1);
        archive.extend(MAGIC);
        fields.iter().for_each(|field| archive.extend(format!("{field:08X}").bytes()));
        archive.extend(name.bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(data);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }

    fn archive() -> Vec<u8> {
        let mut archive = Vec::new();
        put(&mut archive, 0o040_755, "bin", &[]);
        put(&mut archive, 0o100_755, "bin/a", &[7; 41]);
        put(&mut archive, 0o120_777, "bin/b", b"a");
        put(&mut archive, 0, "TRAILER!!!", &[]);
        archive
    }

    /// Follows an archive as `unpack` does.
    fn entries(archive: &[u8]) -> Result<Vec<CpioEntry<'_>>, CpioError> {
        let (mut at, mut all) = (0, vec![]);
        loop {
            let entry = entry(archive, at)?;
            if entry.name == END {
                return Ok(all);
            }
            assert!(entry.next >= at + HEADER && entry.data.len() <= archive.len());
            at = entry.next;
            all.push(entry);
        }
    }

    #[test]
    fn entries_have_names_modes_and_data() {
        let archive = archive();
        let all = entries(&archive).expect("an archive");
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].name, all[0].mode, all[0].data), (&b"bin"[..], 0o040_755, &[][..]));
        assert_eq!((all[1].name, all[1].mode, all[1].data), (&b"bin/a"[..], 0o100_755, &[7; 41][..]));
        assert_eq!((all[2].name, all[2].data), (&b"bin/b"[..], &b"a"[..]));
    }

    #[test]
    fn an_archive_that_is_cut_says_where() {
        let archive = archive();
        let mut starts = vec![0];
        starts.extend(entries(&archive).expect("an archive").iter().map(|entry| entry.next));
        // The last entry's name ends before the bytes that round it up.
        let end = archive.len() - 1;
        for len in 0..end {
            let start = *starts.iter().rfind(|start| **start <= len).expect("0 is first");
            let padding = starts.iter().find(|start| len < **start && **start < len + 4);
            match entries(&archive[..len]) {
                Err(CpioError::Cut(at)) => assert!(at == start || Some(&at) == padding, "{len}: {at}"),
                other => panic!("{len}: {other:?}"),
            }
        }
    }

    #[test]
    fn numbers_have_eight_digits_and_nothing_else() {
        for bad in [b"+0000004", b" 0000004", b"0000004 ", b"0x000004", b"0000004\0", b"-0000001"] {
            for field in [1, 6, 11] {
                let mut archive = archive();
                archive[6 + 8 * field..14 + 8 * field].copy_from_slice(bad);
                assert_eq!(entries(&archive), Err(CpioError::Header(0)));
            }
        }
    }

    #[test]
    fn sizes_that_lie_are_found() {
        for (field, what) in [(6, CpioError::Cut(0)), (11, CpioError::Cut(0))] {
            for size in [b"FFFFFFFF", b"FFFFFFFC", b"80000000", b"7fffffff", b"00001000"] {
                let mut archive = archive();
                archive[6 + 8 * field..14 + 8 * field].copy_from_slice(size);
                assert_eq!(entries(&archive), Err(what));
            }
        }
        let mut archive = archive();
        archive[6 + 88..14 + 88].copy_from_slice(b"00000000");
        assert_eq!(entries(&archive), Err(CpioError::Name(0)));
        archive[6 + 88..14 + 88].copy_from_slice(b"00000003");
        assert_eq!(entries(&archive), Err(CpioError::Name(0)));
    }

    #[test]
    fn no_archive_makes_it_panic() {
        let mut state = 0x5eed_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 8) as usize
        };
        let good = archive();
        let mut archive = good.clone();
        for _ in 0..100_000 {
            let changes: Vec<usize> = (0..1 + random() % 4).map(|_| random() % (good.len() - 8)).collect();
            for at in &changes {
                match random() % 4 {
                    0 => archive[*at] = random() as u8,
                    1 => archive[*at] = b"0123456789abcdefF+"[random() % 18],
                    2 => archive[*at..*at + 8].fill(b'f'),
                    _ => archive[*at..*at + 8].copy_from_slice(&random().to_le_bytes()),
                }
            }
            let _ = entries(&archive[..archive.len() - random() % 4]);
            for at in changes {
                archive[at..at + 8].copy_from_slice(&good[at..at + 8]);
            }
        }
    }
}
