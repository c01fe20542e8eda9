//! The pages that are present in an address space, as `/proc/PID/pagemap` reports them.
//!
//! Pages that the kernel brings in on behalf of a program (direct I/O, `process_vm_writev`,
//! `userfaultfd`, core dumps, ...) raise no fault that a tracepoint reports. They are found at the
//! stops, with one call that looks at page tables only, whatever the areas' sizes (`PAGEMAP_SCAN`,
//! Linux 6.7). Older kernels do not find them. That call does not tell private pages of this space
//! alone from those that a fork shares: of private pages the words of `pagemap` are read, too.
use super::proc::{PAGE_SHIFT, USER_END};
use super::sys::{self, PageRegion};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Pages that were found present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentPages {
    pub(crate) start: u64,
    pub(crate) pages: u64,
    /// Private pages, as writes make them.
    pub(crate) private: bool,
    /// Private pages that no other space maps: they were written since the last fork.
    pub(crate) exclusive: bool,
    /// Mapped by entries of an upper level.
    pub(crate) huge: bool,
}

impl PresentPages {
    /// The bits of a page's number: the whole of the user addresses.
    const PAGE: u32 = 36;
    const EXCLUSIVE: u64 = 1 << 61;
    const PRIVATE: u64 = 1 << 62;
    const HUGE: u64 = 1 << 63;

    /// The most pages that one word holds.
    pub(crate) const LONGEST: u64 = (1 << 25) - 1;

    /// The pages as a word.
    pub(crate) fn word(self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = bit(self.exclusive, Self::EXCLUSIVE)
            | bit(self.private, Self::PRIVATE)
            | bit(self.huge, Self::HUGE);
        self.start | self.pages.min(Self::LONGEST) << Self::PAGE | flags
    }

    /// Decodes a word of [`PresentPages::word`].
    pub(crate) fn of(word: u64) -> Self {
        Self {
            start: word & ((1 << Self::PAGE) - 1),
            pages: word >> Self::PAGE & Self::LONGEST,
            private: word & Self::PRIVATE != 0,
            exclusive: word & Self::EXCLUSIVE != 0,
            huge: word & Self::HUGE != 0,
        }
    }

    /// Returns whether `next` is of the same kind as these pages, and follows them.
    pub(crate) fn continues(&self, next: &PresentPages) -> bool {
        self.start + self.pages == next.start
            && (self.private, self.exclusive, self.huge) == (next.private, next.exclusive, next.huge)
    }
}

/// Pages that were not written from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwritten {
    pub(crate) start: u64,
    pub(crate) pages: u64,
    pub(crate) since: u64,
}

/// Adds a run to others, and makes one of it and the last if it can.
fn add(found: &mut Vec<PresentPages>, next: PresentPages) {
    match found.last_mut() {
        Some(last) if last.continues(&next) && last.pages + next.pages <= PresentPages::LONGEST => {
            last.pages += next.pages;
        }
        _ => found.push(next),
    }
}

/// Adds a run that may be longer than a word can say.
fn add_in_parts(found: &mut Vec<PresentPages>, run: PresentPages) {
    let end = run.start + run.pages;
    let mut start = run.start;
    while start < end {
        let pages = (end - start).min(PresentPages::LONGEST);
        add(found, PresentPages { start, pages, ..run });
        start += pages;
    }
}

/// Set in the word of a page that only one space maps (Linux 4.2).
const MAPPED_ONCE: u64 = 1 << 56;

/// Adds a run of private pages, in parts that are exclusive or not. Pages whose words cannot be
/// read are not.
fn add_private(found: &mut Vec<PresentPages>, map: &File, run: PresentPages) {
    let mut words = [0; 512 * 8];
    let mut at = run.start;
    let end = run.start + run.pages;
    while at < end {
        let pages = (end - at).min(512);
        let words = &mut words[..pages as usize * 8];
        let read = map.read_at(words, at * 8).unwrap_or(0);
        words[read..].fill(0);
        let (words, _) = words.as_chunks::<8>();
        for part in words.chunk_by(|a, b| is_exclusive(a) == is_exclusive(b)) {
            let pages = part.len() as u64;
            add(found, PresentPages { start: at, pages, exclusive: is_exclusive(&part[0]), ..run });
            at += pages;
        }
    }
}

fn is_exclusive(word: &[u8; 8]) -> bool {
    u64::from_ne_bytes(*word) & MAPPED_ONCE != 0
}

/// The last page below the kernel's half is no program's, and the call refuses it.
const END: u64 = USER_END - (1 << PAGE_SHIFT);

/// Whether this kernel can tell which pages are present.
pub(crate) fn works() -> bool {
    let here = std::ptr::from_ref(&END) as u64 & !((1 << PAGE_SHIFT) - 1);
    present_in(std::process::id() as i32, here, here + (1 << PAGE_SHIFT)).is_some()
}

/// Returns the runs of all present pages, in order; no run if the kernel cannot tell.
pub(crate) fn present(pid: i32) -> Vec<PresentPages> {
    present_in(pid, 0, END).unwrap_or_default()
}

/// Returns the runs of all present pages, in order, or `None` if the kernel cannot tell. Private
/// pages are not looked at one by one: all of them count as exclusive.
pub(crate) fn present_privately(pid: i32) -> Option<Vec<PresentPages>> {
    present_privately_in_parts(pid, || {})
}

