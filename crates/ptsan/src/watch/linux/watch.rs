//! A watch: its memory, its sanitizer, and the code that runs under it.
use super::escape::{self, End};
use super::list;
use super::lock::{self, Held};
use super::ram::Ram;
use super::region::{OnStore, Region};
use super::signals;
use crate::Sanitizer;
use crate::watch::ended::Ended;
use crate::watch::error::Error;
use crate::watch::found::FoundAt;
use crate::watch::store::Store;
use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::ptr::NonNull;

/// Where [`Watch::identity`] looks for room: at multiples of this.
const STEP: u64 = 1 << 32;

/// Memory in which every store is seen, and the sanitizer that checks it. See
/// [the module](crate::watch).
///
/// Threads may share it.
///
/// ```
/// use ptsan::watch::Watch;
/// use ptsan::{Arch, Config, Content, Kind, Sanitizer};
///
/// let watch = Watch::new(1 << 16, Sanitizer::new(Config::new(Arch::x86_64())))?;
/// let ram = watch.memory();
/// assert!(ram.store(0x2000, 0x1234_5007)); // an old entry in a free frame
/// watch.with(|san, ram| {
///     san.table_allocated(ram, 0x1000, 4096, Some(3), Content::Zero);
///     san.switch(ram, 0, 0x1000, 1);
/// });
/// watch.run(|| {
///     // The code under test takes a frame; this is the only hook.
///     watch.with(|san, ram| san.table_allocated(ram, 0x2000, 4096, None, Content::Unknown));
///     let link = |entry| ram.store(0x1000, entry);
///     let clear = || (0x2000..0x3000).step_by(8).all(|at| ram.store(at, 0));
///     assert!(link(0x2007)); // found here,
///     assert!(clear());      // although now all is well
/// })?;
/// assert_eq!(watch.with(|san, _| san.count(Kind::LinkedBeforeCleared)), 1);
/// assert_eq!(watch.found()[0].phys, 0x1000);
/// # Ok::<(), ptsan::watch::Error>(())
/// ```
pub struct Watch {
    region: NonNull<Region>,
    _installed: signals::Installed,
    _owns: PhantomData<Region>,
}

// SAFETY: a region may be used from several threads (it is `Sync`) and dropped on another (it is
// `Send`).
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

impl Watch {
    /// Allocates `bytes` of zeroed memory, rounded up to pages of 4096, for `san` to check. Its
    /// first byte has physical address 0.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on other hosts than Linux on x86-64, [`Error::BadSize`],
    /// [`Error::TooMany`], [`Error::System`] if the system gives no memory or no signal handlers.
    pub fn new(bytes: usize, san: Sanitizer) -> Result<Self, Error> {
        Self::with_start(0, bytes, san)
    }

    /// Does the same as [`Watch::new`], with `start` as the physical address of the first byte.
    ///
    /// # Errors
    /// As [`Watch::new`], and [`Error::BadStart`].
    pub fn with_start(start: u64, bytes: usize, san: Sanitizer) -> Result<Self, Error> {
        Self::over(Ram::new(start, bytes)?, san)
    }

