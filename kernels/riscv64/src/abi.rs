// The interface of the kernel and its user program. The number of a call is in a7, arguments in a0
// to a2, the result in a0.

type Word = u64;
include!("../../base/user/abi.rs");

/// The program's mode: one space, two harts in it.
pub const MODE_SHARED: u64 = 0;
/// The program's mode: several spaces at once.
pub const MODE_SPACES: u64 = 1;
