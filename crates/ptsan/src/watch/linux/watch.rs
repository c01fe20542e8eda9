//! A watch: its memory and its sanitizer.
use super::list;
use super::lock::WatchLock;
use super::ram::Ram;
use super::region::{OnStore, Region};
use super::signals;
use crate::Sanitizer;
use crate::watch::error::Error;
use crate::watch::found::FoundAt;
use crate::watch::store::Store;
use std::fmt;
use std::marker::PhantomData;
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
        let held = WatchLock::new();
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

    pub(super) fn region(&self) -> &Region {
        // SAFETY: only `take_out` frees the region, when the watch is dropped.
        unsafe { self.region.as_ref() }
    }

    /// Returns the memory, for the code under test and for hooks that read it.
    #[must_use]
    pub fn memory(&self) -> &Ram {
        &self.region().ram
    }

    /// Calls a hook, or anything else of the sanitizer. Stores of other threads wait meanwhile.
    /// Stores of this thread inside are checked when the call ends.
    ///
    /// # Panics
    /// Panics if it is called inside itself, or by the callback of [`Watch::on_store`], which
    /// already has the sanitizer.
    pub fn with<R>(&self, hook: impl FnOnce(&mut Sanitizer, &Ram) -> R) -> R {
        let region = self.region();
        let _held = WatchLock::new();
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
    /// Stores of the callback to the memory are checked after the next store.
    ///
    /// # Panics
    /// As [`Watch::with`].
    pub fn on_store(&self, look: impl FnMut(&mut Sanitizer, &Ram, &Store<'_>) + Send + 'static) {
        let look: OnStore = Box::new(look);
        let _held = WatchLock::new();
        // SAFETY: the lock is held to the end of this function.
        match unsafe { self.region().with(|subject| subject.on_store.replace(look)) } {
            Some(_) => {}
            None => panic!("`Watch::on_store` was called while the same thread has the sanitizer already"),
        }
    }

    /// Checks `rep stos` and `rep movs` after each repetition instead of once for each page, at a
    /// thousand times the cost.
    pub fn each_repetition(&self, yes: bool) {
        let _held = WatchLock::new();
        self.region().each_repetition.set(yes);
    }

    /// Returns the number of stores seen.
    #[must_use]
    pub fn stores(&self) -> u64 {
        let _held = WatchLock::new();
        self.region().stores.get()
    }

    /// Returns the stores at which findings were made, in order. Each is returned once.
    #[must_use]
    pub fn found(&self) -> Vec<FoundAt> {
        let _held = WatchLock::new();
        // SAFETY: the lock is held to the end of this function.
        let found = unsafe {
            self.region().with(|subject| {
                subject.san.reports.mark_read();
                std::mem::take(&mut subject.found)
            })
        };
        found.unwrap_or_default()
    }

    /// Checks that there is no finding.
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
        let held = WatchLock::new();
        list::remove(&held, self.region.as_ptr());
        // SAFETY: `new` made it from a box, it is freed nowhere else, and it is out of the list, so
        // no handler uses it.
        unsafe { Box::from_raw(self.region.as_ptr()) }
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
        let _held = WatchLock::new();
        // SAFETY: the lock is held to the end of this function.
        let written = unsafe {
            self.region().with(|subject| {
                write!(f, "{}", subject.san)?;
                subject.found.iter().try_for_each(|found| {
                    let finding = subject.san.findings().get(found.finding);
                    // The report has its findings in another order than they were made.
                    let position = subject.san.reports.position(found.finding);
                    write!(f, "\n\nfinding {}", position.unwrap_or(found.finding) + 1)?;
                    finding.map_or(Ok(()), |finding| write!(f, " ({})", finding.kind))?;
                    // The report has printed the callers, unless configured otherwise.
                    match finding.and_then(|finding| finding.trace.as_ref()) {
                        Some(trace) => {
                            let callers = trace.frames();
                            write!(f, ": {}", found.instruction(callers.first()))
                        }
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
