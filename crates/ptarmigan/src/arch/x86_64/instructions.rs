//! Names the instructions that the `Mmu` is made of.
use crate::cpu::Pinned;

/// An `INVPCID` and its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invpcid {
    /// Type 0: one page under one PCID, and the links on the way to it. Global pages stay.
    Page {
        /// The PCID.
        pcid: u16,
        /// An address of the page.
        at: u64,
    },
    /// Type 1: one PCID, but for global pages.
    Context(u16),
    /// Type 2: everything.
    All,
    /// Type 3: everything but global pages.
    AllButGlobal,
}

/// The instructions of address translation, of the CPU that the pin says code runs on.
///
/// # Safety
///
/// An implementation promises that each function does on that CPU what the instruction of its name
/// does, as far as the translations of that CPU go.
pub unsafe trait Instructions: Sync {
    /// `INVLPG`: forgets a page under the PCID that is loaded, or a global page, and all links
    /// under that PCID.
    fn invlpg(&self, pin: &Pinned<'_>, at: u64);

    /// `INVPCID`, on a CPU that has it.
    fn invpcid(&self, pin: &Pinned<'_>, what: Invpcid);

    /// Reads CR3.
    fn cr3(&self, pin: &Pinned<'_>) -> u64;

    /// Writes CR3. Without bit 63, or without PCIDs, it forgets everything under the PCID that is
    /// in its low bits, but for global pages.
    ///
    /// # Safety
    ///
    /// 1. The tree maps the kernel as the current one does, and stays until the next load.
    unsafe fn load_cr3(&self, pin: &Pinned<'_>, value: u64);

    /// Reads CR4.
    fn cr4(&self, pin: &Pinned<'_>) -> u64;

    /// Turns CR4.PGE over and back, on a CPU that has it: forgets everything.
    fn toggle_pge(&self, pin: &Pinned<'_>);
}
