//! A processor for a thread to stay on.
use std::io;
use std::mem::{self, MaybeUninit};

/// Keeps the calling thread (and the children it forks) on one CPU until dropped.
pub(crate) struct AffinityGuard {
    before: libc::cpu_set_t,
}

impl AffinityGuard {
    /// Keeps it on the CPU it is on.
    pub(crate) fn here() -> io::Result<AffinityGuard> {
        // SAFETY: no arguments, no effect.
        let cpu = unsafe { libc::sched_getcpu() };
        let cpu = usize::try_from(cpu).map_err(|_| io::Error::last_os_error())?;
        Self::keep(|_| Some(cpu))
    }

    /// Keeps it on the `n`-th of the CPUs that it may run on, counted round.
    pub(crate) fn on(n: usize) -> io::Result<AffinityGuard> {
        Self::keep(|allowed| allowed.get(n % allowed.len().max(1)).copied())
    }

    /// Keeps it on the CPU that is chosen from those allowed.
    fn keep(choose: impl FnOnce(&[usize]) -> Option<usize>) -> io::Result<AffinityGuard> {
        let size = mem::size_of::<libc::cpu_set_t>();
        let mut before = MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: the set is `size` bytes and all-zero is a valid set; 0 is the calling thread.
        let before = unsafe {
            if libc::sched_getaffinity(0, size, before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.assume_init()
        };
        // SAFETY: each number is below the bits of the set.
        let allowed: Vec<usize> =
            (0..8 * size).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &before) }).collect();
        let cpu = choose(&allowed).filter(|cpu| *cpu < 8 * size).ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: all-zero is the empty set, and the CPU's bit is inside it.
        unsafe {
            let mut one = MaybeUninit::<libc::cpu_set_t>::zeroed().assume_init();
            libc::CPU_SET(cpu, &mut one);
            if libc::sched_setaffinity(0, size, &raw const one) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(AffinityGuard { before })
    }
}

impl Drop for AffinityGuard {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `keep`. If the kernel refuses, the thread stays where it is.
        unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &raw const self.before) };
    }
}
