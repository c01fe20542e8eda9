//! Entries that are stored again are not old, even if they held the same before.
use crate::{PAGE, watch};
use ptsan::watch::Watch;
use ptsan::{Access, Content, Flush, Kind};
use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WRITABLE: u64 = 7;
const LARGE: u64 = 0x80;
const DIRECTORY: u64 = 3 * PAGE;
const TABLE: u64 = 4 * PAGE;
const DATA: u64 = 0x20_0000;

/// Makes a root at one page, its tables in the next two, and 2 MiB at address 0 in one large page.
fn with_a_large_page() -> Watch {
    let watch = watch(16);
    let ram = watch.memory();
    watch.with(|san, ram| {
        for table in [PAGE, 2 * PAGE, DIRECTORY] {
            san.table_allocated(ram, table, PAGE, None, Content::Zero);
        }
    });
    let store = |at, entry| assert!(ram.store(at, entry));
    watch
        .run(|| {
            store(PAGE, (2 * PAGE) | WRITABLE);
            store(2 * PAGE, DIRECTORY | WRITABLE);
            store(DIRECTORY, DATA | WRITABLE | LARGE);
        })
        .expect("runs");
    watch.with(|san, ram| san.switch(ram, 0, PAGE, 1));
    watch
}

/// Splits the large page into the pages of `TABLE`, which `fill` fills, and merges these again.
fn split_and_merge(watch: &Watch, fill: impl Fn()) {
    let ram = watch.memory();
    let store = |at, entry| assert!(ram.store(at, entry));
    let write = || watch.with(|san, ram| san.translate(ram, 0, 0x5000, Access::WRITE)).expect("mapped");
    let flush = |flush| watch.with(|san, ram| san.flush_everywhere(ram, flush));
    watch
        .run(|| {
            write();
            watch.with(|san, ram| san.table_allocated(ram, TABLE, PAGE, None, Content::Unknown));
            fill();
            store(DIRECTORY, 0);
            flush(Flush::page(1, 0));
            store(DIRECTORY, TABLE | WRITABLE);
            write();
            store(DIRECTORY, 0);
            flush(Flush::all());
            watch.with(|san, ram| san.table_freed(ram, TABLE, PAGE));
            store(DIRECTORY, DATA | WRITABLE | LARGE);
        })
        .expect("runs");
}

fn entry(page: u64) -> u64 {
    (DATA + page * PAGE) | WRITABLE
}

#[test]
fn a_large_page_split_again_with_the_same_frame_is_no_finding() {
    let watch = with_a_large_page();
    let ram = watch.memory();
    for _ in 0..2 {
        split_and_merge(&watch, || {
            // SAFETY: a page of the memory, to which no other code stores.
            unsafe { ram.pointer(TABLE).expect("in memory").write_bytes(0, PAGE as usize) };
            (0..512).for_each(|page| assert!(ram.store(TABLE + page * 8, entry(page))));
        });
    }
    watch.assert_clean();
}

/// Fills memory with words.
type Store = fn(*mut u8, &[u64]);

/// The ways to fill a table without a read of a word before its store.
const WAYS: [(&str, Store); 5] = [
    ("words", |to, words| {
        for (i, &word) in words.iter().enumerate() {
            // SAFETY: `to` has room for as many words.
            unsafe { to.cast::<u64>().add(i).write_volatile(word) };
        }
    }),
    ("sixteen bytes at once", |to, words| {
        for (i, pair) in words.chunks_exact(2).enumerate() {
            use std::arch::x86_64::{_mm_loadu_si128, _mm_storeu_si128};
            // SAFETY: as above, with pairs of words.
            unsafe {
                _mm_storeu_si128(
                    to.cast::<std::arch::x86_64::__m128i>().add(i),
                    _mm_loadu_si128(pair.as_ptr().cast()),
                )
            };
        }
    }),
    ("memcpy", |to, words| {
        // SAFETY: as above.
        unsafe { to.cast::<u64>().copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }),
    ("rep movsb", |to, words| {
        // SAFETY: as above.
        unsafe {
            asm!("rep movsb", inout("rdi") to => _, inout("rsi") words.as_ptr() => _, inout("rcx") words.len() * 8 => _);
        }
    }),
    ("rep movsq downwards", |to, words| {
        let (to, from) = (to.wrapping_add(words.len() * 8 - 8), words.as_ptr().wrapping_add(words.len() - 1));
        // SAFETY: as above, from the last word on; the direction flag is cleared again.
        unsafe {
            asm!("std", "rep movsq", "cld", inout("rdi") to => _, inout("rsi") from => _, inout("rcx") words.len() => _);
        }
    }),
];

#[test]
fn entries_stored_over_themselves_are_new() {
    for (way, store) in WAYS {
        let watch = with_a_large_page();
        let table = watch.memory().pointer(TABLE).expect("in memory");
        let entries: Vec<u64> = (0..512).map(entry).collect();
        for _ in 0..2 {
            // No entry is cleared before: all of them are stored.
            split_and_merge(&watch, || store(table, &entries));
        }
        watch.with(|san, _| assert_eq!(san.total(), 0, "{way}: {san}"));
        // Half of them are not enough.
        split_and_merge(&watch, || store(table, &entries[..256]));
        watch.with(|san, _| {
            assert_eq!((san.count(Kind::LinkedBeforeCleared), san.total()), (1, 1), "{way}: {san}");
            assert!(san.to_string().contains("entry 256 is still"), "{way}: {san}");
            assert!(san.to_string().contains("and 255 more"), "{way}: {san}");
        });
    }
}

#[test]
fn an_exchange_that_fails_leaves_an_old_entry_old() {
    let watch = with_a_large_page();
    let ram = watch.memory();
    let fill = |kept: Option<u64>| {
        for page in (0..512).filter(|&page| Some(page) != kept) {
            assert!(ram.store(TABLE + page * 8, entry(page)));
        }
    };
    split_and_merge(&watch, || fill(None));
    split_and_merge(&watch, || {
        fill(Some(7));
        let at = ram.pointer(TABLE + 56).expect("in memory");
        // SAFETY: an aligned word of the memory.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        assert!(word.compare_exchange(0, entry(7), Relaxed, Relaxed).is_err());
    });
    watch.with(|san, _| {
        assert_eq!((san.count(Kind::LinkedBeforeCleared), san.total()), (1, 1), "{san}");
        assert!(san.to_string().contains("entry 7 is still"), "{san}");
    });
}

#[test]
fn one_entry_that_was_neither_cleared_nor_stored_anew_is_found() {
    let watch = with_a_large_page();
    let ram = watch.memory();
    let fill = |by: u64, kept: Option<u64>| {
        for page in (0..512).filter(|&page| Some(page) != kept) {
            assert!(ram.store(TABLE + page * 8, entry(page + by)));
        }
    };
    split_and_merge(&watch, || fill(0, None));
    watch.assert_clean();
    split_and_merge(&watch, || fill(512, Some(7)));
    watch.with(|san, _| {
        assert_eq!((san.count(Kind::LinkedBeforeCleared), san.total()), (1, 1), "{san}");
        assert!(san.to_string().contains(&format!("entry 7 is still {:#x}, and 0 more", entry(7))), "{san}");
    });
}
