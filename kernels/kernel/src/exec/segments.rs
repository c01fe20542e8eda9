//! Reads and maps the segments of a file.

use ptarmigan::format::Format;
use ptarmigan::space::{AreaError, AreaFlags, Object};

use super::elf::{Elf, HEADER, Pages, Segment};
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::TaskSpace;
use crate::syscall::Sys;
use crate::syscall::reach::BELOW_STACK;

/// Returns the end of the addresses of segments: below the stack with its largest size.
const fn limit<A: Arch>() -> u64 {
    let (below, end) = (A::STACK_END - BELOW_STACK, A::Format::USER_END);
    if below < end { below } else { end }
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

    /// Maps a segment; returns the end of its last page.
    pub(super) fn map_segment(
        &mut self,
        space: &mut TaskSpace<A>,
        object: u32,
        segment: &Segment,
        shift: u64,
    ) -> Result<u64, Errno> {
        let objects = self.kernel.objects();
        let Pages { file, offset, zero, tail } = segment.pages(shift, limit::<A>(), objects.size(object))?;
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
            space.clear(on, tail.start, (tail.end - tail.start) as usize)?;
        }
        Ok(zero.end)
    }
}
