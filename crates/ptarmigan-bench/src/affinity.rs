//! Keeps a thread on one CPU.
use std::io;
use std::mem::{self, MaybeUninit};

/// Keeps the calling thread, and the children it forks, on one CPU until dropped.
pub struct AffinityGuard {
    before: libc::cpu_set_t,
}

impl AffinityGuard {
    /// Keeps the thread on the CPU that it runs on.
    ///
    /// # Errors
    ///
    /// If the host does not say which one that is, or refuses.
    pub fn here() -> io::Result<AffinityGuard> {
        // SAFETY: takes no arguments and has no effect.
        let cpu = unsafe { libc::sched_getcpu() };
        let cpu = usize::try_from(cpu).map_err(|_| io::Error::last_os_error())?;
        Self::keep(|_| Some(cpu))
    }

    /// Keeps the thread on the `n`-th CPU of those it may run on, modulo their number.
    ///
    /// # Errors
    ///
    /// If the host does not say which ones those are, or refuses.
    pub fn on(n: usize) -> io::Result<AffinityGuard> {
        Self::keep(|allowed| allowed.get(n % allowed.len().max(1)).copied())
    }

    /// Keeps the thread on the CPU that `choose` picks from those it may run on.
    fn keep(choose: impl FnOnce(&[usize]) -> Option<usize>) -> io::Result<AffinityGuard> {
        let size = mem::size_of::<libc::cpu_set_t>();
        let mut before = MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: `before` is `size` bytes long, and all-zero is a valid set; 0 names the calling
        // thread.
        let before = unsafe {
            if libc::sched_getaffinity(0, size, before.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            before.assume_init()
        };
        // SAFETY: every number is below the number of bits in the set.
        let allowed: Vec<usize> =
            (0..8 * size).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &before) }).collect();
        let cpu = choose(&allowed).filter(|cpu| *cpu < 8 * size).ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: all-zero is the empty set, and the bit of `cpu` lies inside it.
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
        // SAFETY: `keep` filled the set. If the kernel refuses, the thread stays where it is.
        unsafe { libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), &raw const self.before) };
    }
}
