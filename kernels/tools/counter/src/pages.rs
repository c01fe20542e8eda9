//! Pages that the kernel clears and copies, told by the addresses of its loads and stores.
//!
//! A page has been written when stores without a gap have reached from its first byte to its last
//! one; it was copied if loads without a gap have gone through a page meanwhile, and cleared if
//! not. A few pages at a time are followed, so that an interrupt in between loses no page.
//!
//! Code that looks at the words that it copies, such as entries of page tables, copies no page in
//! this sense: it takes more than [`TIGHT`] instructions a store.

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages that are followed at a time.
const FOLLOWED: usize = 4;
/// Bytes by which loads may be behind stores: a copy may load its last words before it stores them.
const SLACK: u64 = 128;

/// Instructions a store that a loop may take which only clears or copies.
const TIGHT: u64 = 4;

/// The instructions by which a page was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum By {
    /// `rep stos`.
    RepStos,
    /// `rep movs`.
    RepMovs,
    /// Single stores.
    Stores,
    /// `dc zva`, which QEMU tells no address of.
    Zeroes,
}

/// Names of the instructions, in their order.
pub const BY: [&str; 4] = ["rep stos", "rep movs", "stores", "dc zva"];

/// Pages, and the instructions executed from their first store to their last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Pages cleared, by the instruction.
    pub cleared: [u64; BY.len()],
    /// Pages copied, by the instruction.
    pub copied: [u64; BY.len()],
    /// Instructions.
    pub instructions: u64,
}

#[derive(Clone, Copy, Default)]
struct PageRun {
    next: u64,
    len: u64,
    began: u64,
    times: u64,
    used: u64,
}

/// Accesses of one kind, followed.
#[derive(Default)]
struct Runs {
    runs: [PageRun; FOLLOWED],
    clock: u64,
}

impl Runs {
    /// Follows an access; returns the run that it belongs to.
    fn follow(&mut self, at: u64, size: u64, now: u64) -> Option<PageRun> {
        self.clock += 1;
        let clock = self.clock;
        let run = match self.runs.iter().position(|run| run.len > 0 && run.next == at) {
            Some(found) => &mut self.runs[found],
            None if at.is_multiple_of(PAGE) => {
                // One that stopped there, if there is one, has not been a page.
                self.runs
                    .iter_mut()
                    .filter(|run| run.next - run.len == at)
                    .for_each(|run| *run = PageRun::default());
                let oldest = self.runs.iter_mut().min_by_key(|run| run.used)?;
                *oldest = PageRun { next: at, began: now, ..PageRun::default() };
                oldest
            }
            None => return None,
        };
        run.next += size;
        run.len += size;
        run.times += 1;
        run.used = clock;
        let seen = *run;
        if run.len >= PAGE {
            // The next page begins a run of its own.
            *run = PageRun::default();
        }
        Some(seen)
    }
}

/// Follows the kernel's loads and stores.
#[derive(Default)]
pub struct PageWatch {
    loads: Runs,
    stores: Runs,
    /// Instructions executed when loads had last gone through a page.
    loaded: u64,
}

impl PageWatch {
    /// Notes a load of `size` bytes.
    pub fn load(&mut self, at: u64, size: u64, now: u64) {
        if let Some(run) = self.loads.follow(at, size, now)
            && run.len + SLACK >= PAGE
        {
            self.loaded = now;
        }
    }

    /// Notes a store, when `now` instructions have been executed.
    pub fn store(&mut self, at: u64, size: u64, by: By, now: u64, written: &mut Written) {
        let Some(run) = self.stores.follow(at, size, now) else { return };
        if run.len < PAGE || now - run.began > TIGHT * run.times {
            return;
        }
        let kind = if self.loaded > run.began { &mut written.copied } else { &mut written.cleared };
        kind[by as usize] += 1;
        written.instructions += now - run.began;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_stores_is_cleared_and_one_with_loads_is_copied() {
        let (mut pages, mut written) = (PageWatch::default(), Written::default());
        for word in 0..512 {
            pages.store(0x1000 + word * 8, 8, By::RepStos, 10 + word, &mut written);
        }
        assert_eq!((written.cleared, written.copied), ([1, 0, 0, 0], [0; 4]));
        assert_eq!(written.instructions, 511);
        for word in 0..1024 {
            pages.load(0x7000 + word * 4, 4, 1000 + word);
            pages.store(0x9000 + word * 4, 4, By::Stores, 1000 + word, &mut written);
        }
        assert_eq!((written.cleared, written.copied), ([1, 0, 0, 0], [0, 0, 1, 0]));
    }

    #[test]
    fn a_loop_that_looks_at_entries_and_a_page_that_was_begun_twice() {
        let (mut pages, mut written) = (PageWatch::default(), Written::default());
        for word in 0..512 {
            pages.load(0x7000 + word * 8, 8, word * 20);
            pages.store(0x9000 + word * 8, 8, By::Stores, word * 20, &mut written);
        }
        assert_eq!(written, Written::default());
        pages.store(0x1000, 4, By::Stores, 20_000, &mut written);
        for word in 0..1024 {
            pages.store(0x1000 + word * 4, 4, By::RepStos, 30_000 + word, &mut written);
        }
        assert_eq!((written.cleared, written.instructions), ([1, 0, 0, 0], 1023));
    }

    #[test]
    fn an_interrupt_in_between_loses_no_page_and_parts_are_none() {
        let (mut pages, mut written) = (PageWatch::default(), Written::default());
        for word in 0..512 {
            pages.store(0x1000 + word * 8, 8, By::RepStos, word, &mut written);
            if word == 100 {
                pages.store(0x8000, 8, By::Stores, word, &mut written);
                pages.store(0x5008, 8, By::Stores, word, &mut written);
            }
        }
        for word in 1..512 {
            pages.store(0x3000 + word * 8, 8, By::RepStos, word, &mut written);
        }
        assert_eq!((written.cleared, written.copied), ([1, 0, 0, 0], [0; 4]));
    }
}
