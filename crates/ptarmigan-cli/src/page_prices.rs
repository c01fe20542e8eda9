//! Measures the time that Linux on this host takes for work on private pages: first faults, copies,
//! and what forks, ends of spaces and `mprotect` do for each page, in pages of 4 KiB and in huge
//! pages.
//!
//! ```text
//!  Memory     128 MiB ── write: fresh ── fork: forked ──> Child ── end: dropped ── unmap: freed
//!  base                                  fork ─────────> Child without memory ── end
//!  price      (time - base) / pages
//! ```
//!
//! `mprotect` of all of the memory and back prices a page; `mprotect` of one page in each 2 MiB
//! prices a call and, with huge pages, the split that it causes; with a thread on another CPU, the
//! request that the call sends there.
//!
//! # Why
//!
//! A process pays for a fork and an end page by page, and the kernel's records of the pages decide
//! what a page costs. So all prices are measured on memory that is much larger than a processor's
//! second-level cache; otherwise they would be prices of the cache. A base without the memory is
//! taken off. The pages of a huge page that was split are a third kind: they stay parts of one
//! large folio.
//!
//! A price is the median of several rounds. A prediction is made with the prices of each round as
//! well: these say how far it scatters. The first memory that a measurement gets has prices of its
//! own, because it may be new to a virtual machine, and its host then has to find it: for a huge
//! page this takes up to twenty times as long.
use crate::neighbour::Neighbour;
use ptarmigan_bench::affinity::AffinityGuard;
use ptarmigan_replay::model::page_prices::{NewMemory, PagePrices, PriceSet, ROUNDS};
use std::io::{self, PipeWriter};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Instant;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Memory that is forked, freed and written.
const MEMORY: usize = 128 << 20;
const REGIONS: usize = MEMORY / HUGE;
const PAGES: usize = MEMORY / PAGE;
/// The regions in which `mprotect` splits the huge pages. Writes split the others.
const CUT: usize = REGIONS / 2;
/// Pages of a region that are copied one by one, and as many that are made writable again.
const WRITES: usize = 32;
/// Turns of the calls that price a request to another CPU.
const REQUESTS: usize = 32;

/// Measures. Takes about two seconds and 128 MiB, and forks; so it is for a process that is
/// small yet.
///
/// # Errors
/// If there is no memory, a child cannot be made, or the kernel gives no huge pages.
pub(crate) fn measure() -> Result<PagePrices, String> {
    let prices = measure_small()?;
    let PriceSet { small, huge, .. } = prices.middle;
    // A huge page is one fault, 512 small ones are 512.
    if huge.forked * 8.0 > small.forked * 512.0 {
        return Err("prices of pages: the kernel gives no huge pages".to_owned());
    }
    Ok(prices)
}

/// Measures where huge pages do not matter: a kernel without them has other prices for them.
///
/// # Errors
/// If there is no memory, or a child cannot be made.
pub(crate) fn measure_small() -> Result<PagePrices, String> {
    let fail = |e: io::Error| format!("prices of pages: {e}");
    let new = new_memory().map_err(fail)?;
    // Memory that is new to a virtual machine costs its host more than all of this: the first
    // round brings in the rest.
    one_round().map_err(fail)?;
    let mut rounds = [PriceSet::default(); ROUNDS];
    for round in &mut rounds {
        *round = one_round().map_err(fail)?;
    }
    Ok(PagePrices::of(new, rounds))
}

/// Measures first writes to memory as this machine gives it now, half of it in huge pages.
fn new_memory() -> io::Result<NewMemory> {
    let (huge, small) = (Memory::new(MEMORY / 2)?, Memory::new(MEMORY / 2)?);
    huge.advise(libc::MADV_HUGEPAGE)?;
    small.advise(libc::MADV_NOHUGEPAGE)?;
    let ns = [&huge, &small].map(|memory| timed(|| memory.write(0..1, PAGE)) / (MEMORY / 2) as f64);
    Ok(NewMemory { huge: ns[0] * HUGE as f64, small: ns[1] * PAGE as f64 })
}

