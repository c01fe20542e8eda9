//! What a contender has to do, and how much of it is asked for.
//!
//! A contender hands out pages that are all zero and takes them back all zero, one by one, on two CPUs at once. That is
//! all: loops, clock and checks are the harness's, compiled anew for each contender so that its calls are inlined as they
//! would be in a kernel. A new one is one `impl PageContender`, one `unsafe impl Pages` and a line in a field.
use std::num::NonZeroU64;

/// Bytes in a page.
pub const PAGE: usize = 4096;
/// Pages that the ring between two threads holds.
pub(super) const RING: usize = 1024;

/// Why a case broke off.
pub(super) fn short() -> String {
    "there are not enough pages".to_string()
}

/// The timed cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCase {
    /// A page taken and given back, again and again.
    Pair,
    /// 512 pages taken, then given back, the last one first.
    Batch,
    /// 4096 pages held; one of them, chosen at random, given back and another one taken for it.
    Random,
    /// 64 MiB of pages taken, then given back, the last one first.
    Large,
    /// Two threads, each with a CPU to itself, that do pairs and batches by turns.
    TwoThreads,
    /// One thread takes pages, another one gives them back.
    ProducerConsumer,
}

impl PageCase {
    /// Every case, in the order they are run and printed.
    pub const ALL: [PageCase; 6] = [
        PageCase::Pair,
        PageCase::Batch,
        PageCase::Random,
        PageCase::Large,
        PageCase::TwoThreads,
        PageCase::ProducerConsumer,
    ];

    /// The name in rows.
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

/// How much of each case is done between two looks at the clock. The names of cases are those of the full sizes.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Looks at the clock in a round, whose median is the round's value; one more goes before and does not count.
    pub windows: usize,
    /// Pairs, and random exchanges.
    pub pairs: usize,
    /// Pages in a batch.
    pub batch: usize,
    /// Batches.
    pub batches: usize,
    /// Pages that the random case holds.
    pub held: usize,
    /// Pages of the large batch.
    pub large: usize,
    /// Pages that go from one thread to the other.
    pub passed: usize,
}

impl Workload {
    /// What the names of the cases say.
    pub const FULL: Workload = Workload {
        windows: 5,
        pairs: 1 << 14,
        batch: 512,
        batches: 32,
        held: 4096,
        large: (64 << 20) / PAGE,
        passed: 1 << 14,
    };

    /// The most pages that a case has out at once, those in the ring between two threads included.
    pub fn most(&self) -> usize {
        [self.held, self.large, 2 * self.batch, RING].into_iter().max().unwrap_or(0)
    }
}

/// Whoever hands pages out.
pub trait PageContender: Sync {
    /// One of its CPUs, as the thread sees it that is this CPU.
    type Cpu<'a>: Pages
    where
        Self: 'a;

    /// The name in rows.
    fn name(&self) -> &'static str;

    /// The cases it takes part in.
    fn cases(&self) -> &'static [PageCase] {
        &PageCase::ALL
    }

    /// Makes the calling thread CPU `n`, 0 or 1, until the result is dropped.
    ///
    /// # Errors
    ///
    /// Why that cannot be, for instance because another thread is that CPU.
    fn cpu(&self, n: usize) -> Result<Self::Cpu<'_>, String>;

    /// Called once, after the last round: everything that was borrowed for the benchmark goes back.
    ///
    /// # Errors
    ///
    /// What did not come back.
    fn finish(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Pages, handed out and taken back by one CPU.
///
/// # Safety
///
/// An implementation promises:
///
/// 1. [`entries`](Self::entries) of a page that [`alloc`](Self::alloc) returned is the start of 4096 bytes, aligned to
///    4096, all zero when they are handed out, that nobody but the page's owner reads or writes until it is given back.
/// 2. A page of one CPU may be used and given back on another CPU of the same contender.
pub unsafe trait Pages {
    /// A page for a table, in the contender's own numbers; `None` if there is none left. The caller owns it.
    fn alloc(&mut self) -> Option<NonZeroU64>;

    /// Takes a page back.
    ///
    /// # Safety
    ///
    /// 1. [`alloc`](Self::alloc) of this contender returned `page`, and the caller owns it and gives it away.
    /// 2. All its bytes are zero.
    unsafe fn free(&mut self, page: NonZeroU64);

    /// The bytes of a page.
    fn entries(&self, page: NonZeroU64) -> *mut u64;
}
