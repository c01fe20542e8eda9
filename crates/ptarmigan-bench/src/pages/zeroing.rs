//! Clears every page on allocation: for contenders that do not know whether pages are zero, and to
//! measure the value of that knowledge.
use std::num::NonZeroU64;

use super::contender::{PAGE, PageCase, PageContender, Pages};

/// A contender whose pages are cleared on allocation.
pub struct Zeroing<C> {
    name: &'static str,
    inner: C,
}

impl<C: PageContender> Zeroing<C> {
    /// Wraps `inner` under the name `name`. Its pages need not be zero; all other promises of
    /// [`Pages`] have to hold.
    pub fn new(name: &'static str, inner: C) -> Self {
        Zeroing { name, inner }
    }
}

/// One of its CPUs.
pub struct Cleared<P>(P);

impl<C: PageContender> PageContender for Zeroing<C> {
    type Cpu<'a>
        = Cleared<C::Cpu<'a>>
    where
        Self: 'a;

    fn name(&self) -> &'static str {
        self.name
    }

    fn cases(&self) -> &'static [PageCase] {
        self.inner.cases()
    }

    fn cpu(&self, n: usize) -> Result<Self::Cpu<'_>, String> {
        self.inner.cpu(n).map(Cleared)
    }

    fn finish(&self) -> Result<(), String> {
        self.inner.finish()
    }
}

// SAFETY: 1. and 2. as for the inner contender, except that pages need not be zero there: they are
// cleared here.
unsafe impl<P: Pages> Pages for Cleared<P> {
    #[inline]
    fn alloc(&mut self) -> Option<NonZeroU64> {
        let page = self.0.alloc()?;
        // SAFETY: the page is ours, 4096 bytes from that address on (promise 1 of `Pages`).
        unsafe { self.0.entries(page).cast::<u8>().write_bytes(0, PAGE) };
        Some(page)
    }

    #[inline]
    unsafe fn free(&mut self, page: NonZeroU64) {
        // SAFETY: 1. and 2. by the contract of this function.
        unsafe { self.0.free(page) }
    }

    #[inline]
    fn entries(&self, page: NonZeroU64) -> *mut u64 {
        self.0.entries(page)
    }
}
