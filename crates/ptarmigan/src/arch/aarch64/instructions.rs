//! Names the instructions that the `Mmu` is made of.
use crate::cpu::Pinned;

/// A `TLBI` instruction, by its mnemonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A page under an ASID and links on the way to it, on all CPUs.
    Vae1is,
    /// A page under an ASID, on all CPUs. Links stay.
    Vale1is,
    /// A page under all ASIDs and links on the way to it, on all CPUs.
    Vaae1is,
    /// A range under an ASID and links on the way to its pages, on all CPUs.
    Rvae1is,
    /// A range under an ASID, on all CPUs. Links stay.
    Rvale1is,
    /// A range under all ASIDs and links on the way to its pages, on all CPUs.
    Rvaae1is,
    /// An ASID, on all CPUs.
    Aside1is,
    /// Everything, on all CPUs.
    Vmalle1is,
    /// A page under an ASID, on this CPU. Links stay.
    Vale1,
    /// A page under all ASIDs, on this CPU. Links stay.
    Vaale1,
    /// An ASID, on this CPU.
    Aside1,
    /// Everything, on this CPU.
    Vmalle1,
}

/// A barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// `DSB ISHST`: walks of all CPUs see earlier stores.
    DsbIshst,
    /// `DSB ISH`: invalidations on all CPUs have been carried out.
    DsbIsh,
    /// `DSB NSH`: invalidations on this CPU have been carried out.
    DsbNsh,
    /// `ISB`: later instructions of this CPU are fetched anew, and see registers as they are.
    Isb,
}

/// The instructions of address translation, of the CPU that the pin says code runs on.
///
/// # Safety
///
/// An implementation promises that each function does on that CPU what the instruction of its name
/// does, as far as translations and fetches of instructions go.
pub unsafe trait Instructions: Sync {
    /// `TLBI op, operand`. Those without an operand ignore it.
    fn tlbi(&self, pin: &Pinned<'_>, op: Op, operand: u64);

    /// `DSB` or `ISB`.
    fn barrier(&self, pin: &Pinned<'_>, barrier: Barrier);

    /// Reads `TTBR0_EL1`.
    fn ttbr0(&self, pin: &Pinned<'_>) -> u64;

    /// Writes `TTBR0_EL1`.
    ///
    /// # Safety
    ///
    /// 1. A tree is at that address that stays until the next load.
    unsafe fn load_ttbr0(&self, pin: &Pinned<'_>, value: u64);

    /// Reads `CTR_EL0`.
    fn ctr(&self, pin: &Pinned<'_>) -> u64;

    /// `DC CVAU`: writes a line of the data cache back to where instruction fetches find it.
    ///
    /// # Safety
    ///
    /// 1. The byte can be read.
    unsafe fn dc_cvau(&self, pin: &Pinned<'_>, at: *const u8);

    /// `IC IALLUIS`: all CPUs forget instructions that they have cached.
    fn ic_ialluis(&self, pin: &Pinned<'_>);
}

/// A `TLBI` instruction for guests, by its mnemonic. All of them but `Alle1` and `Alle1is` act on
/// the VMID in `VTTBR_EL2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestOp {
    /// The second stage of an address and links on the way to it, on all CPUs.
    Ipas2e1is,
    /// The second stage of an address, on all CPUs. Links stay.
    Ipas2le1is,
    /// The second stage of a range and links on the way to its pages, on all CPUs.
    Ripas2e1is,
    /// The second stage of a range, on all CPUs. Links stay.
    Ripas2le1is,
    /// The first stage, and what was made of both, on all CPUs.
    Vmalle1is,
    /// Both stages, on all CPUs.
    Vmalls12e1is,
    /// Everything of all guests, on all CPUs.
    Alle1is,
    /// The second stage of an address, on this CPU. Links stay.
    Ipas2le1,
    /// The first stage, and what was made of both, on this CPU.
    Vmalle1,
    /// Both stages, on this CPU.
    Vmalls12e1,
    /// Everything of all guests, on this CPU.
    Alle1,
}

/// The instructions of second stages, at EL2.
///
/// # Safety
///
/// As for [`Instructions`].
pub unsafe trait GuestInstructions: Instructions {
    /// `TLBI op, operand`. Those without an operand ignore it.
    fn tlbi_guest(&self, pin: &Pinned<'_>, op: GuestOp, operand: u64);

    /// Reads `VTTBR_EL2`.
    fn vttbr(&self, pin: &Pinned<'_>) -> u64;

    /// Writes `VTTBR_EL2`.
    ///
    /// # Safety
    ///
    /// 1. A tree is at that address that stays until the next load.
    unsafe fn load_vttbr(&self, pin: &Pinned<'_>, value: u64);
}
