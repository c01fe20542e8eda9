//! Several threads store at once.
use crate::{PAGE, collect, watch};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

const THREADS: u64 = 4;
const ROUNDS: u64 = 200;

#[test]
fn no_threads_change_is_missed_and_every_addition_counts() {
    let watch = watch(3);
    let seen = collect(&watch);
    let base = watch.memory().base().expose_provenance();
    watch
        .run(|| {
            std::thread::scope(|scope| {
                for t in 0..THREADS {
                    let watch = &watch;
                    scope.spawn(move || {
                        let word = |at: u64| -> &AtomicU64 {
                            let at = std::ptr::with_exposed_provenance_mut(base + at as usize);
                            // SAFETY: an aligned word of the memory, which outlives the scope.
                            unsafe { AtomicU64::from_ptr(at) }
                        };
                        for i in 0..ROUNDS {
                            // One word for all, one of its own on the same page, one on another
                            // page.
                            word(0).fetch_add(1, Relaxed);
                            word(64 + t * 8).store(i + 1, Relaxed);
                            word(PAGE + t * 8).store(i + 1, Relaxed);
                            if i % 16 == 0 {
                                watch.with(|san, _| assert_eq!(san.total(), 0));
                            }
                        }
                    });
                }
            });
        })
        .expect("runs");
    assert_eq!(watch.memory().load(0), Some(THREADS * ROUNDS));
    let mut memory = vec![0u64; 2 * PAGE as usize / 8];
    for change in seen.lock().expect("no panic").iter().flatten() {
        let word = &mut memory[change.phys as usize / 8];
        assert_eq!(*word, change.old, "at {:#x}", change.phys);
        *word = change.new;
    }
    for (i, &word) in memory.iter().enumerate() {
        assert_eq!(watch.memory().load(i as u64 * 8), Some(word));
    }
    // A store in another thread's window becomes part of that thread's store.
    assert!(watch.stores() <= THREADS * ROUNDS * 3);
}

#[test]
fn watches_are_made_and_dropped_while_others_are_in_use() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let watch = watch(1);
                while !stop.load(Relaxed) {
                    let before = watch.stores();
                    watch.run(|| assert!(watch.memory().store(8, before))).expect("runs");
                    assert_eq!(watch.stores(), before + 1);
                }
            });
        }
        for _ in 0..200 {
            let short = watch(2);
            short.run(|| assert!(short.memory().store(PAGE, 1))).expect("runs");
            assert_eq!(short.stores(), 1);
            assert_eq!(short.into_sanitizer().total(), 0);
        }
        stop.store(true, Relaxed);
    });
}
