//! Other people's page-table crates under the sanitizer, each behind the cargo feature of its name.
//!
//! A [`Machine`] is simulated physical memory, an allocator of table frames and a [`Sanitizer`] in one; the module of a
//! crate implements that crate's traits on it. What is left to write is what a kernel would do: load the root
//! ([`Machine::load`]), access memory ([`Machine::access`]), and forward the flushes that the crate asks for.
//!
//! Three rules make a finding the crate's and not the test's:
//!
//! * a frame is handed out full of old entries ([`OLD_ENTRY`]) unless the crate's contract asks the allocator for zeroes;
//! * a flush is carried out on every CPU at the moment at which the crate asks for it: nobody forgets a shootdown;
//! * [`Machine::walk_ahead`] names addresses that a CPU's walker may walk for by itself, and it does so whenever the
//!   crate calls a hook, as hardware may between any two instructions.
#[cfg(feature = "aarch64-paging")]
pub mod aarch64_paging;
mod current;
#[cfg(feature = "page-table-generic")]
pub mod page_table_generic;
#[cfg(feature = "page_table_multiarch")]
pub mod page_table_multiarch;
mod ram;
#[cfg(feature = "x86_64")]
pub mod x86_64;

use crate::{Access, Config, Content, Expected, Fault, Flush, Sanitizer, Translation, Tree};
pub use current::{Current, current};
use ram::Ram;
pub use ram::{BASE, FRAME};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What every word of a frame holds when it is handed out with unknown content: as an entry of x86 it is a large
/// writable user page of somebody else's memory at every level, and no code under test writes it by chance.
pub const OLD_ENTRY: u64 = 0x0005_5540_0000_00e7;

/// Simulated memory, CPUs and an allocator of table frames under a sanitizer.
///
/// A handle: clones stand for the same machine. Frames are handed out from [`BASE`] upwards, one given back last comes
/// first. One thread at a time may use a machine and what points into its memory.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

struct Inner {
    ram: Ram,
    state: Mutex<State>,
}

struct State {
    san: Sanitizer,
    /// The next to hand out is last.
    free: Vec<u64>,
    /// What each walker walks for by itself: CPU and address.
    ahead: Vec<(usize, u64)>,
}

