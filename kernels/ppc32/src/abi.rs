// The interface of the kernel and its user program: numbers of calls, and of failed checks that the
// program reports. The number is in r0, arguments in r3 to r5, the result in r3; `ERROR` if the
// call failed.

/// `exit(code)`: ends the task.
pub const EXIT: u32 = 0;
/// `fork() -> task`: copies the space; 0 in the child.
pub const FORK: u32 = 1;
/// `wait(task) -> code`: waits for the end of a task that the caller made.
pub const WAIT: u32 = 2;
/// `mmap(address, bytes, permissions)`: anonymous memory at a fixed place.
pub const MMAP: u32 = 3;
/// `munmap(address, bytes)`.
pub const MUNMAP: u32 = 4;
/// `mprotect(address, bytes, permissions)`.
pub const MPROTECT: u32 = 5;
/// `give_way()`: others may run first.
pub const GIVE_WAY: u32 = 6;
/// `failed(check, got, wanted)`: the run has failed.
pub const FAILED: u32 = 7;

/// Permission to read.
pub const READ: u32 = 1;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to fetch instructions.
pub const EXEC: u32 = 4;

/// A call that failed.
pub const ERROR: u32 = u32::MAX;
/// The exit code of a task that was ended for an access without permission.
pub const KILLED: u32 = 0xdead;

/// Where the program is mapped.
pub const PROGRAM: u32 = 0x1000_0000;
/// A page of the kernel's half that the kernel has mapped for itself.
pub const KERNEL_PAGE: u32 = 0xf000_0000;

/// The check that failed: fresh anonymous memory is zero.
pub const CHECK_ZERO: u32 = 0;
/// A page keeps its content.
pub const CHECK_KEPT: u32 = 1;
/// Memory that was unmapped and mapped again shows its old content: a stale translation.
pub const CHECK_STALE: u32 = 2;
/// The child of a fork sees a later write of its parent, or lost an earlier one.
pub const CHECK_CHILD: u32 = 3;
/// The parent of a fork sees a write of its child, or lost its own.
pub const CHECK_PARENT: u32 = 4;
/// A call returned a wrong result.
pub const CHECK_CALL: u32 = 5;
/// An access without permission was let through, or a permitted one was not.
pub const CHECK_DENIED: u32 = 6;
/// A page that others evicted from the hash table lost its content.
pub const CHECK_EVICTED: u32 = 7;
