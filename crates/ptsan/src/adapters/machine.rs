//! The simulated machine that the crates run on.
use super::ahead::Ahead;
use super::backing::Backing;
use super::locked::locked;
use super::ram::{BASE, FRAME};
use crate::{Access, Config, Content, Expected, Fault, Flush, Memory, Sanitizer, Translation, Tree};
use std::fmt;
use std::sync::{Arc, Mutex};

/// The content of every word of a frame that is allocated with unknown content. As an x86 entry, it
/// is a large writable user page of foreign memory at every level. No code under test writes it by
/// chance.
pub const OLD_ENTRY: u64 = 0x0005_5540_0000_00e7;

/// Simulated memory, CPUs and an allocator of table frames under a sanitizer.
///
/// A handle: clones share the machine. Frames are allocated from [`BASE`] upwards, and the one
/// freed last is allocated first. The crate under test may store through pointers into the memory
/// from one thread at a time.
#[derive(Clone)]
pub struct Machine(Arc<MachineState>);

struct MachineState {
    backing: Backing,
    /// Free frames. The last is allocated next.
    free: Mutex<Vec<u64>>,
    ahead: Ahead,
}

impl Machine {
    /// Creates a machine with 1024 frames.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_frames(config, 1024)
    }

    /// Creates a machine with `frames` frames of 4 KiB.
    ///
    /// Sets [`Config::infer_leftovers`]: because of [`OLD_ENTRY`] it need not be guessed.
    #[must_use]
    pub fn with_frames(config: Config, frames: usize) -> Self {
        let san = Sanitizer::new(Config { infer_leftovers: true, ..config });
        Self::over(Backing::plain(frames, san), frames, Ahead::default())
    }

    /// Creates a machine with `frames` frames of 4 KiB of which every store is seen while
    /// [`Machine::run`] runs the code under test. Walkers that walk ahead do so after each store.
    ///
    /// # Errors
    /// As [`crate::watch::Watch::with_start`], mainly on hosts where stores cannot be watched.
    #[cfg(feature = "watch")]
    pub fn watched(config: Config, frames: usize) -> Result<Self, crate::watch::Error> {
        let san = Sanitizer::new(Config { infer_leftovers: true, ..config });
        let watch = crate::watch::Watch::with_start(BASE, frames * FRAME as usize, san)?;
        let ahead = Ahead::default();
        let walkers = ahead.clone();
        watch.on_store(move |san, memory, _| walkers.walk(san, memory));
        Ok(Self::over(Backing::Watched(watch), frames, ahead))
    }

    fn over(backing: Backing, frames: usize, ahead: Ahead) -> Self {
        let free = Mutex::new((0..frames as u64).rev().map(|n| BASE + n * FRAME).collect());
        Self(Arc::new(MachineState { backing, free, ahead }))
    }

    /// Runs the code under test. If the machine is [`Machine::watched`], each store is seen.
    ///
    /// # Errors
    /// Returns an error if the system cannot protect the memory. The code did not run then.
    #[cfg(feature = "watch")]
    pub fn run<R>(&self, code: impl FnOnce() -> R) -> Result<R, crate::watch::Error> {
        match &self.0.backing {
            Backing::Plain { .. } => Ok(code()),
            Backing::Watched(watch) => watch.run(code),
        }
    }

    /// Returns the instructions at which the stores of [`Machine::run`] led to findings. Each is
    /// returned once.
    #[cfg(feature = "watch")]
    #[must_use]
    pub fn found(&self) -> Vec<crate::watch::FoundAt> {
        match &self.0.backing {
            Backing::Plain { .. } => Vec::new(),
            Backing::Watched(watch) => watch.found(),
        }
    }

    /// Runs `body` on the sanitizer and the memory that it reads. `body` must not call the machine.
    pub fn sanitizer<R>(&self, body: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        self.0.backing.with(body)
    }

    /// Lets the walkers that walk ahead walk, then runs `body`.
    fn hook<R>(&self, body: impl FnOnce(&mut Sanitizer, &dyn Memory) -> R) -> R {
        self.sanitizer(|san, memory| {
            self.0.ahead.walk(san, memory);
            body(san, memory)
        })
    }

    fn walkers_walk(&self) {
        self.hook(|_, _| ());
    }

    /// Allocates a frame as a table and returns its physical address, or `None` if all are in use.
    /// [`Content::Zero`] clears it, otherwise it is full of [`OLD_ENTRY`].
    #[must_use]
    pub fn allocate(&self, content: Content) -> Option<u64> {
        let frame = locked(&self.0.free).pop()?;
        self.0.backing.fill(frame, if content == Content::Zero { 0 } else { OLD_ENTRY });
        self.sanitizer(|san, memory| san.table_allocated(memory, frame, FRAME, None, content));
        self.walkers_walk();
        Some(frame)
    }

    /// Allocates `frames` neighbouring frames as one table whose first address is a multiple of
    /// `align`.
    #[must_use]
    pub fn allocate_run(&self, frames: u64, align: u64) -> Option<u64> {
        if frames == 1 && align <= FRAME {
            return self.allocate(Content::Unknown);
        }
        let align = align.max(FRAME);
        let run = |start: u64| (start..start.saturating_add(frames * FRAME)).step_by(FRAME as usize);
        let start = {
            let mut free = locked(&self.0.free);
            let fits = |&start: &u64| start.is_multiple_of(align) && run(start).all(|f| free.contains(&f));
            let start = free.iter().copied().filter(fits).min()?;
            free.retain(|f| !(start..start + frames * FRAME).contains(f));
            start
        };
        run(start).for_each(|f| self.0.backing.fill(f, OLD_ENTRY));
        let bytes = frames * FRAME;
        self.sanitizer(|san, memory| san.table_allocated(memory, start, bytes, None, Content::Unknown));
        self.walkers_walk();
        Some(start)
    }

    /// Frees a table of `bytes` bytes: from now on it may be allocated again.
    pub fn free(&self, table: u64, bytes: u64) {
        self.hook(|san, memory| san.table_freed(memory, table, bytes));
        let mut free = locked(&self.0.free);
        for frame in (table..table + bytes).step_by(FRAME as usize) {
            // A table that is no frame, or is free already, has just been reported.
            if self.0.backing.pointer(frame).is_some() && !free.contains(&frame) {
                free.push(frame);
            }
        }
    }

    /// Makes `frame` the next one to be allocated, if it is free.
    pub fn hand_out_next(&self, frame: u64) {
        let mut free = locked(&self.0.free);
        if let Some(at) = free.iter().position(|&f| f == frame) {
            free.remove(at);
            free.push(frame);
        }
    }

    /// Returns where the byte at physical address `phys` is, for the crate under test.
    ///
    /// # Panics
    /// Panics if there is no memory: code under test that follows a wrong entry stops here, with
    /// the report so far.
    #[must_use]
    pub fn pointer(&self, phys: u64) -> *mut u8 {
        self.walkers_walk();
        match self.0.backing.pointer(phys) {
            Some(pointer) => pointer,
            None => panic!("the code under test reaches for {phys:#x}, outside memory\n{self}"),
        }
    }

    /// Returns the physical address behind a pointer made by [`Machine::pointer`], or `None` for
    /// others.
    #[must_use]
    pub fn phys(&self, pointer: *const u8) -> Option<u64> {
        self.0.backing.phys(pointer)
    }

    /// Loads a root on the CPU, which runs in `space` from now on: [`Sanitizer::switch`].
    pub fn load(&self, cpu: usize, root: u64, space: u64) {
        self.sanitizer(|san, memory| san.switch(memory, cpu, root, space));
    }

    /// Makes the CPU keep the root loaded without using it: [`Sanitizer::lazy`].
    pub fn lazy(&self, cpu: usize) {
        self.sanitizer(|san, _| san.lazy(cpu));
    }

    /// Loads a root of the kernel alone on the CPU: [`Sanitizer::leave`].
    pub fn leave(&self, cpu: usize) {
        self.sanitizer(|san, _| san.leave(cpu));
    }

    /// Accesses memory through the page tables: [`Sanitizer::translate`].
    ///
    /// # Errors
    /// Returns the fault that the access raises.
    pub fn access(&self, cpu: usize, va: u64, access: Access) -> Result<Translation, Fault> {
        self.sanitizer(|san, memory| san.translate(memory, cpu, va, access))
    }

    /// Compares the answer of the code under test about an address, in the space that the CPU runs,
    /// with the tables: [`Sanitizer::expect`].
    pub fn expect(&self, cpu: usize, va: u64, says: Option<Expected>) {
        self.sanitizer(|san, memory| _ = san.expect(memory, Tree::Cpu(cpu), va, says));
    }

    /// Makes the CPU's walker also walk for `va` by itself, whenever the code under test calls a
    /// hook: the allocator, the frame-to-pointer function, a flush. Hardware may do so while a root
    /// is loaded: a mispredicted branch or a prefetch is enough.
    pub fn walk_ahead(&self, cpu: usize, va: u64) {
        self.0.ahead.add(cpu, va);
    }

    /// Makes walkers walk for accesses only.
    pub fn walk_ahead_no_more(&self) {
        self.0.ahead.clear();
    }

    /// Carries out the flush on every CPU.
    pub fn flush_everywhere(&self, flush: Flush) {
        self.hook(|san, memory| san.flush_everywhere(memory, flush));
        self.walkers_walk();
    }

    /// Drops on every CPU the translations of `va` in the space that it runs, or all of that space.
    pub fn flush_loaded(&self, va: Option<u64>) {
        self.hook(|san, memory| {
            for cpu in 0..san.config.cpus {
                let Some(loaded) = san.cpus[cpu].loaded else { continue };
                let flush = va.map_or(Flush::space(loaded.space), |va| Flush::page(loaded.space, va));
                san.flush(memory, cpu, flush);
            }
        });
        self.walkers_walk();
    }

    /// Ends the run: [`Sanitizer::finish`].
    pub fn finish(&self) {
        self.sanitizer(|san, _| san.finish());
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sanitizer(|san, _| fmt::Display::fmt(san, f))
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sanitizer(|san, _| fmt::Debug::fmt(san, f))
    }
}
