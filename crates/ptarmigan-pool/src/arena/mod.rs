//! The memory of a pool: one block of address space for all pages, the advice that the host gets
//! about it, and the return of memory.
mod bind;
mod bits;
mod guard;
mod map;

pub(super) use map::Map;
pub use map::RawPage;

use self::bits::Bits;
use self::guard::Guards;
use super::config::{Bind, HUGE, HugePages};
use super::error::{PoolError, Refusal};
use crate::mapping::Mapping;
use ptarmigan::addr::FRAME_SIZE;
use rustix::mm::{Advice, madvise};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The configuration of an arena.
pub(super) struct ArenaShape<'a> {
    pub pages_per_node: usize,
    /// Bytes of a page, and of the gap below each.
    pub size: usize,
    pub gap: usize,
    /// Whether the gaps are guards.
    pub guarded: bool,
    /// Whether pages that are kept as addresses are known.
    pub tracked: bool,
    pub huge: HugePages,
    pub bind: Bind,
    /// By node of the pool: its number on the host.
    pub nodes: &'a [usize],
}

/// A block of memory of the host's for all pages; gone when dropped.
pub(super) struct Arena {
    map: Map,
    pages: usize,
    guards: Option<Guards>,
    /// Pages that are kept as addresses.
    kept: Option<Bits>,
    /// Regions that exist: no memory goes back. Held for reading while memory goes back.
    fixed: RwLock<usize>,
    /// Whether the memory stays when the arena goes.
    stays: AtomicBool,
    mapping: ManuallyDrop<Mapping>,
}

/// The outcome for memory that was to go back.
#[derive(Default)]
pub(super) struct GivenBack {
    pub pages: usize,
    pub calls: usize,
    /// The last refusal.
    pub refused: Option<Refusal>,
}

fn no_memory(what: &str) -> PoolError {
    PoolError::Host(format!("the host has no memory for {what}"))
}

impl Arena {
    /// Makes memory for the pages of all nodes, all zero. Refusals of huge pages and of nodes that
    /// are only preferred go to `refused`.
    pub fn new(shape: &ArenaShape<'_>, mut refused: impl FnMut(Refusal)) -> Result<Self, PoolError> {
        let &ArenaShape { pages_per_node, size, gap, huge, .. } = shape;
        let stride = size + gap;
        let pages = pages_per_node * shape.nodes.len();
        let len = pages * stride;
        let align = if gap == 0 && size.is_power_of_two() {
            size
        } else if stride.is_multiple_of(HUGE) && size.is_multiple_of(HUGE) {
            HUGE
        } else {
            rustix::param::page_size()
        };
        let mapping = Mapping::new(len + align).map_err(|e| {
            let advice = "ask for less capacity, or raise the limit of address space (ulimit -v)";
            PoolError::Refused(Refusal::new("mmap", 0, len + align, e.raw_os_error(), advice))
        })?;
        // SAFETY: the gap of the first page lies within the mapping.
        let first = unsafe { mapping.base().add(gap) };
        // SAFETY: the mapping is `align` bytes longer than all pages and their gaps.
        let base = unsafe { first.add(first.as_ptr().align_offset(align)) };
        let map = Map::new(base, size, gap);
        // SAFETY: as above.
        let start = unsafe { base.sub(gap) };
        let is_huge = match huge {
            HugePages::BySize => size >= HUGE,
            HugePages::Advise => true,
            HugePages::Avoid => false,
        };
        // Without, a page occupies only the 4 KiB pieces that were touched.
        let advice = if is_huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range lies in this mapping; the advice does not change its content.
        let advised = unsafe { madvise(start.as_ptr().cast(), len, advice) };
        if let (Err(e), HugePages::Advise) = (advised, huge) {
            let advice = "the kernel was built without transparent huge pages, or does not allow them here";
            let (at, e) = (start.addr().get(), e.raw_os_error());
            refused(Refusal::new("madvise(MADV_HUGEPAGE)", at, len, e, advice));
        }
        for (n, node) in shape.nodes.iter().enumerate() {
            // SAFETY: the part of a node lies in the mapping.
            let part = unsafe { start.add(n * pages_per_node * stride) };
            // SAFETY: 1. it is a part of a new mapping, and pages, gaps and the alignment are
            // multiples of the host's pages.
            match unsafe { bind::bind(part, pages_per_node * stride, *node, shape.bind) } {
                Err(e) if shape.bind == Bind::Strict => return Err(PoolError::Refused(e)),
                Err(e) => refused(e),
                Ok(()) => {}
            }
        }
        let guards = match shape.guarded {
            true => Some(Guards::new(pages).ok_or_else(|| no_memory("a pool's guards"))?),
            false => None,
        };
        let kept = match shape.tracked {
            true => Some(Bits::new(pages).ok_or_else(|| no_memory("the addresses of a pool"))?),
            false => None,
        };
        Ok(Arena {
            map,
            pages,
            guards,
            kept,
            fixed: RwLock::new(0),
            stays: AtomicBool::new(false),
            mapping: ManuallyDrop::new(mapping),
        })
    }

    #[inline]
    pub fn map(&self) -> Map {
        self.map
    }

