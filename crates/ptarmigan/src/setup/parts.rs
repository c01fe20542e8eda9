//! The parts of a machine that [`Setup`](super::Setup) makes.
use super::half::KernelHalf;
use super::objects::{NoObjects, Objects};
use crate::addr::{FRAME_SIZE, Pfn};
use crate::cpu::Pinned;
use crate::format::Format;
use crate::frames::{DataFrames, Frames, NoFrame};
use crate::machine::Machine;
use crate::parking::Parking;
use crate::quicklist::Quicklists;
use crate::space::{SpaceMachine, ZeroBlock};
use crate::table::KernelMap;
use crate::tlb::{Shootdown, Tlb};
use crate::window::{OpenWindow, WindowGuard};

/// Where table pages of such a machine come from.
pub(super) type Lists<'m, F, W> = Quicklists<'m, W, &'m KernelHalf<F, W>>;

/// All parts of a machine: quicklists of table pages, data frames that are cleared and copied
/// through the window, and backing objects of the kernel's.
pub struct MachineParts<'m, F: Format, W, S, O = NoObjects> {
    pub(super) frames: &'m Frames,
    pub(super) half: &'m KernelHalf<F, W>,
    pub(super) data: DataFrames,
    pub(super) window: W,
    pub(super) lists: Lists<'m, F, W>,
    pub(super) tlb: Tlb<S>,
    pub(super) parking: Parking,
    pub(super) zero: Pfn,
    pub(super) zero_block: ZeroBlock,
    pub(super) share: u32,
    pub(super) objects: O,
}

impl<'m, F: Format, W: OpenWindow, S: Shootdown, O: Objects> MachineParts<'m, F, W, S, O> {
    /// Returns the kernel's half of all roots, in which [ranges](KernelMap::claim) are claimed;
    /// `None` if spaces have none.
    pub fn kernel_map(&self) -> Option<&'m KernelMap<F, W>> {
        self.half.map()
    }

    /// Returns the backing objects.
    pub fn objects(&self) -> &O {
        &self.objects
    }
}

// SAFETY: 1. `Setup` makes all of them for the one `Frames` of a new name, for the number of CPUs
// of one configuration and the nodes of its memory. 2. They are fields. 3. The window reaches the
// memory of all frames (`Setup::build_in`, point 2); `clear_data` and `copy_data` write to the
// frames of the page that is named, through the window.
unsafe impl<'m, F, W, S, O> Machine for MachineParts<'m, F, W, S, O>
where
    F: Format,
    W: OpenWindow,
    S: Shootdown,
    O: Objects,
{
    type Window = W;
    type Policy = Lists<'m, F, W>;
    type Shootdown = S;

    #[inline]
    fn table_share(&self) -> u32 {
        self.share
    }

    #[inline]
    fn frames(&self) -> &Frames {
        self.frames
    }

    #[inline]
    fn data(&self) -> &DataFrames {
        &self.data
    }

    #[inline]
    fn window(&self) -> &W {
        &self.window
    }

    #[inline]
    fn policy(&self) -> &Lists<'m, F, W> {
        &self.lists
    }

    #[inline]
    fn tlb(&self) -> &Tlb<S> {
        &self.tlb
    }

    #[inline]
    fn parking(&self) -> &Parking {
        &self.parking
    }

    unsafe fn clear_data(&self, _: &Pinned<'_>, frame: Pfn) -> Result<(), NoFrame> {
        // Frame by frame: a window may show no more of memory that is not its own.
        for frame in frame.block(F::PAGE_ORDER) {
            let guard = self.window.open(frame.addr());
            // SAFETY: the window reaches all frames (`Setup::build_in`, point 2), and only the
            // caller reaches this one (1.).
            unsafe { guard.base().write_bytes(0, FRAME_SIZE) };
        }
        Ok(())
    }

    unsafe fn copy_data(&self, _: &Pinned<'_>, from: Pfn, to: Pfn) -> Result<(), NoFrame> {
        for (from, to) in from.block(F::PAGE_ORDER).zip(to.block(F::PAGE_ORDER)) {
            let (from, to) = (self.window.open(from.addr()), self.window.open(to.addr()));
            // SAFETY: the window reaches all frames (`Setup::build_in`, point 2). Nothing else
            // reaches `to` (1.), and `from` is another frame, which stays (2.). Programs may write
            // to it meanwhile; there are no Rust references to its bytes.
            unsafe { from.base().copy_to_nonoverlapping(to.base(), FRAME_SIZE) };
        }
        Ok(())
    }

    fn before_executable(&self, pin: &Pinned<'_>, first: Pfn, frames: u64) {
        let hardware = self.tlb.hardware();
        for pfn in (first.0..).take(frames as usize).map(Pfn) {
            // Objects may have frames of another memory: `Objects::frame`.
            if self.frames.record(pfn).is_none() {
                continue;
            }
            let guard = self.window.open(pfn.addr());
            // SAFETY: 1. the window reaches all of the machine's frames.
            unsafe { hardware.clean_code(pin, guard.base(), FRAME_SIZE) };
        }
        hardware.invalidate_code(pin);
    }
}

// SAFETY: 1. The page was taken for this and cleared; entries that show it do not let writes
// through. The block of zeroes is a field of the machine. 2. by `Objects`, whose frames are not of
// `Machine::data` (point 1). 3. `Setup` makes the data frames and the page of zeroes of the
// format's order; `Objects` promises the same.
unsafe impl<F, W, S, O> SpaceMachine for MachineParts<'_, F, W, S, O>
where
    F: Format,
    W: OpenWindow,
    S: Shootdown,
    O: Objects,
{
    const PAGE_SHIFT: u32 = F::PAGE_SHIFT;

    #[inline]
    fn zero_frame(&self) -> Pfn {
        self.zero
    }

    #[inline]
    fn zero_block(&self) -> Option<&ZeroBlock> {
        Some(&self.zero_block)
    }

    #[inline]
    fn backing_frame(&self, object: u32, page: u64) -> Option<Pfn> {
        self.objects.frame(object, page)
    }

    #[inline]
    fn fault_around(&self) -> u32 {
        self.objects.fault_around()
    }

    #[inline]
    fn frames_at_hand(&self, object: u32, first: u64, frames: &mut [Pfn]) {
        self.objects.frames_at_hand(object, first, frames);
    }

    #[inline]
    fn backing_block(&self, object: u32, page: u64, pages: u32) -> Option<Pfn> {
        self.objects.block(object, page, pages)
    }
}
