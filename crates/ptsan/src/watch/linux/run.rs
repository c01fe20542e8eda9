//! Runs code under a watch, as a program or as kernel code of a CPU.
//!
//! ```text
//!  run       Running::begin: running + 1, protect ── code ── drop: running - 1, protect
//!  run_on    claim(cpu) ── escape::run ── hlt, a refused instruction ──> frames are abandoned
//!                                      └─ returns ─────────────────────> OnCpu: give_up(cpu)
//!  pause     paused + 1: memory is writable ── bulk work ── drop: paused - 1, protect
//! ```
//!
//! # Why
//!
//! Runs nest and threads share a watch, so that the memory is protected by counts: it is read-only
//! while one run is under way and no pause is. Each step is undone by a value that is dropped,
//! because the code under test may panic: memory that stays read-only would turn the next test's
//! store into a crash. A run of kernel code that halts has nowhere to return to. It must leave all
//! frames at once, and the runs that it has begun in them are counted off by the number that were
//! abandoned.
use super::escape::{self, End};
use super::lock::{self, WatchLock};
use super::region::Region;
use super::watch::Watch;
use crate::watch::ended::Ended;
use crate::watch::error::Error;
use std::fmt;
use std::panic::resume_unwind;

impl Watch {
    /// Runs the code under test, with every store seen, also those of other threads meanwhile.
    /// Calls may be nested, and several threads may be inside at once.
    ///
    /// # Errors
    /// [`Error::System`] if the memory cannot be protected; the code did not run then.
    ///
    /// # Panics
    /// Panics if the code does, or if the sanitizer or the callback of [`Watch::on_store`] panicked
    /// at a store.
    pub fn run<R>(&self, code: impl FnOnce() -> R) -> Result<R, Error> {
        let running = Running::begin(self.region())?;
        let result = code();
        drop(running);
        self.resume_panic();
        Ok(result)
    }

