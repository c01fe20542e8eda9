//! The page of the kernel's half that [changes](ptarmigan_kernel_base::smp::kernel_half), in a
//! range of the kernel's tree.

use ptarmigan::addr::{Pfn, VirtAddr};
use ptarmigan::format::Aarch64Upper;
use ptarmigan::frames::AllocFlags;
use ptarmigan::table::KernelRange;
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::must;
use ptarmigan_kernel_base::smp::kernel_half::{ATTR, PAGE, check as check_with, frame};
use ptarmigan_kernel_base::tasks::Port;

use super::machine::tree;
use crate::machine::{Board, on, pin};

const AT: VirtAddr = VirtAddr(PAGE);
/// Bytes that a leaf table maps.
const LEN: u64 = 2 << 20;

/// The range that the page is in.
pub struct Range(KernelRange<'static, Aarch64Upper, DirectMap>);

impl Range {
    /// Maps the page.
    pub fn claim() -> Self {
        let pin = pin();
        let mut range = Range(must("a claim of the kernel's half", tree().claim(on(&pin), AT, LEN)));
        range.map(frame(0));
        range
    }

    fn map(&mut self, frame: Pfn) {
        let pin = pin();
        // SAFETY: 1. The frames are statics of atomics, and programs have no access.
        let mapped = unsafe { self.0.map(on(&pin), AT, frame, 1, ATTR, AllocFlags::NORMAL) };
        must("a mapping of the kernel's half", mapped);
    }

    /// Changes the page while the other CPUs look, and checks the values that they see; gives
    /// the range back.
    pub fn check(mut self) {
        let pin = pin();
        check_with(Board::cpus(), |frame| {
            must("unmapping of the kernel's half", self.0.unmap(on(&pin), AT, 1, |_, _| {}));
            self.map(frame);
        });
        must("the release of the kernel's half", self.0.release(on(&pin), |_, _| {}).map_err(|(e, _)| e));
    }
}
