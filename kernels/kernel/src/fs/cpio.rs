//! The initial file system: a cpio archive (newc), which becomes files in memory.

use super::path;
use super::tree::{Kind, ROOT};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::{Kernel, State, say};

/// Bytes of a header: a magic number and thirteen numbers of eight digits.
const HEADER: usize = 110;
const MAGIC: &[u8] = b"070701";
const END: &[u8] = b"TRAILER!!!";

/// What is wrong with an archive, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpioError {
    /// It ends in the middle of something.
    Cut(usize),
    /// A header does not begin with its magic number, or a number is none.
    Header(usize),
    /// A name does not end with a zero.
    Name(usize),
}

/// An entry of an archive.
struct Entry<'a> {
    mode: u32,
    name: &'a [u8],
    data: &'a [u8],
    next: usize,
}

fn entry(archive: &[u8], at: usize) -> Result<Entry<'_>, CpioError> {
    let cut = CpioError::Cut(at);
    let header = archive.get(at..at.checked_add(HEADER).ok_or(cut)?).ok_or(cut)?;
    let bad = CpioError::Header(at);
    if !header.starts_with(MAGIC) {
        return Err(bad);
    }
    let field = |n: usize| -> Result<usize, CpioError> {
        let digits = header.get(6 + 8 * n..14 + 8 * n).ok_or(bad)?;
        let digits = core::str::from_utf8(digits).map_err(|_| bad)?;
        u32::from_str_radix(digits, 16).map(|n| n as usize).map_err(|_| bad)
    };
    let (mode, data_len, name_len) = (field(1)?, field(6)?, field(11)?);
    let name_at = at + HEADER;
    let name_end = name_at.checked_add(name_len).ok_or(cut)?;
    let name = archive.get(name_at..name_end).ok_or(cut)?;
    let name = name.split(|byte| *byte == 0).next().filter(|n| n.len() < name.len());
    let name = name.ok_or(CpioError::Name(at))?;
    let data_at = name_end.checked_next_multiple_of(4).ok_or(cut)?;
    let data_end = data_at.checked_add(data_len).ok_or(cut)?;
    let data = archive.get(data_at..data_end).ok_or(cut)?;
    Ok(Entry { mode: mode as u32, name, data, next: data_end.checked_next_multiple_of(4).ok_or(cut)? })
}

impl<A: Arch> Kernel<A> {
    /// Makes files of an archive; how many. What cannot be made is named on the console and left
    /// out.
    ///
    /// # Errors
    ///
    /// [`CpioError`]; entries before are there.
    pub(crate) fn unpack(&'static self, state: &mut State, archive: &[u8]) -> Result<usize, CpioError> {
        let (mut at, mut made) = (0, 0);
        loop {
            let Entry { mode, name, data, next } = entry(archive, at)?;
            if name == END {
                return Ok(made);
            }
            match self.make(state, mode, name, data) {
                Ok(()) => made += 1,
                Err(e) => {
                    let name = core::str::from_utf8(name).unwrap_or("?");
                    say!(A, "kernel: initial file system: {name}: error {}", e.0);
                }
            }
            at = next;
        }
    }

    fn make(&'static self, state: &mut State, mode: u32, name: &[u8], data: &[u8]) -> Result<(), Errno> {
        if name == b"." {
            return Ok(());
        }
        let found = path::resolve(&state.tree, ROOT, name, false)?;
        let permissions = (mode & 0o7777) as u16;
        match mode & 0o170_000 {
            0o040_000 if state.tree.is_directory(found.file) => {}
            0o040_000 => {
                state.tree.create(found.directory, found.name(), Kind::Directory, permissions)?;
            }
            0o100_000 => {
                let machine = self.machine.get();
                let object = machine.objects.create(0)?;
                let kind = Kind::File(object);
                let made = state.tree.create(found.directory, found.name(), kind, permissions);
                if let Err(e) = made {
                    machine.objects.release(self.frames.get(), machine.low(), object);
                    return Err(e);
                }
                self.write_object(object, 0, data)?;
            }
            0o120_000 => {
                state.tree.create_link(found.directory, found.name(), data)?;
            }
            // Devices are made by the kernel itself.
            _ => {}
        }
        Ok(())
    }
}