    /// Does the same as [`Watch::new`], with memory that is mapped one to one: the address of each
    /// byte is its physical address. Code under test that takes physical addresses for pointers,
    /// as under an identity map, runs as it is.
    ///
    /// The memory begins at a multiple of 4 GiB, the lowest that is free, so reports name the same
    /// addresses in each run. [`Ram::start`] tells it.
    ///
    /// # Errors
    /// As [`Watch::new`], and [`Error::Identity`] if 64 such places are taken.
    pub fn identity(bytes: usize, san: Sanitizer) -> Result<Self, Error> {
        let step = (bytes as u64).checked_next_multiple_of(STEP).ok_or(Error::BadSize { bytes })?.max(STEP);
        let mut last = Error::BadSize { bytes };
        for start in (1..=list::LIMIT as u64).map_while(|n| step.checked_mul(n)) {
            match Ram::identity(start, bytes) {
                Ok(ram) => return Self::over(ram, san),
                Err(e @ Error::Identity { .. }) => last = e,
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }

    /// Does the same as [`Watch::identity`], from address `start` on: for formats whose entries
    /// hold low addresses only, and for code that expects a certain address.
    ///
    /// # Errors
    /// As [`Watch::new`], [`Error::BadStart`], and [`Error::Identity`] if the addresses, or one of
    /// the pages before and behind them, are in use.
    pub fn identity_at(start: u64, bytes: usize, san: Sanitizer) -> Result<Self, Error> {
        Self::over(Ram::identity(start, bytes)?, san)
    }

    fn over(ram: Ram, san: Sanitizer) -> Result<Self, Error> {
        let installed = signals::Installed::new()?;
        let region = Box::into_raw(Box::new(Region::new(ram, san)));
        let held = Held::new();
        // SAFETY: the region is valid until `take_out` frees it, which removes it first.
        if let Err(e) = unsafe { list::add(&held, region) } {
            // SAFETY: the region was made above and is in no list.
            drop(unsafe { Box::from_raw(region) });
            return Err(e);
        }
        // SAFETY: a box is never null.
        let region = unsafe { NonNull::new_unchecked(region) };
        Ok(Self { region, _installed: installed, _owns: PhantomData })
    }

    fn region(&self) -> &Region {
        // SAFETY: only `take_out` frees the region, when the watch is dropped.
        unsafe { self.region.as_ref() }
    }

    /// Returns the memory, for the code under test and for hooks that read it.
    #[must_use]
    pub fn memory(&self) -> &Ram {
        &self.region().ram
    }

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
    ///    stay locked. So no frame from the call of `code` to the instruction holds what has to be
    ///    dropped for others to be safe, such as a scope of threads.
    /// 2. The instructions do here what the module says. Code that needs more of them to be sound,
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
                let _held = Held::new();
                self.0.give_up(self.1);
            }
        }
        assert!(!lock::is_mine(), "`Watch::run_on` was called while the same thread has the sanitizer");
        let region = self.region();
        let held = Held::new();
        region.claim(cpu)?;
        drop(held);
        let on_cpu = OnCpu(region, cpu);
        let running = Running::begin(region)?;
        // SAFETY: 1. `self` keeps the region. 2. The caller guarantees it.
        let ended = unsafe { escape::run(region, cpu, code) };
        if let Err((_, abandoned)) = ended {
            let _held = Held::new();
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
        let held = Held::new();
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
    /// [`Sanitizer::table_linked`]. Privileged instructions are carried out as before.
    ///
    /// # Errors
    /// [`Error::System`] if the memory cannot be made writable.
    pub fn pause(&self) -> Result<Paused<'_>, Error> {
        let _held = Held::new();
        let region = self.region();
        region.paused.set(region.paused.get() + 1);
        let guard = Paused { region };
        region.protect()?;
        Ok(guard)
    }

    /// Calls a hook, or anything else of the sanitizer. Stores of other threads wait meanwhile.
    /// What this thread stores inside is checked when the call ends.
    ///
    /// # Panics
    /// Panics if it is called inside itself, or by the callback of [`Watch::on_store`], which
    /// already has the sanitizer.
    pub fn with<R>(&self, hook: impl FnOnce(&mut Sanitizer, &Ram) -> R) -> R {
        let region = self.region();
        let _held = Held::new();
        // SAFETY: the lock is held to the end of this function.
        let result = unsafe { region.with(|subject| hook(&mut subject.san, &region.ram)) };
        // SAFETY: as above.
        unsafe { region.deliver(false) };
        match result {
            Some(result) => result,
            None => panic!("`Watch::with` was called while the same thread has the sanitizer already"),
        }
    }

