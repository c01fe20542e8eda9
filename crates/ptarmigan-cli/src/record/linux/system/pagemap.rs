//! The pages that are present in an address space, as `/proc/PID/pagemap` reports them.
//!
//! Pages that the kernel brings in on behalf of a program (direct I/O, `process_vm_writev`,
//! `userfaultfd`, core dumps, ...) raise no fault that a tracepoint reports. They are found at the
//! stops, with one call that looks at page tables only, whatever the areas' sizes (`PAGEMAP_SCAN`,
//! Linux 6.7). Older kernels find nothing.
use super::proc::{PAGE_SHIFT, USER_END};
use super::sys::{self, PageRegion};
use std::fs::File;

/// Pages that were found present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) start: u64,
    pub(crate) pages: u64,
    /// Private pages, as writes make them.
    pub(crate) private: bool,
    /// Mapped by entries of an upper level.
    pub(crate) huge: bool,
}

impl Found {
    /// The bits of a page's number: the whole of the user addresses.
    const PAGE: u32 = 36;
    const PRIVATE: u64 = 1 << 62;
    const HUGE: u64 = 1 << 63;

    /// The most pages that one word holds.
    pub(crate) const LONGEST: u64 = (1 << 26) - 1;

    /// The pages as a word.
    pub(crate) fn word(self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let flags = bit(self.private, Self::PRIVATE) | bit(self.huge, Self::HUGE);
        self.start | self.pages.min(Self::LONGEST) << Self::PAGE | flags
    }

    /// What [`Found::word`] made.
    pub(crate) fn of(word: u64) -> Self {
        Self {
            start: word & ((1 << Self::PAGE) - 1),
            pages: word >> Self::PAGE & Self::LONGEST,
            private: word & Self::PRIVATE != 0,
            huge: word & Self::HUGE != 0,
        }
    }
}

/// The last page below the kernel's half is no program's, and the call refuses it.
const END: u64 = USER_END - (1 << PAGE_SHIFT);

/// Whether this kernel can tell which pages are present.
pub(crate) fn works() -> bool {
    let here = std::ptr::from_ref(&END) as u64 & !((1 << PAGE_SHIFT) - 1);
    present_in(std::process::id() as i32, here, here + (1 << PAGE_SHIFT)).is_some()
}

/// Returns the runs of all present pages, in order; nothing if the kernel cannot tell.
pub(crate) fn present(pid: i32) -> Vec<Found> {
    present_in(pid, 0, END).unwrap_or_default()
}

/// Returns the runs of present pages between two addresses, in order, or `None` if the kernel
/// cannot tell.
pub(crate) fn present_in(pid: i32, start: u64, last: u64) -> Option<Vec<Found>> {
    let map = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let mut found: Vec<Found> = Vec::new();
    let mut regions = [PageRegion::default(); 512];
    let mut at = start;
    while at < last {
        let (filled, end) = sys::scan_pages(&map, at, last, &mut regions).ok()?;
        for r in &regions[..filled] {
            let has = |category: u64| r.categories & category != 0;
            let file = has(PageRegion::FILE);
            let next = Found {
                start: r.start >> PAGE_SHIFT,
                pages: (r.end - r.start) >> PAGE_SHIFT,
                private: !file && !has(PageRegion::ZERO),
                huge: file && has(PageRegion::HUGE),
            };
            match found.last_mut() {
                Some(last)
                    if last.start + last.pages == next.start
                        && (last.private, last.huge) == (next.private, next.huge)
                        && last.pages + next.pages <= Found::LONGEST =>
                {
                    last.pages += next.pages;
                }
                _ => found.push(next),
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
        // Kernels before 6.7 find nothing.
        assert_eq!(works(), !found.is_empty());
        if works() {
            let run = found.iter().find(|f| (f.start..f.start + f.pages).contains(&inside));
            assert!(run.is_some_and(|f| f.private && !f.huge));
            assert!(found.windows(2).all(|w| w[0].start + w[0].pages <= w[1].start));
        }
    }
}
