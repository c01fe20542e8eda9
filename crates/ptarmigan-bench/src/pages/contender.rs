//! The interface of contenders, and the amount of work.
//!
//! A contender allocates and frees zeroed pages, one by one, on two CPUs at once. Loops, clock and
//! checks belong to the harness. They are compiled for each contender, so its calls are inlined as
//! in a kernel. A new contender is one `impl PageContender`, one `unsafe impl Pages` and an entry
//! in a list.
use std::num::NonZeroU64;

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Pages in the ring between two threads.
pub(super) const RING: usize = 1024;

/// The error when pages run out.
pub(super) fn short() -> String {
    "there are not enough pages".to_string()
}

/// The timed cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCase {
    /// One page, allocated and freed again and again.
    Pair,
    /// 512 pages allocated, then freed, the last one first.
    Batch,
    /// 4096 pages held; a random one of them is freed and replaced.
    Random,
    /// 64 MiB of pages allocated, then freed, the last one first.
    Large,
    /// Two threads with a CPU each, alternating pairs and batches.
    TwoThreads,
    /// One thread allocates pages, another one frees them.
    ProducerConsumer,
}

impl PageCase {
    /// Every case, in the order of running and printing.
    pub const ALL: [PageCase; 6] = [
        PageCase::Pair,
        PageCase::Batch,
        PageCase::Random,
        PageCase::Large,
        PageCase::TwoThreads,
        PageCase::ProducerConsumer,
    ];

    /// Returns the name in rows.
    pub fn name(self) -> &'static str {
        match self {
            PageCase::Pair => "pair",
            PageCase::Batch => "batch512",
            PageCase::Random => "random4096",
            PageCase::Large => "batch64m",
            PageCase::TwoThreads => "two-threads",
            PageCase::ProducerConsumer => "producer-consumer",
        }
    }
}

/// The work in one window of each case. The names of the cases describe [`Workload::FULL`].
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Windows in a round; their median is the round's value. One more window comes first and does
    /// not count.
    pub windows: usize,
    /// Pairs, and random replacements, per window.
    pub pairs: usize,
    /// Pages in a batch.
    pub batch: usize,
    /// Batches per window.
    pub batches: usize,
    /// Pages that the random case holds.
    pub held: usize,
    /// Pages in the large batch.
    pub large: usize,
    /// Pages passed from one thread to the other.
    pub passed: usize,
}

impl Workload {
    /// The work that the names of the cases describe.
    pub const FULL: Workload = Workload {
        windows: 5,
        pairs: 1 << 14,
        batch: 512,
        batches: 32,
        held: 4096,
        large: (64 << 20) / PAGE,
        passed: 1 << 14,
    };

    /// Returns the most pages that a case holds at once, with those in the ring between two
    /// threads.
    pub fn most(&self) -> usize {
        [self.held, self.large, 2 * self.batch, RING].into_iter().max().unwrap_or(0)
    }
}

/// An allocator under test.
pub trait PageContender: Sync {
    /// One of its CPUs, as used by the thread on it.
    type Cpu<'a>: Pages
    where
        Self: 'a;

    /// Returns the name in rows.
    fn name(&self) -> &'static str;

    /// Returns the cases that the contender supports.
    fn cases(&self) -> &'static [PageCase] {
        &PageCase::ALL
    }

    /// Makes the calling thread CPU `n`, 0 or 1, until the result is dropped.
    ///
    /// # Errors
    ///
    /// If that is impossible, for example because another thread is that CPU.
    fn cpu(&self, n: usize) -> Result<Self::Cpu<'_>, String>;

    /// Returns everything borrowed for the benchmark. Called once, after the last round.
    ///
    /// # Errors
    ///
    /// If something was lost.
    fn finish(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Allocation and freeing of pages on one CPU.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. For a page that [`alloc`](Self::alloc) returned, [`entries`](Self::entries) is the start of
///    4096 bytes, aligned to 4096. They are zero when the page is handed out, and only the page's
///    owner reads or writes them until it is freed.
/// 2. A page of one CPU may be used and freed on another CPU of the same contender.
pub unsafe trait Pages {
    /// Allocates a table page and returns the contender's own number for it, or `None` if no page
    /// is left. The caller owns the page.
    fn alloc(&mut self) -> Option<NonZeroU64>;

    /// Frees a page.
    ///
    /// # Safety
    ///
    /// 1. [`alloc`](Self::alloc) of this contender returned `page`, and the caller owns it and
    ///    gives it away.
    /// 2. All its bytes are zero.
    unsafe fn free(&mut self, page: NonZeroU64);

    /// Returns the address of the page's bytes.
    fn entries(&self, page: NonZeroU64) -> *mut u64;
}