    /// Calls `look` after each store, when the sanitizer has checked it: the place to let a CPU
    /// access memory or walk at every instant. It replaces an earlier callback.
    ///
    /// What the callback stores to the memory is checked after the next store.
    ///
    /// # Panics
    /// As [`Watch::with`].
    pub fn on_store(&self, look: impl FnMut(&mut Sanitizer, &Ram, &Store<'_>) + Send + 'static) {
        let look: OnStore = Box::new(look);
        let _held = Held::new();
        // SAFETY: the lock is held to the end of this function.
        match unsafe { self.region().with(|subject| subject.on_store.replace(look)) } {
            Some(_) => {}
            None => panic!("`Watch::on_store` was called while the same thread has the sanitizer already"),
        }
    }

    /// Checks `rep stos` and `rep movs` after each repetition instead of once for each page, at a
    /// thousand times the cost.
    pub fn each_repetition(&self, yes: bool) {
        let _held = Held::new();
        self.region().each_repetition.set(yes);
    }

    /// Returns the number of stores seen.
    #[must_use]
    pub fn stores(&self) -> u64 {
        let _held = Held::new();
        self.region().stores.get()
    }

    /// Returns the stores at which findings were made, in order. Each is returned once.
    #[must_use]
    pub fn found(&self) -> Vec<FoundAt> {
        let _held = Held::new();
        // SAFETY: the lock is held to the end of this function.
        unsafe { self.region().with(|subject| std::mem::take(&mut subject.found)) }.unwrap_or_default()
    }

    /// Checks that nothing was found.
    ///
    /// # Panics
    /// Panics if something was found, with the report and the stores of [`Watch::found`] as the
    /// message.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.with(|san, _| san.total()) == 0, "{self}");
    }

    /// Ends the watch and returns its sanitizer.
    #[must_use]
    pub fn into_sanitizer(self) -> Sanitizer {
        let mut this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the region is taken out once and the handlers are
        // given back once.
        let (region, installed) = unsafe { (this.take_out(), std::ptr::read(&raw const this._installed)) };
        drop(installed);
        region.into_sanitizer()
    }

    /// # Safety
    /// The watch is not used afterwards.
    unsafe fn take_out(&mut self) -> Box<Region> {
        let held = Held::new();
        list::remove(&held, self.region.as_ptr());
        // SAFETY: `new` made it from a box, it is freed nowhere else, and it is out of the list, so
        // no handler uses it.
        unsafe { Box::from_raw(self.region.as_ptr()) }
    }
}

/// A run under way.
struct Running<'a>(&'a Region);

impl<'a> Running<'a> {
    fn begin(region: &'a Region) -> Result<Self, Error> {
        let _held = Held::new();
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
        let _held = Held::new();
        self.0.running.set(self.0.running.get() - 1);
        escape::nest(self.0, -1);
        // If the system refuses, stores still fault and are let through page by page.
        let _ = self.0.protect();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: this is the last use.
        drop(unsafe { self.take_out() });
    }
}

impl fmt::Display for Watch {
    /// Prints the sanitizer's report, and the stores at which its findings were made, except those
    /// that [`Watch::found`] has returned.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _held = Held::new();
        // SAFETY: the lock is held to the end of this function.
        let written = unsafe {
            self.region().with(|subject| {
                write!(f, "{}", subject.san)?;
                subject.found.iter().try_for_each(|found| {
                    let finding = subject.san.findings().get(found.finding);
                    write!(f, "\n\nfinding {}", found.finding + 1)?;
                    finding.map_or(Ok(()), |finding| write!(f, " ({})", finding.kind))?;
                    // The report has printed the callers, unless configured otherwise.
                    match finding.and_then(|finding| finding.trace.as_ref()) {
                        Some(_) => write!(f, ": {}", found.instruction()),
                        None => write!(f, ": {found}"),
                    }
                })
            })
        };
        written.unwrap_or_else(|| write!(f, "ptsan: the sanitizer is in use"))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("memory", self.memory())
            .field("stores", &self.stores())
            .finish_non_exhaustive()
    }
}

/// Stops seeing stores while it lives: see [`Watch::pause`].
#[must_use = "stores are seen again when it is dropped"]
pub struct Paused<'a> {
    region: &'a Region,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let _held = Held::new();
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
