//! Large pages of spaces: which faults map one, what fork and collapse make of it, and lack of
//! memory.
use crate::common::{Starved, any_frame, each_allocation_fails, ends_without_memory, range, va};
use crate::formats::{on_failing_machine, on_machine, small};
use crate::physical::{peek, poke};
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::format::{Format, X86_64};
use ptarmigan::frames::Request;
use ptarmigan::machine::On;
use ptarmigan::space::{
    Access, Advice, AreaError, AreaFlags, CollapseLimits, Done, LargePages, Space, SpaceMachine,
};
use ptarmigan_hosted::HostConfig;

pub const PAGE: u64 = 4096;
pub const M2: u64 = 2 << 20;
pub const AT: u64 = 0x40_0000_0000;
pub const RW: AreaFlags = AreaFlags(3);
pub const ALL: LargePages = LargePages { in_new_areas: true, copy: false };
const LIMITS: CollapseLimits = CollapseLimits { spans: 100, missing: 512 };

/// A space with an area of `bytes` from `AT` on that may have large pages.
pub fn space<M: SpaceMachine>(on: On<'_, M>, bytes: u64) -> Space<X86_64> {
    let mut space = Space::new(on).unwrap();
    let mut edit = space.edit(on).unwrap();
    edit.set_large_pages(ALL);
    edit.mmap(range(AT, AT + bytes), RW, 0).unwrap();
    space
}

/// Offsets and binary logarithms of the bytes of all leaves from `AT` on.
pub fn leaves<M: SpaceMachine>(on: On<'_, M>, space: &Space<X86_64>) -> Vec<(u64, u32)> {
    let mut leaves = Vec::new();
    let all = VirtRange::up_to(X86_64::USER_END);
    space.tree().walk_leaves(on, all, |leaf| leaves.push((leaf.at.0.wrapping_sub(AT), leaf.shift))).unwrap();
    leaves
}

fn large<M: SpaceMachine>(on: On<'_, M>, space: &Space<X86_64>) -> usize {
    leaves(on, space).iter().filter(|(_, shift)| *shift == 21).count()
}

#[test]
fn the_first_write_to_a_whole_span_maps_a_large_page() {
    on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |_, on| {
        // A page less than three spans, which begins in the middle of one.
        let mut space = Space::<X86_64>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        edit.set_large_pages(ALL);
        edit.mmap(range(AT + PAGE, AT + 3 * M2), RW, 0).unwrap();
        let mut fault = |at, access| space.fault(on, va(AT + at), access).unwrap();
        assert_eq!(fault(PAGE, Access::Write), Done::Fresh, "not the whole span");
        assert_eq!(fault(M2 + 5 * PAGE, Access::Write), Done::Large);
        assert_eq!(fault(M2 + 6 * PAGE, Access::Write), Done::Spurious);
        assert_eq!(fault(2 * M2, Access::Read), Done::Zero, "reads show the page of zeroes");
        assert_eq!(fault(2 * M2 + PAGE, Access::Write), Done::Fresh, "the span has a table");
        let all = [(PAGE, 12), (M2, 21), (2 * M2, 12), (2 * M2 + PAGE, 12)];
        assert_eq!(leaves(on, &space), all);
        assert_eq!(space.edit(on).unwrap().reserved_tables(), 1);
        space.end(on).unwrap();
    });
}

