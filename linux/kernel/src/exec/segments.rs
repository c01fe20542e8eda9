//! Reads and maps the segments of a file.

use ptarmigan::space::{AreaError, AreaFlags, Object};

use super::elf::{Elf, HEADER, Segment, SegmentPages};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::TaskSpace;
use crate::syscall::Sys;

/// Bytes below the pages of a new stack into which the first segment may not reach: Linux's stack
/// has them before the program is mapped.
const NEW_STACK: u64 = 128 << 10;

/// Returns the end of the addresses of segments if a new stack begins at `stack`. As under Linux,
/// segments behind the first one may leave the stack no room to grow.
pub(super) fn limit(stack: u64, is_first: bool) -> u64 {
    if is_first { stack - NEW_STACK } else { stack }
}

impl<A: Arch> Sys<'_, A> {
    /// Reads the header of segment `i` of a file.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOEXEC`] if it is cut.
    #[inline]
    pub(super) fn segment(&self, object: u32, elf: &Elf, i: usize) -> Result<Segment, Errno> {
        let mut bytes = [0; HEADER];
        let n = self.kernel.read_object(object, elf.segment_at(i)?, &mut bytes[..elf.segment_size]);
        Segment::parse(A::ABI, &bytes[..n])
    }

    /// Maps a segment below `limit`; returns the end of its last page. Pages behind the end of the
    /// file cannot be accessed.
    pub(super) fn map_segment(
        &mut self,
        space: &mut TaskSpace<A>,
        object: u32,
        segment: &Segment,
        shift: u64,
        limit: u64,
    ) -> Result<u64, Errno> {
        let SegmentPages { file, offset, zero, tail } = segment.pages(A::ABI, shift, limit)?;
        let mut permissions = AreaFlags::default();
        for (bit, flag) in [(4, AreaFlags::READ), (2, AreaFlags::WRITE), (1, AreaFlags::EXEC)] {
            if segment.flags & bit != 0 {
                permissions = permissions.with(flag);
            }
        }
        let on = self.on();
        let mapped = space.edit(on, |mut edit| {
            if file.start < file.end {
                let backing = Object { id: object, offset };
                edit.mmap(file, permissions.with(AreaFlags::BACKED), backing)?;
            }
            if zero.start < zero.end {
                edit.mmap(zero, permissions, 0)?;
            }
            Ok::<_, AreaError>(())
        });
        mapped?.map_err(|_| Errno::ENOMEM)?;
        // The bytes of the file's last page after the data belong to the program, and are zero.
        if tail.start < tail.end && permissions.has(AreaFlags::WRITE) {
            match space.clear(on, tail.start, (tail.end - tail.start) as usize) {
                // The page lies behind the end of the file. Linux 6.1 does not notice that.
                Err(Errno::EFAULT) => {}
                cleared => cleared?,
            }
        }
        Ok(zero.end)
    }
}
