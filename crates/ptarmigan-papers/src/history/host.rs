//! Holt's program on the kernel of this machine: a forked child reads a few pages far apart.
//!
//! At a stride of 512 pages and more, every fault of the child needs its own leaf table. So the
//! time per fault is mostly that of allocating page-table pages. Reads map the shared zero page,
//! and the child writes no page.

use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::time::Instant;
use std::{io, ptr};

use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_bench::stats::median;

/// Nanoseconds per read fault, over all children.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostHolt {
    /// The fastest child.
    pub min_ns: f64,
    /// The median child.
    pub median_ns: f64,
    /// The slowest child.
    pub max_ns: f64,
}

/// Forks `forks` children one after the other. Each reads `pages` untouched pages, `stride_pages`
/// apart, and reports its mean time per fault. The calling thread stays on one CPU.
///
/// # Errors
///
/// If a number is zero, the memory does not fit an address space, the kernel refuses memory, a pipe
/// or a process, or a child dies.
pub fn holt(forks: u32, pages: u32, stride_pages: u64) -> Result<HostHolt, String> {
    if forks == 0 || pages == 0 || stride_pages == 0 {
        return Err("forks, pages and stride must not be zero".into());
    }
    let stride = usize::try_from(stride_pages).ok().and_then(|s| s.checked_mul(page_size()));
    let span = stride.and_then(|s| Some((s, s.checked_mul(pages as usize)?)));
    let Some((stride, len)) = span else {
        return Err(format!("{pages} pages at a stride of {stride_pages} do not fit an address space"));
    };
    let area = Mapping::new(len).map_err(|e| format!("cannot map {len} bytes: {e}"))?;
    let _pinned = AffinityGuard::here().map_err(|e| format!("cannot stay on one CPU: {e}"))?;
    let mut samples = Vec::with_capacity(forks as usize);
    for _ in 0..forks {
        samples.push(one_child(&area, pages as usize, stride)?);
    }
    samples.sort_by(f64::total_cmp);
    let median_ns = median(samples.iter().copied());
    Ok(HostHolt { min_ns: samples[0], median_ns, max_ns: samples[samples.len() - 1] })
}

fn page_size() -> usize {
    // SAFETY: sysconf accepts any name and has no side effect.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Alignment of leaf tables of 4 KiB pages, and of huge pages.
const ALIGN: usize = 2 << 20;

/// Untouched, readable, private anonymous memory without huge pages, aligned to 2 MiB.
struct Mapping {
    mapping: *mut libc::c_void,
    mapped: usize,
    start: *const u8,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        let mapped = len.checked_add(ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), mapped, libc::PROT_READ, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = mapping.cast::<u8>();
        let start = start.wrapping_add(start.align_offset(ALIGN)).cast_const();
        let area = Mapping { mapping, mapped, start };
        // SAFETY: the range lies in the mapping just made. A kernel without huge pages refuses the
        // advice.
        unsafe { libc::madvise(start.cast_mut().cast(), len, libc::MADV_NOHUGEPAGE) };
        Ok(area)
    }

    /// Reads a byte every `stride` bytes, `pages` times. The length of the mapping keeps this
    /// inside.
    fn touch(&self, pages: usize, stride: usize) {
        for i in 0..pages {
            // SAFETY: `new` was given pages * stride bytes from `start` on, and they are readable.
            unsafe { ptr::read_volatile(self.start.add(i * stride)) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping of `new`, and no reference into it is ever handed
        // out.
        unsafe { libc::munmap(self.mapping, self.mapped) };
    }
}

/// Forks a child that measures, writes its nanoseconds per fault to the pipe and exits.
fn one_child(area: &Mapping, pages: usize, stride: usize) -> Result<f64, String> {
    let (mut reader, writer) = io::pipe().map_err(|e| format!("cannot make a pipe: {e}"))?;
    // SAFETY: the child only reads memory, reads the clock, writes to a pipe and exits. None of
    // this needs a lock that another thread may have held at the fork.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(format!("cannot fork: {}", io::Error::last_os_error()));
    }
    if child == 0 {
        let start = Instant::now();
        area.touch(pages, stride);
        let ns = start.elapsed().as_nanos() as f64 / pages as f64;
        let bytes = ns.to_ne_bytes();
        // SAFETY: `bytes` lives across the call. _exit runs no destructor and no handler of the
        // parent.
        unsafe {
            // A write of eight bytes into an empty pipe is atomic.
            let written = libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
            libc::_exit(i32::from(written != bytes.len() as isize));
        }
    }
    // With the parent's end closed, the death of the child ends the read.
    drop(writer);
    let report = read_report(&mut reader);
    // In every case, or the child stays a zombie.
    let status = wait(child).map_err(|e| format!("cannot wait for the child: {e}"))?;
    if libc::WIFSIGNALED(status) {
        return Err(format!("the child was killed by signal {}", libc::WTERMSIG(status)));
    }
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        return Err(format!("the child failed with status {status:#x}"));
    }
    report.map_err(|e| format!("the child reported nothing: {e}"))
}

fn read_report(reader: &mut PipeReader) -> io::Result<f64> {
    let mut bytes = [0; 8];
    // `read_exact` continues after signals.
    reader.read_exact(&mut bytes)?;
    Ok(f64::from_ne_bytes(bytes))
}

fn wait(child: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: `child` is a child of this process, not waited for yet, and `status` is writable.
        let got = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if got == child {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{self, MaybeUninit};

    #[test]
    fn children_report_times_in_order() {
        let result = holt(3, 4, 512).expect("this machine can fork");
        assert!(result.min_ns > 0.0);
        assert!(result.min_ns <= result.median_ns && result.median_ns <= result.max_ns);
    }

    #[test]
    fn no_child_is_left() {
        holt(2, 1, 1).expect("this machine can fork");
        // SAFETY: WNOHANG and __WNOTHREAD only look for children of this thread.
        let left = unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG | libc::__WNOTHREAD) };
        assert_eq!(left, -1, "a child was left behind");
    }

    #[test]
    fn the_affinity_comes_back() {
        let set = || {
            let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
            // SAFETY: the set has the given size, and all-zero is a valid set.
            unsafe {
                libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
                libc::CPU_COUNT(&set.assume_init())
            }
        };
        let before = set();
        holt(1, 1, 1).expect("this machine can fork");
        assert_eq!(set(), before);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        assert!(holt(0, 1, 1).is_err());
        assert!(holt(1, 0, 1).is_err());
        assert!(holt(1, 1, 0).is_err());
        assert!(holt(1, u32::MAX, u64::MAX).is_err());
        assert!(holt(1, u32::MAX, 1 << 30).is_err());
        // The number fits 64 bits, but no address space.
        assert!(holt(1, 1 << 10, 1 << 36).is_err());
    }
}