#[test]
fn areas_of_other_kinds_and_spaces_that_do_not_ask_have_none() {
    on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |_, on| {
        let mut space = Space::<X86_64>::new(on).unwrap();
        let mut edit = space.edit(on).unwrap();
        assert_eq!((edit.large_pages(), edit.large_page_size()), (LargePages::default(), Some(M2)));
        edit.mmap(range(AT, AT + M2), RW, 0).unwrap();
        edit.mmap(range(AT + M2, AT + 2 * M2), RW.with(AreaFlags::LARGE), 0).unwrap();
        edit.set_large_pages(ALL);
        edit.mmap(range(AT + 2 * M2, AT + 3 * M2), RW.with(AreaFlags::GROWS_DOWN), 0).unwrap();
        edit.mmap(range(AT + 3 * M2, AT + 4 * M2), RW.with(AreaFlags::BACKED), 1).unwrap();
        edit.mmap(range(AT + 4 * M2, AT + 5 * M2), RW.with(AreaFlags::SHARED), 1).unwrap();
        let physical = edit.mmap(range(AT, AT + M2), RW.with(AreaFlags::PHYSICAL), 1);
        assert_eq!(physical, Err(AreaError::Physical(range(AT, AT + M2))));
        edit.madvise(range(AT + 3 * M2, AT + 5 * M2), Advice::Large(true)).unwrap();
        for span in 0..5 {
            let done = space.fault(on, va(AT + span * M2 + PAGE), Access::Write).unwrap();
            assert_eq!(done == Done::Large, span == 1, "span {span}: {done:?}");
        }
        let before = leaves(on, &space).len();
        let mut edit = space.edit(on).unwrap();
        // Advice against them splits what is there, and lets the area have none.
        edit.madvise(range(AT + M2, AT + 2 * M2), Advice::Large(false)).unwrap();
        assert_eq!(edit.reserved_tables(), 0);
        assert_eq!(leaves(on, &space).len(), before + 511);
        space.end(on).unwrap();
    });
}

#[test]
fn fork_shares_a_large_page_until_one_side_writes_to_it() {
    for copy in [false, true] {
        on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |host, on| {
            let mut parent = space(on, M2);
            parent.fault(on, va(AT), Access::Write).unwrap();
            parent.edit(on).unwrap().set_large_pages(LargePages { copy, ..ALL });
            let free = host.frames().counts().free;
            let mut child = parent.edit(on).unwrap().fork().unwrap();
            assert_eq!(large(on, &child), 1);
            assert!(free - host.frames().counts().free < 64, "shared");
            let frame = |space: &Space<X86_64>, page| space.tree().query(on, va(AT + page * PAGE)).unwrap().0;
            let first = frame(&parent, 0);
            assert_eq!(frame(&child, 0), first);
            assert_eq!(child.fault(on, va(AT + 7 * PAGE), Access::Write), Ok(Done::Copied));
            assert_ne!(frame(&child, 7), frame(&parent, 7));
            assert_eq!(frame(&child, 8) == frame(&parent, 8), !copy, "the others are shared still, or not");
            assert_eq!((large(on, &child), large(on, &parent)), (usize::from(copy), 1));
            // The parent is not the only user, as long as the child has pages of it.
            let done = parent.fault(on, va(AT + 9 * PAGE), Access::Write).unwrap();
            assert_eq!(done, if copy { Done::Reused } else { Done::Copied });
            assert_eq!(host.data().large_splits(), if copy { 0 } else { 2 }, "each space splits its own");
            assert_eq!(frame(&parent, 7), Pfn(first.0 + 7), "what the child has copied is the parent's");
            if !copy {
                assert_eq!(parent.fault(on, va(AT + 7 * PAGE), Access::Write), Ok(Done::Reused));
                assert_eq!(parent.fault(on, va(AT + 8 * PAGE), Access::Write), Ok(Done::Copied));
            }
            child.end(on).unwrap();
            assert_eq!(parent.fault(on, va(AT + 100 * PAGE), Access::Write), {
                Ok(if copy { Done::Spurious } else { Done::Reused })
            });
            parent.end(on).unwrap();
        });
    }
}