fn one_round() -> io::Result<PriceSet> {
    let memory = Memory::new(MEMORY)?;
    let mut prices = PriceSet::default();
    let base = WaitingChild::new()?;
    prices.fork = base.forked;
    prices.exit = base.end()?;
    let per = |ns: f64, base: f64, units: usize| (ns - base) / units as f64;

    memory.advise(libc::MADV_NOHUGEPAGE)?;
    prices.small.fresh = timed(|| memory.write(0..1, PAGE)) / PAGES as f64;
    prices.small.protected = memory.protect_and_back()? / PAGES as f64;
    prices.call = memory.protect_first_pages(CUT)? / CUT as f64;
    prices.request = request(&memory)?;
    let child = WaitingChild::new()?;
    prices.small.forked = per(child.forked, prices.fork, PAGES);
    prices.copied = timed(|| memory.write(0..WRITES, HUGE)) / (REGIONS * WRITES) as f64;
    child.end()?;
    let child = WaitingChild::new()?;
    prices.small.dropped = per(child.end()?, prices.exit, PAGES);
    prices.reused = timed(|| memory.write(WRITES..2 * WRITES, HUGE)) / (REGIONS * WRITES) as f64;
    prices.small.freed = timed(|| memory.free()) / PAGES as f64;

    memory.advise(libc::MADV_HUGEPAGE)?;
    prices.huge.fresh = timed(|| memory.write(0..1, PAGE)) / REGIONS as f64;
    let child = WaitingChild::new()?;
    prices.huge.forked = per(child.forked, prices.fork, REGIONS);
    prices.huge.dropped = per(child.end()?, prices.exit, REGIONS);
    prices.huge.freed = timed(|| memory.free()) / REGIONS as f64;
    memory.write(0..1, PAGE);
    prices.huge.protected = memory.protect_and_back()? / REGIONS as f64;
    prices.cuts = per(memory.protect_first_pages(CUT)?, prices.call * CUT as f64, CUT);
    let child = WaitingChild::new()?;
    prices.splits = timed(|| memory.write_in(CUT * HUGE, 0..1, HUGE)) / (REGIONS - CUT) as f64;
    child.end()?;
    let child = WaitingChild::new()?;
    prices.split.forked = per(child.forked, prices.fork, PAGES);
    prices.split.dropped = per(child.end()?, prices.exit, PAGES);
    prices.split.protected = memory.protect_and_back()? / PAGES as f64;
    prices.split.freed = timed(|| memory.free()) / PAGES as f64;
    Ok(prices)
}

/// Returns the price of a request to another CPU: the time that a call for a page takes longer
/// while another thread of the process runs there. `None` if there is no other CPU, or something
/// else has it.
fn request(memory: &Memory) -> io::Result<Option<f64>> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Ok(None);
    }
    // Other work on the machine only adds to a time.
    let mut alone = f64::INFINITY;
    for _ in 0..REQUESTS {
        alone = alone.min(memory.protect_first_pages(CUT)?);
    }
    // It takes the second CPU of those that this thread may run on, so it starts first.
    let neighbour = Neighbour::start()?;
    let _here = AffinityGuard::on(0)?;
    if neighbour.wait().is_err() {
        return Ok(None);
    }
    let mut turns = Vec::new();
    for _ in 0..REQUESTS {
        let (before, start) = (neighbour.beats(), Instant::now());
        let ns = memory.protect_first_pages(CUT)?;
        let beats = neighbour.beats() - before;
        turns.push((beats as f64 / start.elapsed().as_secs_f64(), ns));
    }
    // Turns in which the neighbour ran nearly all the time: requests to an idle CPU are spared.
    let most = turns.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
    let ran = turns.iter().filter(|(rate, _)| *rate >= most * 0.8 && *rate > 0.0);
    let both = ran.map(|(_, ns)| *ns).reduce(f64::min);
    Ok(both.map(|both| ((both - alone) / CUT as f64).max(0.0)))
}

/// Returns the processor time of this thread that `f` takes, in nanoseconds.
fn timed(f: impl FnOnce()) -> f64 {
    let before = processor_ns();
    f();
    processor_ns() - before
}

fn processor_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Private anonymous memory, aligned to huge pages.
struct Memory {
    mapping: *mut libc::c_void,
    start: *mut u8,
    bytes: usize,
}

