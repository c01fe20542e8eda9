//! Instructions that store: their changes are seen, and their effects are the same as without a
//! watch.
use crate::{PAGE, collect, watch};
use proptest::prelude::*;
use ptsan::watch::{Changed, Error, Watch};
use ptsan::{Arch, Config, Sanitizer};
use std::arch::asm;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A store, to an offset of the memory.
#[derive(Clone, Debug)]
enum Op {
    /// An aligned or unaligned integer of `1 << width` bytes.
    Plain { at: usize, width: u8, value: u64 },
    /// Sixteen bytes at once.
    Wide { at: usize, value: u128 },
    /// An atomic exchange of 8 aligned bytes.
    Swap { at: usize, value: u64 },
    /// A compare-and-exchange that may fail.
    Compare { at: usize, expect: u64, value: u64 },
    /// `rep stos` of `1 << width` bytes, upwards or downwards from the offset.
    RepStos { at: usize, width: u8, count: usize, value: u64, down: bool },
    /// `rep movs` of bytes or words from a buffer.
    RepMovs { at: usize, width: u8, count: usize, seed: u8 },
}

const BYTES: usize = 4 * PAGE as usize;

fn op() -> impl Strategy<Value = Op> {
    // Many near the boundaries of pages.
    let near =
        (1..4usize, -40..40isize).prop_map(|(page, by)| (page * PAGE as usize).wrapping_add_signed(by));
    let at = prop_oneof![64..BYTES - 64, near.clone(), near];
    let width = 0..4u8;
    prop_oneof![
        4 => (at.clone(), width.clone(), any::<u64>()).prop_map(|(at, width, value)| Op::Plain { at, width, value }),
        2 => (at.clone(), any::<u128>()).prop_map(|(at, value)| Op::Wide { at, value }),
        1 => (at.clone(), any::<u64>()).prop_map(|(at, value)| Op::Swap { at, value }),
        1 => (at.clone(), 0..2u64, any::<u64>())
            .prop_map(|(at, expect, value)| Op::Compare { at, expect, value }),
        2 => (at.clone(), width.clone(), 0..1500usize, any::<u64>(), any::<bool>())
            .prop_map(|(at, width, count, value, down)| Op::RepStos { at, width, count, value, down }),
        2 => (at, width, 0..1500usize, any::<u8>())
            .prop_map(|(at, width, count, seed)| Op::RepMovs { at, width, count, seed }),
    ]
}

/// Executes it on `BYTES` bytes, with the same instructions for watched memory and for any other.
fn carry_out(base: *mut u8, op: &Op) {
    match *op {
        Op::Plain { at, width, value } => {
            // SAFETY: the callers give `BYTES` bytes, and no operation begins less than 64 bytes
            // from their ends. Stores may be unaligned.
            unsafe {
                let at = base.add(at);
                match width {
                    0 => at.write_volatile(value as u8),
                    1 => asm!("mov [{at}], {v:x}", at = in(reg) at, v = in(reg) value),
                    2 => asm!("mov [{at}], {v:e}", at = in(reg) at, v = in(reg) value),
                    _ => asm!("mov [{at}], {v}", at = in(reg) at, v = in(reg) value),
                }
            }
        }
        // SAFETY: as above.
        Op::Wide { at, value } => unsafe {
            let value = std::arch::x86_64::_mm_loadu_si128((&raw const value).cast());
            std::arch::x86_64::_mm_storeu_si128(base.add(at).cast(), value);
        },
        Op::Swap { at, value } => {
            // SAFETY: as above, and aligned.
            let word = unsafe { AtomicU64::from_ptr(base.add(at & !7).cast()) };
            word.swap(value, Ordering::SeqCst);
        }
        Op::Compare { at, expect, value } => {
            // SAFETY: as above, and aligned.
            let word = unsafe { AtomicU64::from_ptr(base.add(at & !7).cast()) };
            let _ = word.compare_exchange(expect, value, Ordering::SeqCst, Ordering::SeqCst);
        }
        Op::RepStos { at, width, count, value, down } => {
            let size = 1 << width;
            let room = if down { at / size } else { (BYTES - at) / size };
            let count = count.min(room - 1);
            rep_stos(base.wrapping_add(at), width, count, value, down);
        }
        Op::RepMovs { at, width, count, seed } => {
            let size = 1 << width;
            let count = count.min((BYTES - at) / size);
            let from: Vec<u8> = (0..count * size).map(|i| (i as u8).wrapping_mul(seed)).collect();
            let (mut rdi, mut rsi, mut rcx) = (base.wrapping_add(at), from.as_ptr(), count);
            // SAFETY: as above, the count is cut to the rest of the memory, and the source is that
            // long.
            unsafe {
                match width {
                    0 => asm!("rep movsb", inout("rdi") rdi, inout("rsi") rsi, inout("rcx") rcx),
                    1 => asm!("rep movsw", inout("rdi") rdi, inout("rsi") rsi, inout("rcx") rcx),
                    2 => asm!("rep movsd", inout("rdi") rdi, inout("rsi") rsi, inout("rcx") rcx),
                    _ => asm!("rep movsq", inout("rdi") rdi, inout("rsi") rsi, inout("rcx") rcx),
                }
            }
            assert_eq!(rcx, 0);
            assert_eq!(rdi, base.wrapping_add(at + count * size));
            assert_eq!(rsi, from.as_ptr().wrapping_add(from.len()));
        }
    }
}