/// Returns the same runs, and calls `between` after each part of them.
pub(crate) fn present_privately_in_parts(pid: i32, between: impl FnMut()) -> Option<Vec<PresentPages>> {
    scan(pid, 0, END, false, between)
}

/// Returns the runs of present pages that nobody has written since they came, in order, as first
/// page and length: the zero page, and pages of files and of shared memory. No run if the kernel
/// cannot tell.
pub(crate) fn unwritten(pid: i32) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for found in present_privately(pid).unwrap_or_default().into_iter().filter(|found| !found.private) {
        match runs.last_mut() {
            Some((start, pages)) if *start + *pages == found.start => *pages += found.pages,
            _ => runs.push((found.start, found.pages)),
        }
    }
    runs
}

/// Returns the runs of present pages between two addresses, in order, or `None` if the kernel
/// cannot tell.
pub(crate) fn present_in(pid: i32, start: u64, last: u64) -> Option<Vec<PresentPages>> {
    scan(pid, start, last, true, || {})
}

/// Scans a range. If `words`, the word of each private page is read. `between` is called after each
/// part.
fn scan(
    pid: i32,
    start: u64,
    last: u64,
    words: bool,
    mut between: impl FnMut(),
) -> Option<Vec<PresentPages>> {
    let map = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let mut found: Vec<PresentPages> = Vec::new();
    let mut regions = [PageRegion::default(); 512];
    let mut at = start;
    while at < last {
        let (filled, end) = sys::scan_pages(&map, at, last, &mut regions).ok()?;
        between();
        for r in &regions[..filled] {
            let has = |category: u64| r.categories & category != 0;
            let file = has(PageRegion::FILE);
            let private = !file && !has(PageRegion::ZERO);
            let next = PresentPages {
                start: r.start >> PAGE_SHIFT,
                pages: (r.end - r.start) >> PAGE_SHIFT,
                private,
                exclusive: private && !words,
                huge: file && has(PageRegion::HUGE),
            };
            if private && words {
                add_private(&mut found, &map, next)
            } else {
                add_in_parts(&mut found, next)
            }
        }
        if end <= at || filled == 0 {
            break;
        }
        at = end;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_written_is_present() {
        let page = vec![1u8; 3 << PAGE_SHIFT];
        let inside = (page.as_ptr() as u64 >> PAGE_SHIFT) + 1;
        let found = present(std::process::id() as i32);
        // Kernels before 6.7 find no page.
        assert_eq!(works(), !found.is_empty());
        if works() {
            let run = found.iter().find(|f| (f.start..f.start + f.pages).contains(&inside));
            assert!(run.is_some_and(|f| f.private && f.exclusive && !f.huge));
            assert!(found.windows(2).all(|w| w[0].start + w[0].pages <= w[1].start));
        }
    }

    #[test]
    fn a_page_that_was_only_read_is_unwritten() {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let bytes = 3 << PAGE_SHIFT;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other, and only
        // this test uses it. The pages that are accessed are inside it.
        let (start, holds) = unsafe {
            let base = libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
            let byte = base.cast::<u8>();
            let sum = byte.read_volatile() + byte.add(1 << PAGE_SHIFT).read_volatile();
            byte.add(1 << PAGE_SHIFT).write_volatile(1);
            let runs = unwritten(std::process::id() as i32);
            let start = base as u64 >> PAGE_SHIFT;
            let holds = move |page: u64| runs.iter().any(|(at, pages)| (*at..at + pages).contains(&page));
            assert_eq!(sum, 0);
            libc::munmap(base, bytes);
            (start, holds)
        };
        if works() {
            assert_eq!([0, 1, 2].map(|n| holds(start + n)), [true, false, false]);
        }
    }

    #[test]
    fn a_page_that_a_child_maps_too_is_not_exclusive() {
        let page = vec![1u8; 3 << PAGE_SHIFT];
        let inside = (page.as_ptr() as u64 >> PAGE_SHIFT) + 1;
        let exclusive = || {
            let (start, end) = (inside << PAGE_SHIFT, (inside + 1) << PAGE_SHIFT);
            let found = present_in(std::process::id() as i32, start, end)?;
            Some(found.iter().all(|f| f.private && f.exclusive))
        };
        if !works() {
            return;
        }
        assert_eq!(exclusive(), Some(true));
        // SAFETY: the child makes system calls only: it waits to be killed.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: pause takes no argument.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0);
        let shared = exclusive();
        sys::kill(child, libc::SIGKILL);
        // SAFETY: the child is this process's, and no status is wanted.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(shared, Some(false));
    }

    #[test]
    fn long_runs_are_words_too() {
        let run = PresentPages { start: 9, pages: 0, private: true, exclusive: true, huge: false };
        let mut found = Vec::new();
        add_in_parts(&mut found, PresentPages { pages: 2 * PresentPages::LONGEST + 3, ..run });
        assert_eq!(
            found.iter().map(|f| PresentPages::of(f.word()).pages).sum::<u64>(),
            2 * PresentPages::LONGEST + 3
        );
        assert!(found.windows(2).all(|w| w[0].start + w[0].pages == w[1].start));
    }

    #[test]
    fn runs_become_words_and_come_back() {
        for bits in 0..8 {
            let has = |bit: u32| bits >> bit & 1 != 0;
            let found = PresentPages {
                start: 0x7_ffff_ffff,
                pages: PresentPages::LONGEST,
                private: has(0),
                exclusive: has(1),
                huge: has(2),
            };
            assert_eq!(PresentPages::of(found.word()), found);
        }
    }
}
