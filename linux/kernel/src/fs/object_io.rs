//! Bytes of objects, as the kernel reads and writes them for itself.

use ptarmigan::addr::FRAME_SIZE;
use ptarmigan::machine::Machine as _;
use ptarmigan::window::{OpenWindow, WindowGuard};

use crate::Kernel;
use crate::arch::Arch;
use crate::errno::Errno;
use crate::memory::machine::stored;

const PAGE: u64 = FRAME_SIZE as u64;

impl<A: Arch> Kernel<A> {
    /// Reads bytes of an object from `offset` on; how many there are before its end.
    pub(crate) fn read_object(&'static self, object: u32, offset: u64, bytes: &mut [u8]) -> usize {
        let machine = self.machine.get();
        let left = machine.objects().size(object).saturating_sub(offset);
        let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let from = (at % PAGE) as usize;
            let n = (FRAME_SIZE - from).min(len - done);
            let Some(piece) = bytes.get_mut(done..done + n) else { break };
            match machine.objects().page(object, at / PAGE) {
                None => piece.fill(0),
                Some(pfn) => {
                    let guard = machine.window().open(pfn.addr());
                    // SAFETY: 1. The object's page is low memory, which the window reaches (`Arch`,
                    // point 5), and stays while the kernel lock is held. 2. `piece` is memory of
                    // the kernel's own, of that length.
                    unsafe { guard.base().add(from).copy_to_nonoverlapping(piece.as_mut_ptr(), n) };
                }
            }
            done += n;
        }
        done
    }

    /// Writes bytes of an object from `offset` on, which grows if need be.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOMEM`]; bytes before may be written.
    pub(crate) fn write_object(&'static self, object: u32, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let machine = self.machine.get();
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        if end > machine.objects().size(object) {
            machine.objects().set_size(object, end)?;
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let to = (at % PAGE) as usize;
            let n = (FRAME_SIZE - to).min(bytes.len() - done);
            let Some(piece) = bytes.get(done..done + n) else { break };
            let pfn = machine.objects().page_or_new(object, at / PAGE)?;
            let guard = machine.window().open(pfn.addr());
            // SAFETY: 1. As in `read_object`; programs that have the page mapped may race with
            // this, as with each other. 2. `piece` is memory of the kernel's own, of that length.
            unsafe { guard.base().add(to).copy_from_nonoverlapping(piece.as_ptr(), n) };
            stored::<A>(pfn);
            done += n;
        }
        Ok(())
    }
}
