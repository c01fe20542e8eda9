//! Names the formats that x86 CPUs walk.
use crate::format::{Encrypted, Format, I386, Keyed, X86_64, X86_64La57, X86Pae};

/// A format that the MMUs of x86 CPUs walk, in one of their modes. Set-up compares the two bits of
/// CR4 that tell the modes apart with its number of levels: PAE, and LA57 of long mode.
///
/// # Safety
///
/// 1. An x86 CPU whose control registers, CPUID and boot parameters are as the format's
///    documentation says walks trees of it from CR3 on.
pub unsafe trait Tables: Format {}

// SAFETY: 1. 32-bit paging: CR4.PAE clear, CR4.PSE set.
unsafe impl Tables for I386 {}
// SAFETY: 1. CR4.PAE set, no long mode.
unsafe impl Tables for X86Pae {}
// SAFETY: 1. long mode, CR4.LA57 clear.
unsafe impl Tables for X86_64 {}
// SAFETY: 1. long mode, CR4.LA57 set.
unsafe impl Tables for X86_64La57 {}
// SAFETY: 1. as `F`, with CR4.PKE set.
unsafe impl<F: Tables> Tables for Keyed<F> where Keyed<F>: Format {}
// SAFETY: 1. as `F`, where bit `BIT` is the C-bit or the shared bit.
unsafe impl<F: Tables, const BIT: u32, const MARKS_SHARED: bool> Tables for Encrypted<F, BIT, MARKS_SHARED> where
    Encrypted<F, BIT, MARKS_SHARED>: Format
{
}