impl Machine {
    /// A machine with 1024 frames.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_frames(config, 1024)
    }

    /// A machine with `frames` frames of 4 KiB.
    ///
    /// [`Config::infer_leftovers`] is set: because of [`OLD_ENTRY`] nothing has to be guessed.
    #[must_use]
    pub fn with_frames(config: Config, frames: usize) -> Self {
        let san = Sanitizer::new(Config { infer_leftovers: true, ..config });
        let free = (0..frames as u64).rev().map(|n| BASE + n * FRAME).collect();
        let state = Mutex::new(State { san, free, ahead: Vec::new() });
        Self(Arc::new(Inner { ram: Ram::new(frames), state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere may still want its report.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `body` on the sanitizer and the memory that it reads. `body` must not call the machine.
    pub fn sanitizer<R>(&self, body: impl FnOnce(&mut Sanitizer, &dyn crate::Memory) -> R) -> R {
        body(&mut self.state().san, &self.0.ram)
    }

    /// Hands out a frame as a table: its physical address, or `None` if there is none left. [`Content::Zero`] clears it,
    /// otherwise it is full of [`OLD_ENTRY`].
    #[must_use]
    pub fn allocate(&self, content: Content) -> Option<u64> {
        let state = &mut *self.state();
        let frame = state.free.pop()?;
        self.0.ram.fill(frame, if content == Content::Zero { 0 } else { OLD_ENTRY });
        state.san.table_allocated(&self.0.ram, frame, FRAME, None, content);
        state.walk_ahead(&self.0.ram);
        Some(frame)
    }

    /// Hands out `frames` neighbouring frames as one table whose first address is a multiple of `align`.
    #[must_use]
    pub fn allocate_run(&self, frames: u64, align: u64) -> Option<u64> {
        if frames == 1 && align <= FRAME {
            return self.allocate(Content::Unknown);
        }
        let state = &mut *self.state();
        let end = BASE + self.0.ram.frames() as u64 * FRAME;
        let align = align.max(FRAME);
        let run = |start: u64| (0..frames).map(move |n| start + n * FRAME);
        let start = (BASE.next_multiple_of(align)..end)
            .step_by(usize::try_from(align).ok()?)
            .find(|&start| run(start).all(|f| state.free.contains(&f)))?;
        state.free.retain(|f| !(start..start + frames * FRAME).contains(f));
        run(start).for_each(|f| self.0.ram.fill(f, OLD_ENTRY));
        state.san.table_allocated(&self.0.ram, start, frames * FRAME, None, Content::Unknown);
        state.walk_ahead(&self.0.ram);
        Some(start)
    }

    /// Takes a table of `bytes` bytes back; from now on it may be handed out again.
    pub fn free(&self, table: u64, bytes: u64) {
        let state = &mut *self.state();
        state.walk_ahead(&self.0.ram);
        state.san.table_freed(&self.0.ram, table, bytes);
        for frame in (table..table + bytes).step_by(FRAME as usize) {
            // What is no frame or free already has just been reported.
            if self.0.ram.pointer(frame).is_some() && !state.free.contains(&frame) {
                state.free.push(frame);
            }
        }
    }

    /// Makes `frame` the one that is handed out next, if it is free.
    pub fn hand_out_next(&self, frame: u64) {
        let state = &mut *self.state();
        if let Some(at) = state.free.iter().position(|&f| f == frame) {
            state.free.remove(at);
            state.free.push(frame);
        }
    }

    /// Where the byte at physical address `phys` is, for the crate under test.
    ///
    /// # Panics
    /// If there is no memory: code under test that follows a wrong entry stops here, with the report so far.
    #[must_use]
    pub fn pointer(&self, phys: u64) -> *mut u8 {
        let state = &mut *self.state();
        state.walk_ahead(&self.0.ram);
        match self.0.ram.pointer(phys) {
            Some(pointer) => pointer,
            None => panic!("the code under test reaches for {phys:#x}, outside memory\n{}", state.san),
        }
    }

    /// The physical address behind a pointer made by [`Machine::pointer`], `None` for others.
    #[must_use]
    pub fn phys(&self, pointer: *const u8) -> Option<u64> {
        self.0.ram.phys(pointer)
    }

    /// The CPU loads a root and runs in `space`: [`Sanitizer::switch`].
    pub fn load(&self, cpu: usize, root: u64, space: u64) {
        self.state().san.switch(&self.0.ram, cpu, root, space);
    }

    /// The CPU goes on with the root loaded but without using it: [`Sanitizer::lazy`].
    pub fn lazy(&self, cpu: usize) {
        self.state().san.lazy(cpu);
    }

    /// The CPU loads a root of the kernel alone: [`Sanitizer::leave`].
    pub fn leave(&self, cpu: usize) {
        self.state().san.leave(cpu);
    }

    /// An access through the page tables: [`Sanitizer::translate`].
    ///
    /// # Errors
    /// The fault that it raises.
    pub fn access(&self, cpu: usize, va: u64, access: Access) -> Result<Translation, Fault> {
        self.state().san.translate(&self.0.ram, cpu, va, access)
    }

    /// Compares what the code under test says about an address, in the space that the CPU runs, with what the tables say:
    /// [`Sanitizer::expect`].
    pub fn expect(&self, cpu: usize, va: u64, says: Option<Expected>) {
        let _ = self.state().san.expect(&self.0.ram, Tree::Cpu(cpu), va, says);
    }

    /// From now on the CPU's walker also walks for `va` by itself, whenever the code under test calls a hook: the
    /// allocator, the frame-to-pointer function, a flush. It may, as long as it has a root loaded; a branch
    /// predicted wrongly or a prefetch is enough.
    pub fn walk_ahead(&self, cpu: usize, va: u64) {
        self.state().ahead.push((cpu, va));
    }

    /// Walkers walk for accesses only again.
    pub fn walk_ahead_no_more(&self) {
        self.state().ahead.clear();
    }

    /// Every CPU carries out the flush.
    pub fn flush_everywhere(&self, flush: Flush) {
        let state = &mut *self.state();
        state.walk_ahead(&self.0.ram);
        state.san.flush_everywhere(&self.0.ram, flush);
        state.walk_ahead(&self.0.ram);
    }

    /// Every CPU drops what it holds for `va` in the space that it runs, or all of that space.
    pub fn flush_loaded(&self, va: Option<u64>) {
        let state = &mut *self.state();
        state.walk_ahead(&self.0.ram);
        for cpu in 0..state.san.cpus.len() {
            let Some(loaded) = state.san.cpus[cpu].loaded else { continue };
            let flush = va.map_or(Flush::space(loaded.space), |va| Flush::page(loaded.space, va));
            state.san.flush(&self.0.ram, cpu, flush);
        }
        state.walk_ahead(&self.0.ram);
    }

    /// The run is over: [`Sanitizer::finish`].
    pub fn finish(&self) {
        self.state().san.finish();
    }
}

impl State {
    fn walk_ahead(&mut self, ram: &Ram) {
        for &(cpu, va) in &self.ahead {
            if self.san.cpus.get(cpu).is_some_and(|c| c.loaded.is_some()) {
                self.san.probe_walk(ram, cpu, va);
            }
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().san.fmt(f)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().san.fmt(f)
    }
}
