//! `/proc/PID/pagemap`: a number of eight bytes for each page of a process.

use ptarmigan::addr::{FRAME_SHIFT, VirtAddr};
use ptarmigan::format::Format;

use super::proc::Text;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::syscall::Sys;

/// Bytes of an entry.
const ENTRY: u64 = 8;
/// The page is there; the lowest 55 bits are the number of its frame.
const PRESENT: u64 = 1 << 63;
/// It is a page of a file, or of shared memory.
const OF_OBJECT: u64 = 1 << 61;

impl<A: Arch> Sys<'_, A> {
    /// Adds the entries from byte `from` on. Soft-dirty bits and the bit of pages that one process
    /// alone maps are not told.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if `from` is inside an entry, [`Errno::EACCES`] of a process that runs on
    /// another CPU.
    pub(super) fn put_page_map(&mut self, text: &mut Text, process: usize, from: u64) -> Result<(), Errno> {
        Errno::EINVAL.when(!from.is_multiple_of(ENTRY))?;
        *text = Text::from(0);
        let end = A::Format::USER_END >> FRAME_SHIFT;
        if from / ENTRY >= end || self.state.tasks.process(process).threads == 0 {
            return Ok(());
        }
        let mut at = (from / ENTRY) << FRAME_SHIFT;
        self.with_space(process, |on, sys, space| {
            let objects = sys.kernel.objects();
            while !text.is_full() && at >> FRAME_SHIFT < end {
                // The areas tell where there are no pages.
                let area = space.areas().at_or_after(on, at).filter(|area| area.start <= at);
                let entry = area.and_then(|area| {
                    let (frame, _) = space.query(VirtAddr(at))?;
                    let shows =
                        || objects.page(area.object, area.offset_at(at) >> FRAME_SHIFT) == Some(frame);
                    let of_object = if area.object != 0 && shows() { OF_OBJECT } else { 0 };
                    Some(PRESENT | of_object | u64::from(frame.0))
                });
                text.put(&entry.unwrap_or(0).to_le_bytes());
                at += 1 << FRAME_SHIFT;
            }
        })
        .ok_or(Errno::EACCES)
    }
}
