// The interface of the kernel and its user program: numbers of calls, and of failed checks that the
// program reports. The number is in a7, arguments in a0 to a2, the result in a0; `ERROR` if the
// call failed.

/// `exit(code)`: ends the task.
pub const EXIT: u64 = 0;
/// `fork() -> task`: copies the space; 0 in the child.
pub const FORK: u64 = 1;
/// `spawn(pc, sp, argument) -> task`: another task in the same space.
pub const SPAWN: u64 = 2;
/// `wait(task) -> code`: waits for the end of a task that the caller made.
pub const WAIT: u64 = 3;
/// `mmap(address, bytes, permissions)`: anonymous memory at a fixed place.
pub const MMAP: u64 = 4;
/// `munmap(address, bytes)`.
pub const MUNMAP: u64 = 5;
/// `mprotect(address, bytes, permissions)`.
pub const MPROTECT: u64 = 6;
/// `post(task)`: lets one `pause` of a task return.
pub const POST: u64 = 7;
/// `pause()`: waits for a `post`.
pub const PAUSE: u64 = 8;
/// `give_way()`: others may run first.
pub const GIVE_WAY: u64 = 9;
/// `cpu() -> number`: where the caller runs.
pub const CPU: u64 = 10;
/// `failed(check, got, wanted)`: the run has failed.
pub const FAILED: u64 = 11;

/// Permission to read.
pub const READ: u64 = 1;
/// Permission to write.
pub const WRITE: u64 = 2;
/// Permission to fetch instructions.
pub const EXEC: u64 = 4;

/// A call that failed.
pub const ERROR: u64 = u64::MAX;
/// The exit code of a task that was ended for an access without permission.
pub const KILLED: u64 = 0xdead;

/// The program's mode: one space, two harts in it.
pub const MODE_SHARED: u64 = 0;
/// The program's mode: several spaces at once.
pub const MODE_SPACES: u64 = 1;

/// The check that failed: fresh anonymous memory is zero.
pub const CHECK_ZERO: u64 = 0;
/// A page keeps its content.
pub const CHECK_KEPT: u64 = 1;
/// Memory that was unmapped and mapped again, or copied, shows its old content: a stale
/// translation.
pub const CHECK_STALE: u64 = 2;
/// The child of a fork sees a later write of its parent, or lost an earlier one.
pub const CHECK_CHILD: u64 = 3;
/// The parent of a fork sees a write of its child, or lost its own.
pub const CHECK_PARENT: u64 = 4;
/// A call returned a wrong result.
pub const CHECK_CALL: u64 = 5;
/// An access without permission was let through, or a permitted one was not.
pub const CHECK_DENIED: u64 = 6;
/// The tasks never ran on two harts at a time.
pub const CHECK_HARTS: u64 = 7;
