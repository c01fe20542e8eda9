//! The interface of images and their user programs, as far as it is the same for all.

use ptarmigan::space::AreaFlags;

type Word = u64;
include!("../user/abi.rs");

/// Returns the permissions that a call names.
pub fn permissions(bits: u64) -> AreaFlags {
    [(READ, AreaFlags::READ), (WRITE, AreaFlags::WRITE), (EXEC, AreaFlags::EXEC)]
        .into_iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(AreaFlags::default(), |all, (_, flag)| all.with(flag))
}

/// Returns the failure that a check of the program reports.
pub fn failure(check: u64) -> &'static str {
    match check {
        CHECK_ZERO => "fresh memory is not zero",
        CHECK_KEPT => "a page lost what was written to it",
        CHECK_STALE => "stale: what was unmapped or copied is still seen",
        CHECK_CHILD => "copy-on-write: the child does not see what was there at the fork",
        CHECK_PARENT => "copy-on-write: the parent does not see what it wrote itself",
        CHECK_CALL => "a call failed",
        CHECK_DENIED => "an access was not treated as the area says",
        CHECK_CPUS => "the tasks never ran on two CPUs at a time",
        CHECK_EVICTED => "a page that was driven out of the hash table lost what was written to it",
        _ => "the user program failed",
    }
}