impl Memory {
    /// Maps so many bytes, a multiple of a huge page.
    fn new(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), bytes + HUGE, rights, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = mapping.cast::<u8>();
        Ok(Memory { mapping, start: start.wrapping_add(start.align_offset(HUGE)), bytes })
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range lies in the mapping of `new`, into which no reference is handed out, so
        // that its content may go.
        match unsafe { libc::madvise(self.start.cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives all pages back.
    fn free(&self) {
        // Advice that the kernel has taken for this range before; pages that stay make it cheap.
        let _ = self.advise(libc::MADV_DONTNEED);
    }

    /// Changes the permissions of `bytes` bytes from byte `first` on, a page at the least.
    fn protect(&self, first: usize, bytes: usize, rights: libc::c_int) -> io::Result<()> {
        debug_assert!(first + bytes <= self.bytes);
        // SAFETY: the range lies in the mapping of `new`, into which no reference is handed out.
        // Code that writes to it has made it writable before.
        match unsafe { libc::mprotect(self.start.add(first).cast(), bytes, rights) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the nanoseconds of one change of the permissions of all pages.
    fn protect_and_back(&self) -> io::Result<f64> {
        let mut done = Ok(());
        let ns = timed(|| {
            done = self
                .protect(0, self.bytes, libc::PROT_READ)
                .and_then(|()| self.protect(0, self.bytes, libc::PROT_READ | libc::PROT_WRITE));
        });
        done.map(|()| ns / 2.0)
    }

    /// Changes the permissions of the first page of so many regions of 2 MiB, and then back.
    /// Returns the nanoseconds without the way back.
    fn protect_first_pages(&self, regions: usize) -> io::Result<f64> {
        let mut done = Ok(());
        let ns = timed(|| {
            done = (0..regions).try_for_each(|region| self.protect(region * HUGE, PAGE, libc::PROT_READ));
        });
        self.protect(0, self.bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        done.map(|()| ns)
    }

    /// Writes to these pages of each `stride` bytes.
    fn write(&self, pages: std::ops::Range<usize>, stride: usize) {
        self.write_in(0, pages, stride);
    }

    /// Writes to these pages of each `stride` bytes from byte `first` on.
    fn write_in(&self, first: usize, pages: std::ops::Range<usize>, stride: usize) {
        for first in (first..self.bytes).step_by(stride) {
            for page in pages.clone() {
                // SAFETY: `page` is a page of the stride, so that the byte lies in the mapping; it
                // is writable, and nothing else uses it.
                unsafe { ptr::write_volatile(self.start.add(first + page * PAGE), 1) };
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapping of `new`, and no reference into it is handed out.
        unsafe { libc::munmap(self.mapping, self.bytes + HUGE) };
    }
}

/// A child that waits until it is told to end.
struct WaitingChild {
    pid: libc::pid_t,
    /// The child ends when this is closed.
    alive: Option<PipeWriter>,
    /// The processor time of the fork, in nanoseconds.
    forked: f64,
}

impl WaitingChild {
    fn new() -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made both, and nothing else owns them.
        let (reader, writer) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        let before = processor_ns();
        // SAFETY: the child closes a file, reads from a pipe and ends. None of this needs a lock
        // that another thread may have held at the fork.
        let pid = unsafe { libc::fork() };
        let forked = processor_ns() - before;
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let mut byte = 0_u8;
                // SAFETY: both are this process's descriptors, and `byte` has room for one. _exit
                // runs no destructor and no handler of the parent.
                unsafe {
                    libc::close(writer.as_raw_fd());
                    libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                    libc::_exit(0)
                }
            }
            pid => Ok(WaitingChild { pid, alive: Some(PipeWriter::from(writer)), forked }),
        }
    }

    /// Ends the child. Returns its processor time, in nanoseconds: nearly all of it is its end.
    fn end(mut self) -> io::Result<f64> {
        self.alive = None;
        let (mut status, pid) = (0, std::mem::take(&mut self.pid));
        // SAFETY: integers alone, of which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: both results have room, and the child is ours and not waited for yet.
            if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
                let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
                return Ok(ns(usage.ru_utime) + ns(usage.ru_stime));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for WaitingChild {
    fn drop(&mut self) {
        self.alive = None;
        if self.pid != 0 {
            // SAFETY: the child is ours and not waited for yet; it ends, as its pipe is closed.
            unsafe { libc::waitpid(self.pid, ptr::null_mut(), 0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_of_a_huge_page_costs_less_than_one_of_its_pages() {
        match measure() {
            Ok(prices) => {
                let PriceSet { small, split, huge, .. } = prices.middle;
                assert!(huge.forked < small.forked * 64.0, "{prices:?}");
                assert!(huge.dropped < small.dropped * 256.0, "{prices:?}");
                assert!(huge.protected < small.protected * 256.0, "{prices:?}");
                assert!(small.fresh > 0.0 && prices.middle.copied > 0.0, "{prices:?}");
                assert!(split.protected > 0.0 && prices.middle.call > 0.0, "{prices:?}");
                assert!(prices.new.huge > 0.0 && prices.new.small > 0.0, "{prices:?}");
            }
            // Where there are no huge pages, it says so.
            Err(why) => assert!(why.starts_with("prices of pages: "), "{why}"),
        }
    }
}