    /// Puts the guard below a page in place, if the pool has guards.
    ///
    /// # Errors
    ///
    /// The host's refusal; the memory is unchanged then.
    ///
    /// # Safety
    ///
    /// 1. `page` must be a page of this arena, and the caller owns it.
    pub unsafe fn guard(&self, page: RawPage) -> Result<(), Refusal> {
        let Some(guards) = &self.guards else { return Ok(()) };
        // SAFETY: 1. and 2. by the caller, and the guards were made for all pages of the map.
        unsafe { guards.install(self.map, page) }
    }

    /// Notes that a page is, or is no longer, kept as an address, in pools that track these.
    /// Returns whether it was, `None` in other pools.
    pub fn keep(&self, page: RawPage, kept: bool) -> Option<bool> {
        self.kept.as_ref().map(|bits| bits.replace(self.map.number(page.base()), kept))
    }

    /// Returns the number of the page at `base`, if there is one.
    pub fn find(&self, base: std::ptr::NonNull<u8>) -> Option<usize> {
        self.map.find(base, self.pages)
    }

    /// From now on the memory stays until the process ends, whatever becomes of the arena.
    pub fn stay(&self) {
        self.stays.store(true, Relaxed);
    }

    /// Returns whether the memory stays until the process ends.
    pub fn stays(&self) -> bool {
        self.stays.load(Relaxed)
    }

    /// From now on no memory goes back to the host, until [`unfix`](Self::unfix) is called as
    /// often. Waits for memory that goes back now.
    pub fn fix(&self) {
        *self.fixed.write().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Undoes [`fix`](Self::fix).
    pub fn unfix(&self) {
        *self.fixed.write().unwrap_or_else(PoisonError::into_inner) -= 1;
    }

    /// Returns whether no memory goes back to the host now.
    pub fn is_fixed(&self) -> bool {
        *self.lock_fixed() > 0
    }

    fn lock_fixed(&self) -> RwLockReadGuard<'_, usize> {
        self.fixed.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory of pages back to the host, with one call for each run of neighbours. They
    /// are zero then, as far as their first `needed` bytes. Memory that the host does not take
    /// (locked memory, say), or that is [fixed](Self::fix), is cleared so far instead.
    ///
    /// # Safety
    ///
    /// 1. `numbers` must be numbers of pages of this arena, each once, readable and writable, and
    ///    the caller owns them.
    pub unsafe fn give_back(&self, numbers: &mut [u32], needed: usize) -> GivenBack {
        let give_back_run = |run: &[u32]| {
            let at = self.map.nth(run.first().map_or(0, |n| *n as usize)).base();
            let len = (run.len() * (self.map.size() + self.map.gap())).saturating_sub(self.map.gap());
            // SAFETY: the pages, and the gaps between them, lie in the arena, which is private
            // anonymous memory; the pages are the caller's (1.), and guards stay where they are.
            unsafe { madvise(at.as_ptr().cast(), len, Advice::LinuxDontNeed) }.map_err(|e| {
                let advice = "it is cleared and stays; memory that is locked does not go back";
                Refusal::new("madvise(MADV_DONTNEED)", at.addr().get(), len, e.raw_os_error(), advice)
            })
        };
        let clear = |number: u32| {
            let page = self.map.nth(number as usize);
            // SAFETY: the caller's, and writable (1.).
            unsafe { page.base().as_ptr().write_bytes(0, needed.min(page.size())) };
        };
        let mut all = GivenBack::default();
        // To the end: a kernel must not be told of memory that is about to go.
        let fixed = self.lock_fixed();
        if *fixed > 0 {
            numbers.iter().copied().for_each(clear);
            return all;
        }
        numbers.sort_unstable();
        for run in numbers.chunk_by(|a, b| a + 1 == *b) {
            all.calls += 1;
            let refused = match give_back_run(run) {
                Ok(()) => {
                    all.pages += run.len();
                    continue;
                }
                Err(refused) => refused,
            };
            all.refused = Some(refused);
            for one in run {
                // A part of the run may go.
                if run.len() > 1 && give_back_run(&[*one]).is_ok() {
                    (all.pages, all.calls) = (all.pages + 1, all.calls + 1);
                } else {
                    clear(*one);
                }
            }
        }
        all
    }

    /// Returns the bytes of the arena that take memory of the host.
    ///
    /// # Errors
    ///
    /// The host's refusal.
    pub fn resident(&self) -> Result<usize, Refusal> {
        let (host_page, gap) = (rustix::param::page_size(), self.map.gap());
        let mut at = self.map.nth(0).base().addr().get() - gap;
        let end = at + self.pages * (self.map.size() + gap);
        let mut pages = 0;
        let mut there = [0_u8; FRAME_SIZE];
        while at < end {
            let len = (end - at).min(there.len() * host_page);
            let start = std::ptr::without_provenance_mut(at);
            // SAFETY: the range is mapped, and there is a byte for each of its pages.
            if unsafe { libc::mincore(start, len, there.as_mut_ptr().cast()) } != 0 {
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM);
                return Err(Refusal::new("mincore", at, len, errno, "the host does not tell; try again"));
            }
            pages += there[..len / host_page].iter().filter(|page| **page & 1 == 1).count();
            at += len;
        }
        Ok(pages * host_page)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if !*self.stays.get_mut() {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.mapping) };
        }
    }
}
