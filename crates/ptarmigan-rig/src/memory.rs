//! Physical memory as the sanitizer's walkers read it.
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::Format;
use ptarmigan::hosted::Host;
use ptsan::Memory;

/// The memory of a host.
pub struct HostMemory<'h, F: Format>(pub(crate) &'h Host<F>);

impl<F: Format> Memory for HostMemory<'_, F> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        // SAFETY: 1. the walkers are led by entries to tables, which are written as such.
        unsafe { self.0.read(PhysAddr(phys), usize::from(bytes)) }
    }
}
