//! Physical memory as the sanitizer's walkers read it.
use crate::block::HashMemory;
use ptarmigan::addr::PhysAddr;
use ptarmigan_hosted::HostWords;
use ptsan::Memory;

/// The memory of a host, and of its hash table if it has one. It has no format: the sanitizer is
/// large, and compiled for each memory.
pub struct HostMemory<'h> {
    pub(crate) words: HostWords<'h>,
    pub(crate) hash: Option<HashMemory>,
}

impl Memory for HostMemory<'_> {
    #[inline]
    fn read(&self, phys: u64, bytes: u8) -> Option<u64> {
        if let Some(offset) = phys.checked_sub(HashMemory::PHYS) {
            return self.hash.as_ref()?.read(offset, bytes);
        }
        // SAFETY: 1. the walkers are led by entries to tables, which are written as such.
        unsafe { self.words.read(PhysAddr(phys), usize::from(bytes)) }
    }

    fn exchange(&self, phys: u64, bytes: u8, old: u64, new: u64) -> Option<u64> {
        // SAFETY: 1. as above. 2. walkers set bits in the entries that they have read.
        unsafe { self.words.exchange(PhysAddr(phys), usize::from(bytes), old, new) }
    }
}
