//! Programs that load others (`PT_INTERP`): the loader of dynamic programs.
//!
//! A program names its interpreter by a path. Both are mapped, and the interpreter begins; it finds
//! the program by the auxiliary vector. An interpreter that names one itself gets none, as under
//! Linux.
//!
//! Errors are those of Linux's `load_elf_binary`. Linux notices some of them when the old program
//! has gone, and ends the process; here every one is an error of `execve`.

use ptarmigan::addr::{FRAME_SIZE, VirtRange};
use ptarmigan::format::Format;

use super::elf::{Elf, HEADER, LOAD, Segment};
use super::segments::limit;
use super::stack;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::fs::{Kind, path};
use crate::memory::TaskSpace;
use crate::syscall::Sys;
use crate::syscall::reach::gap;

const PAGE: u64 = FRAME_SIZE as u64;

/// An interpreter that a program names.
#[derive(Clone, Copy)]
pub struct Interpreter {
    /// Its file's pages.
    pub object: u32,
    elf: Elf,
}

/// Where an interpreter is in memory.
pub struct Placed {
    /// The difference to the addresses in its file (`AT_BASE`).
    pub shift: u64,
    /// Where it begins.
    pub entry: u64,
}

/// Returns the path in the bytes of a segment that names an interpreter: it ends with a zero.
fn name(bytes: &[u8]) -> Option<&[u8]> {
    let (0, bytes) = bytes.split_last()? else { return None };
    bytes.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())
}

/// Returns the pages that hold both a range and a segment; `None` if the segment wraps.
fn with(range: Option<VirtRange>, segment: &Segment) -> Option<VirtRange> {
    let start = segment.at & !(PAGE - 1);
    let end = segment.at.checked_add(segment.in_memory)?.checked_next_multiple_of(PAGE)?;
    let both = range.map_or((start, end), |range| (range.start.min(start), range.end.max(end)));
    VirtRange::new(both.0, both.1).ok()
}

impl<A: Arch> Sys<'_, A> {
    /// Finds the interpreter that a segment of the program `object` names.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if the segment holds no path, [`Errno::EIO`] if it or the interpreter's
    /// header is cut, [`Errno::EACCES`] if the interpreter is no file that may be executed,
    /// [`Errno::ELIBBAD`] if it is no program of this ABI; the errors of the path.
    pub(super) fn find_interpreter(&mut self, object: u32, segment: &Segment) -> Result<Interpreter, Errno> {
        let mut bytes = [0; path::PATH];
        let len = usize::try_from(segment.in_file).map_err(|_| Errno::ENOEXEC)?;
        let bytes = bytes.get_mut(..len).ok_or(Errno::ENOEXEC)?;
        Errno::EIO.when(self.kernel.read_object(object, segment.offset, bytes) < len)?;
        let name = name(bytes).ok_or(Errno::ENOEXEC)?;
        let directory = self.process().directory;
        let inode = path::resolve(&self.state.tree, directory, name, true)?.existing(&self.state.tree)?;
        let file = self.state.tree.get(inode);
        let Kind::File(object) = file.kind else { return Err(Errno::EACCES) };
        Errno::EACCES.when(file.mode & 0o111 == 0)?;
        let mut header = [0; HEADER];
        let n = self.kernel.read_object(object, 0, &mut header);
        Errno::EIO.when(n < Elf::least(A::ABI))?;
        let elf = Elf::parse(A::ABI, &header[..n]).map_err(|_| Errno::ELIBBAD)?;
        Ok(Interpreter { object, elf })
    }

    /// Maps an interpreter: below the stack where there is room, or at its own addresses if it
    /// cannot be moved.
    ///
    /// # Errors
    ///
    /// [`Errno::ELIBBAD`] if its headers are cut, or it wants addresses that there are not;
    /// [`Errno::ENOMEM`].
    pub(super) fn place_interpreter(
        &mut self,
        space: &mut TaskSpace<A>,
        interpreter: Interpreter,
    ) -> Result<Placed, Errno> {
        let bad = |e| if e == Errno::ENOEXEC { Errno::ELIBBAD } else { e };
        let Interpreter { object, elf } = interpreter;
        let mut shift = 0;
        if elf.movable {
            let mut all = None;
            for i in 0..elf.segments {
                let segment = self.segment(object, &elf, i).map_err(bad)?;
                if segment.kind == LOAD && segment.in_memory > 0 {
                    all = Some(with(all, &segment).ok_or(Errno::ELIBBAD)?);
                }
            }
            let all = all.ok_or(Errno::ELIBBAD)?;
            let gap = space.edit(self.on(), |edit| gap::<A>(&edit, all.len()))??;
            // A file whose addresses begin above all gaps cannot be moved there.
            shift = gap.start.checked_sub(all.start).ok_or(Errno::ELIBBAD)?;
        }
        let stack_at = stack::begins_at::<A>(&self.state.tasks.arguments);
        let mut is_mapped = false;
        for i in 0..elf.segments {
            let segment = self.segment(object, &elf, i).map_err(bad)?;
            if segment.kind == LOAD && segment.in_memory > 0 {
                self.map_segment(space, object, &segment, shift, limit(stack_at, !is_mapped)).map_err(bad)?;
                is_mapped = true;
            }
        }
        Errno::ELIBBAD.when(!is_mapped)?;
        Ok(Placed { shift, entry: elf.entry(shift, A::Format::USER_END).map_err(bad)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_with_a_zero() {
        assert_eq!(name(b"/lib64/ld.so\0"), Some(&b"/lib64/ld.so"[..]));
        assert_eq!(name(b"/a\0b\0"), Some(&b"/a"[..]));
        for none in [&b""[..], b"\0", b"/a", b"\0/a\0"] {
            assert_eq!(name(none), None);
        }
    }

    #[test]
    fn the_pages_of_all_segments_are_one_range_and_do_not_wrap() {
        let segment = |at, in_memory| Segment { kind: LOAD, flags: 4, offset: 0, at, in_file: 0, in_memory };
        let first = with(None, &segment(0x1010, 0x10));
        assert_eq!(first, Some(VirtRange::fixed::<0x1000, 0x2000>()));
        let both = with(first, &segment(0x5ff0, 0x20));
        assert_eq!(both, Some(VirtRange::fixed::<0x1000, 0x7000>()));
        assert_eq!(with(both, &segment(0, 1)), Some(VirtRange::fixed::<0, 0x7000>()));
        assert_eq!(with(both, &segment(u64::MAX, 2)), None);
        assert_eq!(with(None, &segment(u64::MAX - 1, 1)), None);
    }
}
