//! Tables of trees that are not the library's: exactly the written lines are cleared, and they
//! become pages again by a flush or because no MMU walked them.
use crate::common;
use common::{At, assert_constructed, assert_zero, poke, small};
use ptarmigan::addr::PhysAddr;
use ptarmigan::format::{Format, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::page::{FlushProof, ForeignTable, Level, Unhooked};
use ptarmigan::quicklist::{CheckConfig, ListsConfig, Policy};
use ptarmigan_hosted::Host;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const PTE: Level = Level::PTE;
const ROOT: Level = Level(3);

fn put(host: &Host<X86_64>, table: &ForeignTable<'_>, index: usize) {
    table.touched(index * 8);
    poke(host, table.addr().0 + index as u64 * 8, 0x1234_5067);
}

#[test]
fn lines_that_were_written_are_named_and_cleared_and_no_others() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = &host.slots()[0];
    let lists = host.quicklists().unwrap();
    let pin = slot.pin();
    let page = lists.at(&pin).alloc(PTE, AllocFlags::NORMAL).unwrap();
    // SAFETY: 1. it is the host's.
    let table = unsafe { page.into_table(host.frames(), &X86_64::LAYOUT) };
    assert_eq!(table.touched_lines().count(), 0);
    for index in [0, 7, 9, 300, 511] {
        put(&host, &table, index);
    }
    let lines: Vec<_> = table.touched_lines().collect();
    assert_eq!(lines, [0..64, 64..128, 2368..2432, 4032..4096]);
    // A line that is not noted stays as it is: this makes the call cheap, and unsafe.
    poke(&host, table.addr().0 + 1024, 5);
    let at = table.into_raw();
    // SAFETY: 1. `into_raw` gave it just now. 2. no other code has it.
    let table = unsafe { ForeignTable::from_raw(host.frames(), &X86_64::LAYOUT, PTE, at) };
    // SAFETY: 1. it never was linked. 2. not so: the line that was left out is cleared by hand
    // below. 3. `put` is done. 4. the host's.
    let cleared = unsafe { table.clear_touched(&host.window()) };
    // SAFETY: 1. no other thread is at work on the host.
    let word = unsafe { host.read(PhysAddr(at.0 + 1024), 8) };
    assert_eq!(word, Some(5));
    poke(&host, at.0 + 1024, 0);
    assert_zero(&host, at);
    // SAFETY: 1. no MMU.
    lists.at(&pin).free_unlinked(unsafe { cleared.never_walked() });
    // The same page again, and its record is one of an unwritten table.
    let again = lists.at(&pin).alloc(PTE, AllocFlags::NORMAL).unwrap();
    assert_eq!(again.addr(), at);
    // SAFETY: 1. as above.
    let table = unsafe { again.into_table(host.frames(), &X86_64::LAYOUT) };
    assert_eq!(table.touched_lines().count(), 0);
    // SAFETY: 1. to 4. it was not used, and the window is the host's.
    let cleared = unsafe { table.clear_touched(&host.window()) };
    // SAFETY: 1. no MMU.
    lists.at(&pin).free_unlinked(unsafe { cleared.never_walked() });
    lists.at(&pin).drain();
    host.audit().unwrap();
}

#[test]
fn ranges_are_noted_as_their_entries_would_be_one_by_one() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = &host.slots()[0];
    let lists = host.quicklists().unwrap();
    let pin = slot.pin();
    let here = lists.at(&pin);
    for level in [PTE, ROOT] {
        for bytes in [0..8, 56..72, 0..4096, 2040..2056, 4088..4096, 100..100, 4000..9000] {
            let tables = [(); 2].map(|()| here.alloc(level, AllocFlags::NORMAL).unwrap());
            // SAFETY: 1. they are the host's.
            let [one, two] = tables.map(|page| unsafe { page.into_table(host.frames(), &X86_64::LAYOUT) });
            one.touched_range(bytes.clone());
            (bytes.start..bytes.end.min(4096)).for_each(|at| two.touched(at));
            assert_eq!(one.touched_lines().collect::<Vec<_>>(), two.touched_lines().collect::<Vec<_>>());
            for table in [one, two] {
                // SAFETY: 1. to 3. they were not written to. 4. the host's.
                let cleared = unsafe { table.clear_touched(&host.window()) };
                // SAFETY: 1. no MMU.
                here.free_unlinked(unsafe { cleared.never_walked() });
            }
        }
    }
    here.drain();
    host.audit().unwrap();
}

