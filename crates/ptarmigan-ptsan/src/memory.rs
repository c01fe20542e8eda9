//! Physical memory as the sanitizer's walkers read it.
use crate::block::HashMemory;
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::Format;
use ptarmigan_hosted::Host;
use ptsan::Memory;

/// The memory of a host, and of its hash table if it has one.
pub struct HostMemory<'h, F: Format> {
    pub(crate) host: &'h Host<F>,
    pub(crate) hash: Option<HashMemory>,
}

impl<F: Format> Memory for HostMemory<'_, F> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        if let Some(offset) = phys.checked_sub(HashMemory::PHYS) {
            return self.hash.as_ref()?.read(offset, bytes);
        }
        // SAFETY: 1. the walkers are led by entries to tables, which are written as such.
        unsafe { self.host.read(PhysAddr(phys), usize::from(bytes)) }
    }
}
