//! Memory that lies on its node.
use crate::config::Bind;
use crate::error::Refusal;
use std::ptr::NonNull;

/// Nodes that Linux can name.
const NODES: usize = 1024;
const WORD: usize = libc::c_ulong::BITS as usize;
/// Linux's numbers for policies of memory.
const MPOL_PREFERRED: libc::c_long = 1;
const MPOL_BIND: libc::c_long = 2;

/// Binds the memory from `at` on to a node of the host's: none of it has been touched.
///
/// # Errors
///
/// The host's refusal; the memory comes from where the thread runs that touches it first, as
/// before.
///
/// # Safety
///
/// 1. The range must be a mapping of the caller's own, at a multiple of the host's pages.
pub(super) unsafe fn bind(at: NonNull<u8>, len: usize, node: usize, how: Bind) -> Result<(), Refusal> {
    let policy = match how {
        Bind::FirstTouch => return Ok(()),
        Bind::Prefer => MPOL_PREFERRED,
        Bind::Strict => MPOL_BIND,
    };
    let mut mask: [libc::c_ulong; NODES / WORD] = [0; NODES / WORD];
    let refusal = |errno| {
        let advice =
            "the host has no such node, knows none, or forbids it: use another topology, or Bind::FirstTouch";
        Refusal::new("mbind", at.addr().get(), len, errno, advice)
    };
    *mask.get_mut(node / WORD).ok_or_else(|| refusal(libc::EINVAL))? |= 1 << (node % WORD);
    // SAFETY: the mask lives until the call is over and has as many bits as it is told, of which
    // the host reads one less; the range is the caller's (1.), and a policy does not change what it
    // holds.
    let result = unsafe {
        let none: libc::c_long = 0;
        libc::syscall(libc::SYS_mbind, at.as_ptr(), len, policy, mask.as_ptr(), NODES + 1, none)
    };
    if result == 0 {
        return Ok(());
    }
    Err(refusal(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)))
}
