// The interface of kernels and their user programs: numbers of calls, and of failed checks that the
// program reports. Includes have a type `Word`, that of a register; the architecture says which
// registers have the number, arguments and the result, which is `ERROR` if the call failed. Not
// every kernel has each call.

/// `exit(code)`: ends the task.
pub const EXIT: Word = 0;
/// `fork() -> task`: copies the space; 0 in the child.
pub const FORK: Word = 1;
/// `spawn(pc, sp, argument) -> task`: another task in the same space.
pub const SPAWN: Word = 2;
/// `wait(task) -> code`: waits for the end of a task that the caller made.
pub const WAIT: Word = 3;
/// `mmap(address, bytes, permissions)`: anonymous memory at a fixed place.
pub const MMAP: Word = 4;
/// `munmap(address, bytes)`.
pub const MUNMAP: Word = 5;
/// `mprotect(address, bytes, permissions)`.
pub const MPROTECT: Word = 6;
/// `post(task)`: lets one `pause` of a task return.
pub const POST: Word = 7;
/// `pause()`: waits for a `post`.
pub const PAUSE: Word = 8;
/// `give_way()`: others may run first.
pub const GIVE_WAY: Word = 9;
/// `cpu() -> number`: where the caller runs.
pub const CPU: Word = 10;
/// `failed(check, got, wanted)`: the run has failed.
pub const FAILED: Word = 11;

/// Permission to read.
pub const READ: Word = 1;
/// Permission to write.
pub const WRITE: Word = 2;
/// Permission to fetch instructions.
pub const EXEC: Word = 4;

/// A call that failed.
pub const ERROR: Word = Word::MAX;
/// The exit code of a task that was ended for an access without permission.
pub const KILLED: Word = 0xdead;

/// The check that failed: fresh anonymous memory is zero.
pub const CHECK_ZERO: Word = 0;
/// A page keeps its content.
pub const CHECK_KEPT: Word = 1;
/// Memory that was unmapped and mapped again, or copied, shows its old content: a stale
/// translation.
pub const CHECK_STALE: Word = 2;
/// The child of a fork sees a later write of its parent, or lost an earlier one.
pub const CHECK_CHILD: Word = 3;
/// The parent of a fork sees a write of its child, or lost its own.
pub const CHECK_PARENT: Word = 4;
/// A call returned a wrong result.
pub const CHECK_CALL: Word = 5;
/// An access without permission was let through, or a permitted one was not.
pub const CHECK_DENIED: Word = 6;
/// The tasks never ran on two CPUs at a time.
pub const CHECK_CPUS: Word = 7;
/// A page that others evicted from the hash table lost its content.
pub const CHECK_EVICTED: Word = 8;

/// The program's mode: one space, two CPUs in it.
pub const MODE_SHARED: Word = 0;
/// The program's mode: several spaces at once.
pub const MODE_SPACES: Word = 1;