#[test]
fn pages_of_a_large_page_outlive_it_in_any_order_of_spaces() {
    // The spaces end in this order, after those that split have split.
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [0, 2, 1]] {
        for splits in 0..8u32 {
            on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |host, on| {
                let mut first = space(on, M2);
                first.fault(on, va(AT), Access::Write).unwrap();
                let second = first.edit(on).unwrap().fork().unwrap();
                let third = first.edit(on).unwrap().fork().unwrap();
                let mut spaces = [Some(first), Some(second), Some(third)];
                for (i, space) in spaces.iter_mut().enumerate() {
                    let space = space.as_mut().unwrap();
                    if splits >> i & 1 != 0 {
                        space.edit(on).unwrap().munmap(range(AT + PAGE, AT + 9 * PAGE)).unwrap();
                        assert_eq!(leaves(on, space).len(), 504);
                    }
                }
                for (n, i) in order.into_iter().enumerate() {
                    let used = host.frames().counts().free;
                    spaces[i].take().unwrap().end(on).unwrap();
                    on.drain();
                    let gone = host.frames().counts().free - used;
                    assert_eq!(gone >= 500, n == 2, "{splits:b}, {order:?}: {gone} frames went with {n}");
                }
            });
        }
    }
}

#[test]
fn collapse_makes_large_pages_of_written_unshared_pages() {
    on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |_, on| {
        let mut space = space(on, 4 * M2);
        let mut edit = space.edit(on).unwrap();
        edit.madvise(range(AT, AT + 4 * M2), Advice::Large(false)).unwrap();
        for (span, pages) in [(0, 512), (1, 500), (2, 0), (3, 512)] {
            space.fault(on, va(AT + span * M2), Access::Read).unwrap();
            for page in 0..pages {
                space.fault(on, va(AT + span * M2 + page * PAGE), Access::Write).unwrap();
            }
        }
        let mut edit = space.edit(on).unwrap();
        let nothing = edit.collapse(va(0), LIMITS).unwrap();
        assert_eq!((nothing.large, nothing.next), (0, None), "areas may not have them");
        edit.madvise(range(AT, AT + 4 * M2), Advice::Large(true)).unwrap();
        let some = edit.collapse(va(0), CollapseLimits { spans: 2, missing: 11 }).unwrap();
        assert_eq!((some.large, some.next), (1, Some(va(AT + 2 * M2))), "12 pages are missing of one");
        let child = space.edit(on).unwrap().fork().unwrap();
        let rest = space.edit(on).unwrap().collapse(va(AT + 2 * M2), LIMITS).unwrap();
        assert_eq!((rest.large, rest.next), (0, None), "one has no page of its own, one is shared");
        child.end(on).unwrap();
        let all = space.edit(on).unwrap().collapse(va(0), LIMITS).unwrap();
        assert_eq!((all.large, all.next), (2, None));
        assert_eq!(large(on, &space), 3);
        assert_eq!(space.fault(on, va(AT + M2 + 510 * PAGE), Access::Write), Ok(Done::Spurious));
        space.end(on).unwrap();
    });
}

#[test]
fn a_part_of_a_large_page_goes_without_any_memory() {
    on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |host, on| {
        let mut space = space(on, 2 * M2);
        let mut child = {
            space.fault(on, va(AT), Access::Write).unwrap();
            space.fault(on, va(AT + M2), Access::Write).unwrap();
            space.edit(on).unwrap().fork().unwrap()
        };
        on.drain();
        let starved = Starved::new(host, 0);
        let none = Request { flags: ptarmigan::frames::AllocFlags::URGENT, ..any_frame(0) };
        let mut urgent = Vec::new();
        while let Ok(frame) = host.frames().take(none) {
            urgent.push(frame.dirty());
        }
        assert_eq!(host.frames().counts().free, 4, "all but the tables that are reserved");
        // Nothing else gets at them.
        assert!(space.fault(on, va(AT + PAGE), Access::Write).is_err());
        for space in [&mut space, &mut child] {
            let mut edit = space.edit(on).unwrap();
            edit.munmap(range(AT + PAGE, AT + M2 - PAGE)).unwrap();
            edit.madvise(range(AT + M2 + PAGE, AT + M2 + 2 * PAGE), Advice::DontNeed).unwrap();
            edit.mprotect(range(AT, AT + PAGE), AreaFlags::READ).unwrap();
            assert_eq!(leaves(on, space).len(), 2 + 511);
        }
        for frame in urgent {
            host.frames().give(frame);
        }
        drop(starved);
        child.end(on).unwrap();
        space.end(on).unwrap();
        assert_eq!(host.frames().reserved(), 0);
    });
}

