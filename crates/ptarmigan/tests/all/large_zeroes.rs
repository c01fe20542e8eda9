//! The block of zeroes that reads map where there may be large pages.
use crate::common::{any_frame, each_allocation_fails, ends_without_memory, range, va};
use crate::formats::{on_failing_machine, on_machine, small};
use crate::large_spaces::{ALL, AT, M2, PAGE, RW, leaves, space};
use ptarmigan::addr::Pfn;
use ptarmigan::format::{Attr, X86_64};
use ptarmigan::frames::Request;
use ptarmigan::machine::On;
use ptarmigan::space::{Access, Advice, AreaFlags, CollapseLimits, Done, Space, SpaceMachine};
use ptarmigan_hosted::{Host, HostConfig};

fn config() -> HostConfig {
    HostConfig { bytes: 64 << 20, zero_block: true, ..small() }
}

/// The frame of the page at an offset, and whether it may be written.
fn page<M: SpaceMachine>(on: On<'_, M>, space: &Space<X86_64>, at: u64) -> (Pfn, bool) {
    let (pfn, attr) = space.tree().query(on, va(AT + at)).unwrap();
    (pfn, attr.has(Attr::WRITE))
}

fn first(host: &Host<X86_64>) -> Pfn {
    host.zero_block().and_then(|block| block.first()).expect("a read has made it")
}

#[test]
fn span_reads_show_one_block_and_the_first_write_a_large_page() {
    on_machine::<X86_64, _>(config(), |host, on| {
        let mut space = space(on, 2 * M2);
        let mut fault = |at, access| space.fault(on, va(AT + at), access);
        assert_eq!(host.zero_block().unwrap().first(), None, "nobody has read yet");
        assert_eq!(fault(5 * PAGE, Access::Read), Ok(Done::Zero));
        assert_eq!(fault(6 * PAGE, Access::Read), Ok(Done::Spurious));
        assert_eq!(fault(M2, Access::Read), Ok(Done::Zero));
        let zeroes = first(host);
        assert_eq!(leaves(on, &space), [(0, 21), (M2, 21)]);
        assert_eq!(page(on, &space, 9 * PAGE), (Pfn(zeroes.0 + 9), false));
        assert_eq!(page(on, &space, M2), (zeroes, false), "both are the same");
        assert_eq!(space.edit(on).unwrap().reserved_tables(), 2);
        assert_eq!(space.fault(on, va(AT + PAGE), Access::Write), Ok(Done::Large));
        let (own, writable) = page(on, &space, 0);
        assert!(own != zeroes && writable);
        assert_eq!(page(on, &space, M2), (zeroes, false), "the other span stays");
        assert_eq!(space.fault(on, va(AT + 2 * PAGE), Access::Write), Ok(Done::Spurious));
        // Fork passes the written pages on, and the block of zeroes is neither written nor lost.
        let child = space.edit(on).unwrap().fork().unwrap();
        assert_eq!(page(on, &child, 0), (own, false));
        child.end(on).unwrap();
        space.end(on).unwrap();
        assert_eq!(first(host), zeroes);
    });
}

#[test]
fn a_write_where_areas_were_cut_is_passed_on_by_fork_in_all() {
    on_machine::<X86_64, _>(config(), |_, on| {
        let mut space = space(on, M2);
        space.fault(on, va(AT), Access::Read).unwrap();
        space.edit(on).unwrap().retag(range(AT + 8 * PAGE, AT + 16 * PAGE), |_| 7).unwrap();
        assert_eq!(space.fault(on, va(AT + 9 * PAGE), Access::Write), Ok(Done::Large));
        // The program writes to the others without a fault.
        let child = space.edit(on).unwrap().fork().unwrap();
        for at in [0, 9 * PAGE, 20 * PAGE] {
            assert_eq!(page(on, &child, at), (page(on, &space, at).0, false));
        }
        child.end(on).unwrap();
        space.end(on).unwrap();
    });
}

