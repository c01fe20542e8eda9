//! Names the instructions that the `Mmu` is made of.
use crate::cpu::Pinned;

/// The instructions of address translation, of the hart that the pin says code runs on.
///
/// # Safety
///
/// An implementation promises that each function does on that hart what the instruction of its name
/// does, as far as translations and fetches of instructions go.
pub unsafe trait Instructions: Sync {
    /// `SFENCE.VMA`: earlier stores of this hart are seen by its later walks, and the hart forgets
    /// leaf entries for `at` (`None`: everything, links included) under `asid` (`None`: under all
    /// numbers, and global ones).
    fn sfence_vma(&self, pin: &Pinned<'_>, at: Option<u64>, asid: Option<u16>);

    /// Reads `satp`.
    fn satp(&self, pin: &Pinned<'_>) -> u64;

    /// Writes `satp`. No translation is forgotten.
    ///
    /// # Safety
    ///
    /// 1. The tree maps the kernel as the current one does, and stays until the next load.
    unsafe fn load_satp(&self, pin: &Pinned<'_>, value: u64);

    /// Returns whether a load of the byte at `at` raises no exception. One that does is not seen by
    /// the kernel.
    fn can_load(&self, _pin: &Pinned<'_>, _at: *const u8) -> bool {
        true
    }

    /// `FENCE.I` on all harts of the machine: what they fetch from here on is what this hart has
    /// stored. The function waits for them.
    fn fence_i_everywhere(&self, pin: &Pinned<'_>);
}