fn rep_stos(at: *mut u8, width: u8, count: usize, value: u64, down: bool) {
    let (mut rdi, mut rcx) = (at, count);
    // SAFETY: the caller keeps the range within its memory; the direction flag is cleared again.
    unsafe {
        match (down, width) {
            (false, 0) => asm!("rep stosb", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (false, 1) => asm!("rep stosw", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (false, 2) => asm!("rep stosd", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (false, _) => asm!("rep stosq", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (true, 0) => asm!("std", "rep stosb", "cld", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (true, 1) => asm!("std", "rep stosw", "cld", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (true, 2) => asm!("std", "rep stosd", "cld", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
            (true, _) => asm!("std", "rep stosq", "cld", inout("rdi") rdi, inout("rcx") rcx, in("rax") value),
        }
    }
    assert_eq!(rcx, 0);
    let bytes = count << width;
    assert_eq!(rdi, if down { at.wrapping_sub(bytes) } else { at.wrapping_add(bytes) });
}

fn apply(memory: &mut [u64], stores: &[Vec<Changed>]) {
    for change in stores.iter().flatten() {
        let word = &mut memory[change.phys as usize / 8];
        assert_eq!(*word, change.old, "a change between two stores went unseen at {:#x}", change.phys);
        assert_ne!(change.old, change.new);
        *word = change.new;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_stores_acts_as_without_a_watch(
        ops in prop::collection::vec(op(), 1..12),
        each in prop::bool::weighted(0.05),
    ) {
        let watch = watch(BYTES as u64 / PAGE);
        watch.each_repetition(each);
        let seen = collect(&watch);
        let mut plain = vec![0u64; BYTES / 8];
        for op in &ops {
            carry_out(plain.as_mut_ptr().cast(), op);
        }
        watch.run(|| ops.iter().for_each(|op| carry_out(watch.memory().base(), op))).expect("runs");
        let mut rebuilt = vec![0u64; BYTES / 8];
        apply(&mut rebuilt, &seen.lock().expect("no panic"));
        for (i, &word) in plain.iter().enumerate() {
            prop_assert_eq!(watch.memory().load(i as u64 * 8), Some(word), "memory at {:#x}", i * 8);
        }
        prop_assert_eq!(rebuilt, plain);
    }
}

#[test]
fn each_store_is_told_once_with_its_place_and_change() {
    let watch = watch(2);
    let seen = std::sync::Arc::<Mutex<Vec<u64>>>::default();
    let into = seen.clone();
    watch.on_store(move |_, ram, store| {
        let mut into = into.lock().expect("no panic");
        into.push(store.phys);
        for change in store.changed {
            assert_eq!(ram.load(change.phys), Some(change.new), "the store has been made, and no other");
        }
    });
    assert!(watch.memory().store(64, 1), "outside of run: not seen");
    watch
        .run(|| {
            assert!(watch.memory().store(64, 2));
            assert!(watch.memory().store(4096, 3));
            assert!(watch.memory().store(4096, 3), "the same value again is a store too");
            // Across the boundary of the pages.
            carry_out(watch.memory().base(), &Op::Plain { at: 4093, width: 3, value: u64::MAX });
        })
        .expect("runs");
    assert!(watch.memory().store(72, 2), "after run: not seen");
    assert_eq!(*seen.lock().expect("no panic"), [64, 4096, 4096, 4093]);
    assert_eq!(watch.stores(), 4);
}

#[test]
fn addresses_are_physical_and_the_instruction_is_named() {
    const START: u64 = 0x20_0000;
    let san = Sanitizer::new(Config::new(Arch::x86_64()));
    let watch = Watch::with_start(START, 2 * PAGE as usize, san).expect("a watch");
    let seen = collect(&watch);
    let rips = std::sync::Arc::<Mutex<Vec<usize>>>::default();
    let ram = watch.memory();
    let at = ram.pointer(START + PAGE + 16).expect("inside");
    assert_eq!((ram.phys(at), ram.start(), ram.bytes()), (Some(START + PAGE + 16), START, 2 * PAGE as usize));
    assert_eq!((ram.pointer(START - 1), ram.pointer(START + 2 * PAGE)), (None, None));
    assert_eq!((ram.phys(ram.base().wrapping_sub(1)), ram.load(0), ram.store(8, 1)), (None, None, false));
    /// Stores, and returns the address of the instruction: one, wherever it is called.
    #[inline(never)]
    fn store_at(at: *mut u8) -> usize {
        let label: usize;
        // SAFETY: the caller gives 8 bytes of the memory.
        unsafe {
            asm!("lea {l}, [rip + 2f]", "2: mov qword ptr [{at}], 7", l = out(reg) label, at = in(reg) at)
        };
        label
    }
    let store = || store_at(at);
    let (first, _) = (watch.run(store).expect("runs"), assert_eq!(ram.load(START + PAGE + 16), Some(7)));
    assert_eq!(*seen.lock().expect("no panic"), [[Changed { phys: START + PAGE + 16, old: 0, new: 7 }]]);
    let into = rips.clone();
    watch.on_store(move |_, _, store| into.lock().expect("no panic").push(store.rip));
    let second = watch.run(store).expect("runs");
    assert_eq!((first, rips.lock().expect("no panic").as_slice()), (second, [second].as_slice()));
    for bad in [START + 8, u64::MAX - 4095] {
        let san = Sanitizer::new(Config::new(Arch::x86_64()));
        assert_eq!(Watch::with_start(bad, 4096, san).expect_err("refused"), Error::BadStart { start: bad });
    }
    for bytes in [0, usize::MAX] {
        let san = Sanitizer::new(Config::new(Arch::x86_64()));
        assert_eq!(Watch::new(bytes, san).expect_err("refused"), Error::BadSize { bytes });
    }
}

#[test]
fn a_large_memset_is_one_store_a_page_or_one_a_repetition() {
    let watch = watch(4);
    let seen = collect(&watch);
    let at = watch.memory().base().wrapping_add(2048);
    watch.run(|| rep_stos(at, 3, 1024, 5, false)).expect("runs");
    let pages: Vec<usize> = seen.lock().expect("no panic").drain(..).map(|c| c.len()).collect();
    assert_eq!(pages, [256, 512, 256]);
    let last = at.wrapping_add(1023 * 8);
    watch.run(|| rep_stos(last, 3, 1024, 6, true)).expect("runs");
    let pages: Vec<usize> = seen.lock().expect("no panic").drain(..).map(|c| c.len()).collect();
    assert_eq!(pages, [256, 512, 256], "downwards");
    watch.each_repetition(true);
    watch.run(|| rep_stos(at, 3, 300, 7, false)).expect("runs");
    assert_eq!(seen.lock().expect("no panic").len(), 300);
    assert_eq!(watch.stores(), 306);
}

#[test]
fn flags_registers_and_errno_are_what_they_would_be() {
    let watch = watch(1);
    let base = watch.memory().base();
    // The callback clobbers all registers that a signal handler may clobber.
    watch.on_store(|_, _, _| {
        assert!(std::fs::File::open("/nonexistent").is_err());
        let spoilt = std::hint::black_box([1.5f64; 8]).iter().sum::<f64>();
        assert_eq!(spoilt, 12.0);
    });
    let mut flags = [0u64; 2];
    let mut sums = [0u64; 2];
    for (i, memory) in [vec![7u64; 512].as_mut_ptr(), base.cast()].into_iter().enumerate() {
        // SAFETY: one page of memory.
        unsafe { memory.write(7) };
        let code = || {
            let (f, sum): (u64, u64);
            // SAFETY: adds to the first word; the flags are read through the stack and every
            // register is given.
            unsafe {
                asm!(
                    "movq xmm5, {one}", "stc", "adc qword ptr [{at}], -8", "movq {sum}, xmm5", "pushfq", "pop {f}",
                    at = in(reg) memory, one = in(reg) 77u64, f = out(reg) f, sum = out(reg) sum, out("xmm5") _,
                );
                *libc_errno() = 12345;
                memory.add(1).write_volatile(1);
                assert_eq!(*libc_errno(), 12345);
            }
            (flags[i], sums[i]) = (f, sum);
        };
        watch.run(code).expect("runs");
    }
    assert_eq!(flags[0], flags[1]);
    assert_eq!(sums, [77, 77]);
    assert_eq!(watch.memory().load(0), Some(0), "7 - 8 + carry");
    assert_eq!(watch.stores(), 2);
}

fn libc_errno() -> *mut i32 {
    // SAFETY: always valid in the calling thread.
    unsafe { libc::__errno_location() }
}

#[test]
fn stores_under_a_pause_are_not_seen_and_those_after_it_are() {
    let watch = watch(2);
    let seen = collect(&watch);
    let store = |value| assert!(watch.memory().store(8, value));
    watch
        .run(|| {
            store(1);
            {
                let _outer = watch.pause().expect("pauses");
                let inner = watch.pause().expect("pauses");
                store(2);
                drop(inner);
                store(3);
            }
            watch.run(|| store(4)).expect("runs");
            store(5);
        })
        .expect("runs");
    let of = |old, new| vec![Changed { phys: 8, old, new }];
    assert_eq!(*seen.lock().expect("no panic"), [of(0, 1), of(3, 4), of(4, 5)]);
}

#[test]
fn a_store_under_the_sanitizer_is_checked_at_its_release() {
    let watch = watch(1);
    let seen = collect(&watch);
    watch
        .run(|| {
            watch.with(|_, ram| {
                assert!(ram.store(0, 1));
                assert!(ram.store(8, 2));
                assert!(seen.lock().expect("no panic").is_empty());
            });
            assert_eq!(seen.lock().expect("no panic").len(), 2);
        })
        .expect("runs");
}

#[test]
fn a_callback_that_stores_does_not_call_itself() {
    let watch = watch(1);
    let mut calls = 0;
    watch.on_store(move |_, ram, store| {
        calls += 1;
        assert!(calls < 10);
        if store.phys == 0 {
            assert!(ram.store(8, calls));
        }
    });
    watch.run(|| assert!(watch.memory().store(0, 1))).expect("runs");
    assert_eq!((watch.memory().load(8), watch.stores()), (Some(1), 2));
}

#[test]
fn a_panic_of_the_callback_propagates_after_the_code_has_run() {
    let watch = watch(1);
    watch.on_store(|_, _, _| panic!("by the callback"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        watch.run(|| (0..4).for_each(|i| assert!(watch.memory().store(i * 8, 1))))
    }));
    let payload = caught.expect_err("the panic came out");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"by the callback"));
    assert_eq!((watch.stores(), watch.memory().load(24)), (4, Some(1)));
    watch.on_store(|_, _, _| {});
    watch.run(|| assert!(watch.memory().store(0, 2))).expect("runs again");
}

#[test]
fn taking_the_sanitizer_twice_is_a_panic_that_says_so() {
    let watch = watch(1);
    let twice =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| watch.with(|_, _| watch.with(|_, _| ()))));
    let message = *twice.expect_err("panics").downcast::<&str>().expect("a message");
    assert!(message.contains("has the sanitizer already"), "{message}");
    watch.with(|san, _| san.assert_clean());
}
