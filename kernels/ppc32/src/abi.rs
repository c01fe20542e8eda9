// The interface of the kernel and its user program. The number of a call is in r0, arguments in r3
// to r5, the result in r3.

type Word = u32;
include!("../../base/user/abi.rs");

/// Where the program is mapped.
pub const PROGRAM: u32 = 0x1000_0000;
/// A page of the kernel's half that the kernel has mapped for itself.
pub const KERNEL_PAGE: u32 = 0xf000_0000;
