//! Formats other than x86-64: break-before-make, and entries of four bytes.
use crate::PAGE;
use ptsan::watch::Watch;
use ptsan::{Arch, Config, Content, Flush, Kind, Sanitizer};

/// An AArch64 table descriptor, and a page that is accessed and may be written.
const TABLE: u64 = 3;
const LEAF: u64 = 3 | 1 << 6 | 1 << 10 | 1 << 11;

fn announce(watch: &Watch, table: u64, level: Option<u8>) {
    watch.with(|san, ram| san.table_allocated(ram, table, PAGE, level, Content::Unknown));
}

/// Makes four tables on frames 0 to 3 that map a page at frame 8, and a watch that saw all links
/// but not the leaf.
fn arm() -> (Watch, u64) {
    let san = Sanitizer::new(Config::new(Arch::aarch64_4k(48)));
    let watch = Watch::new(16 * PAGE as usize, san).expect("a watch");
    (0..4).for_each(|n| announce(&watch, n * PAGE, (n == 0).then_some(3)));
    watch.with(|san, ram| san.switch(ram, 0, 0, 1));
    let leaf = 3 * PAGE;
    watch
        .run(|| {
            (0..3).for_each(|n| assert!(watch.memory().store(n * PAGE, ((n + 1) * PAGE) | TABLE)));
            let _paused = watch.pause().expect("pauses");
            assert!(watch.memory().store(leaf, (8 * PAGE) | LEAF));
        })
        .expect("runs");
    watch.assert_clean();
    (watch, leaf)
}

#[test]
fn an_entry_remade_without_a_break_is_found_without_any_walk() {
    let (watch, leaf) = arm();
    watch.run(|| assert!(watch.memory().store(leaf, (9 * PAGE) | LEAF))).expect("runs");
    watch.with(|san, _| assert_eq!((san.count(Kind::BreakBeforeMake), san.total()), (1, 1), "{san}"));
    assert_eq!(watch.found()[0].phys, leaf);
}

#[test]
fn break_flush_and_make_is_silent_and_found_without_the_flush() {
    for flush in [true, false] {
        let (watch, leaf) = arm();
        watch
            .run(|| {
                assert!(watch.memory().store(leaf, 0));
                if flush {
                    watch.with(|san, ram| san.flush_everywhere(ram, Flush::page(1, 0)));
                }
                assert!(watch.memory().store(leaf, (9 * PAGE) | LEAF));
            })
            .expect("runs");
        let found = watch.with(|san, _| san.count(Kind::BreakBeforeMake));
        assert_eq!(found, u64::from(!flush), "{watch}");
    }
}

#[test]
fn of_entries_of_four_bytes_the_one_that_was_stored_to_is_told() {
    for (index, old_content) in [(6u64, true), (7, true), (7, false)] {
        let san = Sanitizer::new(Config::new(Arch::x86_2level()));
        let watch = Watch::new(4 * PAGE as usize, san).expect("a watch");
        assert!(watch.memory().store(2 * PAGE + 40, u64::from(old_content) * 0x7007));
        announce(&watch, 0, Some(1));
        watch.with(|san, ram| san.switch(ram, 0, 0, 1));
        announce(&watch, 2 * PAGE, None);
        // Its neighbour in the same word points at no table, and no store changes it.
        let neighbour = (3 * PAGE) | 7;
        assert!(
            watch.memory().store(index / 2 * 8, if index % 2 == 0 { neighbour << 32 } else { neighbour })
        );
        let entry = watch.memory().pointer(index * 4).expect("inside").cast::<u32>();
        // SAFETY: an aligned entry of the memory, which no other code uses.
        watch.run(|| unsafe { entry.write_volatile((2 * PAGE as u32) | 7) }).expect("runs");
        let counts = watch.with(|san, _| (san.count(Kind::LinkedBeforeCleared), san.total()));
        assert_eq!(counts, (u64::from(old_content), u64::from(old_content)), "{watch}");
        // The report on the table that was never freed has its history.
        let report = watch.with(|san, _| {
            san.finish();
            san.to_string()
        });
        let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("linked by the entry at {:#x}", index * 4)), "{report}");
    }
}