#[test]
fn walked_tables_go_by_a_chain_and_roots_keep_the_kernel_half() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    // SAFETY: 1. no MMU follows the entry. 2. there is no range. 3. the host's own.
    unsafe { host.kernel().set(host.frames(), 300, 0x7003) };
    let slot = &host.slots()[0];
    let lists = host.quicklists().unwrap();
    let pin = slot.pin();
    let here = lists.at(&pin);
    let mut chain = Unhooked::new();
    let mut used = Vec::new();
    for level in [ROOT, Level(2), Level(1), PTE] {
        let page = here.alloc(level, AllocFlags::NORMAL).unwrap();
        // SAFETY: 1. it is the host's.
        let table = unsafe { page.into_table(host.frames(), &X86_64::LAYOUT) };
        put(&host, &table, 17);
        used.push((level, table.addr()));
        // SAFETY: 1. no root is loaded. 2. `put` notes. 3. it is done. 4. the host's.
        let cleared = unsafe { table.clear_touched(&host.window()) };
        assert_eq!(cleared.level(), level);
        assert!(cleared.unhook(&mut chain).is_ok());
    }
    let mut seen = Vec::new();
    chain.each(host.frames(), |level, at| seen.push((level, at)));
    seen.reverse();
    assert_eq!(seen, used, "the chain knows their levels");
    here.unhooked(&mut chain);
    assert_eq!(lists.counts().live(), 4, "not before the flush");
    // SAFETY: 1. there is no MMU, hence no CPU that has not forgotten them.
    here.flushed(chain.flushed(unsafe { FlushProof::claim() }));
    assert_eq!(lists.counts().live(), 0);
    for (level, at) in used {
        if level == ROOT { assert_constructed(&host, at) } else { assert_zero(&host, at) }
    }
    here.drain();
    host.audit().unwrap();
}

#[test]
fn tables_below_a_frame_are_cleared_whole_and_a_chain_takes_one() {
    let host = Host::<X86Pae>::new(small(1, 1, 16)).unwrap();
    let slot = &host.slots()[0];
    let lists = host.quicklists().unwrap();
    let pin = slot.pin();
    let here = lists.at(&pin);
    let top = X86Pae::LAYOUT.root();
    let mut chain = Unhooked::new();
    let tables = [(); 2].map(|()| here.alloc(top, AllocFlags::NORMAL).unwrap());
    // SAFETY: 1. they are the host's.
    let tables = tables.map(|page| unsafe { page.into_table(host.frames(), &X86Pae::LAYOUT) });
    assert!(tables.iter().all(|table| table.touched_lines().eq(std::iter::once(0..32))));
    // SAFETY: 1. never linked. 2. and 3. they were not written to. 4. the host's.
    let [one, two] = tables.map(|table| unsafe { table.clear_touched(&host.window()) });
    assert!(one.unhook(&mut chain).is_ok());
    let two = two.unhook(&mut chain).expect_err("there is room for one");
    // SAFETY: 1. there is no MMU.
    here.free_unlinked(unsafe { two.never_walked() });
    // SAFETY: 1. there is no MMU.
    here.flushed(chain.flushed(unsafe { FlushProof::claim() }));
    assert_eq!(lists.counts().live(), 0);
    here.drain();
    host.audit().unwrap();
}

#[test]
fn an_unnoted_write_is_found_by_lists_that_check_their_pages() {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slot = &host.slots()[0];
    let report = CheckConfig::new(|_| {
        FOUND.fetch_add(1, Relaxed);
    });
    let config = CheckConfig { sample: 1, ..report };
    let lists = host.quicklists_checked(ListsConfig::new(1), config).unwrap();
    let pin = slot.pin();
    let table = lists.at(&pin).alloc(PTE, AllocFlags::NORMAL).unwrap();
    // SAFETY: 1. it is the host's.
    let table = unsafe { table.into_table(host.frames(), &X86_64::LAYOUT) };
    put(&host, &table, 3);
    poke(&host, table.addr().0 + 2048, 5);
    // SAFETY: 1., 3. and 4. as elsewhere. 2. is the mistake.
    let cleared = unsafe { table.clear_touched(&host.window()) };
    // SAFETY: 1. there is no MMU.
    lists.at(&pin).free_unlinked(unsafe { cleared.never_walked() });
    assert_eq!((FOUND.load(Relaxed), lists.check().refused()), (1, 1));
}