#[test]
fn whichever_allocation_fails_faults_forks_moves_lose_nothing() {
    on_failing_machine(|_, on, fail| {
        let far = AT + (1 << 39);
        each_allocation_fails(6, |k| {
            let mut space = space(on, 4 * M2);
            let mut failed = false;
            fail.set(k);
            for span in 0..4 {
                failed |= space.fault(on, va(AT + span * M2 + PAGE), Access::Write).is_err();
            }
            let before = leaves(on, &space);
            match space.edit(on).unwrap().fork() {
                Ok(child) => {
                    assert_eq!(leaves(on, &child), before, "allocation {k}: a copy is complete");
                    child.end(on).unwrap();
                }
                Err(_) => failed = true,
            }
            let (from, to) = (range(AT + PAGE, AT + 3 * M2), range(far + PAGE, far + 3 * M2));
            let moved = space.edit(on).unwrap().mremap(from, to, false).is_ok();
            failed |= !moved;
            let parts = [AT, far].map(|base| {
                [range(base + 3 * PAGE, base + 5 * PAGE), range(base + 2 * M2 + PAGE, base + 4 * M2 - PAGE)]
            });
            ends_without_memory(on, fail, space, parts.as_flattened(), k);
            failed
        });
    });
}

#[test]
fn moves_keep_large_pages_that_fit_and_split_the_others() {
    on_machine::<X86_64, _>(HostConfig { bytes: 64 << 20, ..small() }, |_, on| {
        let mut space = space(on, 2 * M2);
        space.fault(on, va(AT), Access::Write).unwrap();
        space.fault(on, va(AT + M2), Access::Write).unwrap();
        let frame = |space: &Space<X86_64>, at| space.tree().query(on, va(at)).map(|(pfn, _)| pfn);
        let last = frame(&space, AT + 2 * M2 - PAGE);
        let (one, two) = (AT + 16 * M2, AT + 32 * M2 + 3 * PAGE);
        let mut edit = space.edit(on).unwrap();
        edit.mremap(range(AT, AT + 2 * M2), range(one, one + 2 * M2), false).unwrap();
        assert_eq!((large(on, &space), frame(&space, one + 2 * M2 - PAGE)), (2, last));
        let mut edit = space.edit(on).unwrap();
        edit.mremap(range(one, one + 2 * M2), range(two, two + 2 * M2), false).unwrap();
        assert_eq!((large(on, &space), frame(&space, two + 2 * M2 - PAGE)), (0, last));
        assert_eq!(leaves(on, &space).len(), 1024);
        space.end(on).unwrap();
    });
}

#[test]
fn a_copy_of_a_large_page_has_its_content() {
    let config = HostConfig { bytes: 64 << 20, touch_data: true, ..small() };
    on_machine::<X86_64, _>(config, |host, on| {
        let mut parent = space(on, M2);
        parent.fault(on, va(AT), Access::Write).unwrap();
        parent.edit(on).unwrap().set_large_pages(LargePages { copy: true, ..ALL });
        let word = |space: &Space<X86_64>, page: u64| {
            space.tree().query(on, va(AT + page * PAGE)).unwrap().0.addr().0 + 8 * page
        };
        [0, 7, 511].into_iter().for_each(|page| poke(host, word(&parent, page), 0x1234 + page));
        let mut child = parent.edit(on).unwrap().fork().unwrap();
        assert_eq!(child.fault(on, va(AT + 7 * PAGE), Access::Write), Ok(Done::Copied));
        for page in [0, 7, 511] {
            assert_ne!(word(&child, page), word(&parent, page));
            assert_eq!(peek(host, word(&child, page)), 0x1234 + page, "page {page}");
        }
        child.end(on).unwrap();
        parent.end(on).unwrap();
    });
}