#[test]
fn ends_of_areas_and_machines_without_a_block_show_pages() {
    on_machine::<X86_64, _>(config(), |host, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        edit.set_large_pages(ALL);
        edit.mmap(range(AT + PAGE, AT + 2 * M2 - PAGE), RW, 0).unwrap();
        for at in [PAGE, M2] {
            assert_eq!(space.fault(on, va(AT + at), Access::Read), Ok(Done::Zero));
        }
        assert_eq!(leaves(on, &space), [(PAGE, 12), (M2, 12)]);
        assert_eq!(host.zero_block().unwrap().first(), None);
        space.end(on).unwrap();
    });
    on_machine::<X86_64, _>(HostConfig { zero_block: false, ..config() }, |_, on| {
        let mut space = space(on, M2);
        assert_eq!(space.fault(on, va(AT), Access::Read), Ok(Done::Zero));
        assert_eq!(leaves(on, &space), [(0, 12)]);
        space.end(on).unwrap();
    });
}

#[test]
fn without_a_free_block_a_write_splits_it_and_copies_a_page() {
    on_machine::<X86_64, _>(config(), |host, on| {
        let mut space = space(on, M2);
        space.fault(on, va(AT), Access::Read).unwrap();
        let zeroes = first(host);
        // The other blocks, so that none is left for a large page.
        let mut blocks = Vec::new();
        while let Ok(block) = host.frames().take(Request { order: 9, ..any_frame(0) }) {
            blocks.push(block.dirty());
        }
        assert_eq!(space.fault(on, va(AT + 3 * PAGE), Access::Write), Ok(Done::Copied));
        blocks.into_iter().for_each(|block| host.frames().give(block));
        assert_eq!(leaves(on, &space).len(), 512);
        let (own, writable) = page(on, &space, 3 * PAGE);
        assert!(writable && own != Pfn(zeroes.0 + 3));
        assert_eq!(page(on, &space, 4 * PAGE), (Pfn(zeroes.0 + 4), false));
        // The pages of the block count as missing, as pages of zeroes do.
        let limits = |missing| CollapseLimits { spans: 9, missing };
        assert_eq!(space.edit(on).unwrap().collapse(va(0), limits(510)).unwrap().large, 0);
        assert_eq!(space.edit(on).unwrap().collapse(va(0), limits(511)).unwrap().large, 1);
        assert!(page(on, &space, 3 * PAGE).1);
        space.end(on).unwrap();
    });
}

#[test]
fn permissions_moves_and_holes_never_let_it_be_written() {
    on_machine::<X86_64, _>(config(), |host, on| {
        let mut space = space(on, 2 * M2);
        for at in [0, M2] {
            space.fault(on, va(AT + at), Access::Read).unwrap();
        }
        let zeroes = first(host);
        let mut edit = space.edit(on).unwrap();
        edit.mprotect(range(AT, AT + 2 * M2), AreaFlags(0)).unwrap();
        edit.mprotect(range(AT, AT + 2 * M2), RW).unwrap();
        assert_eq!(space.fault(on, va(AT), Access::Read), Ok(Done::Spurious));
        let mut edit = space.edit(on).unwrap();
        edit.mprotect(range(AT + PAGE, AT + 2 * PAGE), AreaFlags::READ).unwrap();
        edit.munmap(range(AT + 8 * PAGE, AT + 9 * PAGE)).unwrap();
        let to = range(AT + 8 * M2, AT + 9 * M2);
        edit.mremap(range(AT + M2, AT + 2 * M2), to, false).unwrap();
        edit.madvise(range(to.start, to.start + PAGE), Advice::DontNeed).unwrap();
        let all = leaves(on, &space);
        assert_eq!(all.len(), 511 + 511);
        for (at, _) in all {
            let number = (at % M2 / PAGE) as u32;
            assert_eq!(page(on, &space, at), (Pfn(zeroes.0 + number), false));
        }
        space.end(on).unwrap();
    });
}

#[test]
fn whichever_allocation_fails_reads_and_writes_lose_nothing() {
    on_failing_machine(|_, on, fail| {
        each_allocation_fails(2, |k| {
            let mut space = space(on, 4 * M2);
            let mut failed = false;
            fail.set(k);
            for span in 0..4 {
                failed |= space.fault(on, va(AT + span * M2), Access::Read).is_err();
                failed |= space.fault(on, va(AT + span * M2 + PAGE), Access::Write).is_err();
            }
            ends_without_memory(on, fail, space, &[range(AT + PAGE, AT + 3 * M2)], k);
            failed
        });
    });
}