    /// Does the same as [`Watch::run`], for kernel code: the thread stands for a CPU, and the
    /// privileged instructions that page-table code executes are emulated. They change the state of
    /// that CPU, and call the sanitizer's hooks. [The module](crate::watch#privileged-instructions)
    /// says which they are.
    ///
    /// `hlt` ends the run, and so does an instruction that is not emulated or that raises a
    /// general-protection fault. Calls may be nested, for another CPU too: so a test plays an
    /// interrupt that runs elsewhere. Threads that the code starts stand for no CPU. A
    /// [`Watch::pause`] that is abandoned stays in force.
    ///
    /// ```
    /// use ptsan::watch::{Ended, Watch};
    /// use ptsan::{Access, Arch, Config, Content, Kind, Sanitizer};
    /// use std::arch::asm;
    ///
    /// let watch = Watch::identity(1 << 16, Sanitizer::new(Config::new(Arch::x86_64())))?;
    /// let root = watch.memory().start();
    /// for table in (root..).step_by(4096).take(4) {
    ///     watch.with(|san, ram| san.table_allocated(ram, table, 4096, None, Content::Zero));
    /// }
    /// // SAFETY: the caller gives physical addresses, which are addresses here.
    /// let store = |phys: u64, entry: u64| unsafe { *(phys as *mut u64) = entry };
    /// let read = || _ = watch.with(|san, ram| san.translate(ram, 0, 0x123, Access::READ));
    /// let kernel = |flush: bool| {
    ///     // SAFETY: the instruction is emulated.
    ///     unsafe { asm!("mov cr3, {}", in(reg) root) };
    ///     (0..4).for_each(|n| store(root + n * 4096, (root + (n + 1) * 4096) | 7));
    ///     read();
    ///     store(root + 3 * 4096, 0); // unmaps the page
    ///     if flush {
    ///         // SAFETY: as above.
    ///         unsafe { asm!("invlpg [{}]", in(reg) 0) };
    ///     }
    ///     read();
    ///     // SAFETY: as above: it ends the run.
    ///     unsafe { asm!("hlt") };
    /// };
    /// for (flush, found) in [(true, 0), (false, 1)] {
    ///     // SAFETY: 1. The kernel holds nothing that must be dropped. 2. It needs no more.
    ///     let ended = unsafe { watch.run_on(0, || kernel(flush)) }?;
    ///     assert!(matches!(ended, Ended::Halted { .. }));
    ///     assert_eq!(watch.with(|san, _| san.count(Kind::StaleUse)), found);
    /// }
    /// # Ok::<(), ptsan::watch::Error>(())
    /// ```
    ///
    /// # Safety
    /// 1. A run that is ended abandons its frames, as `longjmp` does: no destructor runs, and locks
    ///    stay locked. So no frame from the call of `code` to the instruction holds a value that
    ///    has to be dropped for others to be safe, such as a scope of threads.
    /// 2. The instructions act here as the module says. Code that needs more of them to be sound,
    ///    such as `mov` to CR3 to make other memory appear, must not be run.
    ///
    /// # Errors
    /// Besides those of [`Watch::run`]: [`Error::NoSuchCpu`], [`Error::CpuTaken`], and
    /// [`Error::Instruction`] if an instruction was refused.
    ///
    /// # Panics
    /// As [`Watch::run`], and if it is called inside [`Watch::with`].
    pub unsafe fn run_on<R>(&self, cpu: usize, code: impl FnOnce() -> R) -> Result<Ended<R>, Error> {
        struct OnCpu<'a>(&'a Region, usize);
        impl Drop for OnCpu<'_> {
            fn drop(&mut self) {
                let _held = WatchLock::new();
                self.0.give_up(self.1);
            }
        }
        assert!(!lock::is_mine(), "`Watch::run_on` was called while the same thread has the sanitizer");
        let region = self.region();
        let held = WatchLock::new();
        region.claim(cpu)?;
        drop(held);
        let on_cpu = OnCpu(region, cpu);
        let running = Running::begin(region)?;
        // SAFETY: 1. `self` keeps the region. 2. The caller guarantees it.
        let ended = unsafe { escape::run(region, cpu, code) };
        if let Err((_, abandoned)) = ended {
            let _held = WatchLock::new();
            region.running.set(region.running.get() - abandoned);
        }
        drop((running, on_cpu));
        let ended = match ended {
            Ok(Ok(result)) => Ok(Ended::Returned(result)),
            Ok(Err(panic)) => resume_unwind(panic),
            Err((End::Halt(rip), _)) => Ok(Ended::Halted { rip }),
            Err((End::Refused(error), _)) => Err(error),
        };
        self.resume_panic();
        ended
    }

    /// Checks the stores that wait, and continues the panic of a check if there was one.
    fn resume_panic(&self) {
        let region = self.region();
        let held = WatchLock::new();
        // SAFETY: the lock is held.
        unsafe { region.deliver(false) };
        // SAFETY: the lock is held.
        let panic = unsafe { region.with(|subject| subject.panic.take()) }.flatten();
        drop(held);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Stops seeing stores, of all threads, until the guard is dropped: for bulk work, such as
    /// clearing a pool of frames. Links made meanwhile are only known from
    /// [`crate::Sanitizer::table_linked`]. Privileged instructions are carried out as before.
    ///
    /// # Errors
    /// [`Error::System`] if the memory cannot be made writable.
    pub fn pause(&self) -> Result<Paused<'_>, Error> {
        let _held = WatchLock::new();
        let region = self.region();
        region.paused.set(region.paused.get() + 1);
        let guard = Paused { region };
        region.protect()?;
        Ok(guard)
    }
}

/// A run under way.
struct Running<'a>(&'a Region);

impl<'a> Running<'a> {
    fn begin(region: &'a Region) -> Result<Self, Error> {
        let _held = WatchLock::new();
        region.running.set(region.running.get() + 1);
        escape::nest(region, 1);
        let running = Self(region);
        if region.is_watched() {
            region.protect()?;
        }
        Ok(running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _held = WatchLock::new();
        self.0.running.set(self.0.running.get() - 1);
        escape::nest(self.0, -1);
        // If the system refuses, stores still fault and are let through page by page.
        let _ = self.0.protect();
    }
}

/// Stops seeing stores while it lives: see [`Watch::pause`].
#[must_use = "stores are seen again when it is dropped"]
pub struct Paused<'a> {
    region: &'a Region,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let _held = WatchLock::new();
        self.region.paused.set(self.region.paused.get() - 1);
        // If the system refuses, stores go unseen as before, which the count of stores shows.
        let _ = self.region.protect();
    }
}

impl fmt::Debug for Paused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paused").finish_non_exhaustive()
    }
}
