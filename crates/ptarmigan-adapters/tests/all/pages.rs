//! Pages: their refusals, and that a page that waits for a flush is not handed out.
use crate::rig::{assert_back, at_once, lists, out, waiting};
use ptarmigan::page::{FlushProof, Layout, NoConstruct};
use ptarmigan::quicklist::Source;
use ptarmigan_adapters::{Pages, UnfitTables};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn what_comes_back_waits_for_a_flush_that_follows() {
    let pages = waiting();
    let [one, two] = [(); 2].map(|()| pages.alloc().unwrap());
    // SAFETY: 1. to 3. just handed out, and not written to.
    unsafe { pages.give_back(one) };
    let early = pages.take_waiting();
    assert_eq!((early.len(), early.is_empty(), out(pages)), (1, false, 2));
    // One that comes back after the call is not of that flush.
    // SAFETY: 1. and 3. just handed out, and linked nowhere.
    unsafe { pages.give_back_full(two) };
    // SAFETY: 1. no CPU has walked it.
    early.flushed(unsafe { FlushProof::claim() });
    assert_eq!(out(pages), 1);
    // SAFETY: as above.
    pages.take_waiting().flushed(unsafe { FlushProof::claim() });
    assert!(pages.take_waiting().is_empty());
    assert_back(pages);
}

#[test]
fn what_a_flush_that_unwinds_was_for_waits_for_the_next_one() {
    let pages = waiting();
    let [one, two, three] = [(); 3].map(|()| pages.alloc().unwrap());
    // SAFETY: 1. to 3. just handed out, and not written to.
    unsafe {
        pages.give_back(one);
        pages.give_back(two);
    }
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _waiting = pages.take_waiting();
        // SAFETY: as above. It comes meanwhile.
        unsafe { pages.give_back(three) };
        panic!("the flush fails");
    }));
    assert!(unwound.is_err());
    let waiting = pages.take_waiting();
    assert_eq!((waiting.len(), out(pages)), (3, 3));
    // SAFETY: 1. no CPU has walked them.
    waiting.flushed(unsafe { FlushProof::claim() });
    assert_back(pages);
}

#[test]
fn what_is_noted_is_cleared_and_a_full_table_as_a_whole() {
    let pages = at_once();
    let at = pages.alloc().unwrap();
    assert_eq!(pages.phys(pages.pointer(at)), at);
    // SAFETY: a table of 512 words, which the test has alone.
    let words = unsafe { &mut *pages.pointer(at).cast::<[u64; 512]>() };
    (words[0], words[100], words[511]) = (1, 2, 3);
    for word in [0, 100, 511] {
        // SAFETY: 1. it has not come back.
        unsafe { pages.note(at, word * 8..word * 8 + 8) };
    }
    // SAFETY: 1. to 3. all that was written is noted.
    unsafe { pages.give_back(at) };
    let at = pages.alloc().unwrap();
    // SAFETY: as above.
    unsafe { pages.pointer(at).write_bytes(0xa5, 4096) };
    // SAFETY: 1. and 3. linked nowhere.
    unsafe { pages.give_back_full(at) };
    assert_back(pages);
    // A missing note is found.
    let at = pages.alloc().unwrap();
    // SAFETY: as above.
    unsafe { pages.pointer(at).add(2048).write(1) };
    // SAFETY: 1. and 3. as above. 2. not so: the mistake of which lists that check keep others.
    unsafe { pages.give_back(at) };
    assert_eq!(pages.policy().check().refused(), 1);
}

#[test]
fn tables_that_are_no_frames_and_foreign_cpus_are_refused() {
    let (host, lists) = lists(16 << 20);
    let layout = Layout { levels: 4, table_shift: [14; 5] };
    // SAFETY: 1. to 4. the host's window and frames, and no page is constructed or made.
    let large = unsafe { Source::new(host.frames(), host.window(), NoConstruct, layout) };
    // SAFETY: 1. not so, and refused before a page is made.
    let refused = unsafe { Pages::with_policy(lists, &large, host.slot(0).unwrap()) };
    assert_eq!(refused.err(), Some(UnfitTables { bytes: 1 << 14 }));
    let (other, _) = crate::rig::lists(16 << 20);
    let pages = Pages::new(lists, other.slot(0).unwrap()).unwrap();
    assert_eq!(pages.alloc(), None);
}
