//! Memory whose addresses are its physical addresses.
use crate::{PAGE, collect};
use ptsan::watch::{Changed, Error, Watch};
use ptsan::{Access, Arch, Config, Content, Kind, Sanitizer};

fn sanitizer() -> Sanitizer {
    Sanitizer::new(Config::new(Arch::x86_64()))
}

fn identity(pages: u64) -> Watch {
    Watch::identity((pages * PAGE) as usize, sanitizer()).expect("a watch")
}

/// Stores to a physical address as code under an identity map does.
fn store(phys: u64, value: u64) {
    // SAFETY: the callers give addresses of words in the memory of a watch.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(phys as usize).write_volatile(value) };
}

#[test]
fn a_store_to_a_physical_address_is_a_store_to_that_address() {
    let watch = identity(4);
    let (ram, seen) = (watch.memory(), collect(&watch));
    let start = ram.start();
    assert_eq!(start, ram.base().addr() as u64);
    assert!(start.is_multiple_of(1 << 32), "{start:#x}");
    watch
        .run(|| {
            store(start, 1);
            store(start + 3 * PAGE + 8, 2);
        })
        .expect("runs");
    let changed = |phys, new| vec![Changed { phys, old: 0, new }];
    assert_eq!(*seen.lock().expect("no panic"), [changed(start, 1), changed(start + 3 * PAGE + 8, 2)]);
    assert_eq!(ram.load(start + 3 * PAGE + 8), Some(2));
    assert_eq!(ram.pointer(start + 16).map(|p| p.addr() as u64), Some(start + 16));
    assert_eq!((ram.load(0), ram.load(start + 4 * PAGE)), (None, None));
}

#[test]
fn entries_hold_the_addresses_that_pointers_have() {
    let watch = identity(8);
    let start = watch.memory().start();
    watch.with(|san, ram| {
        san.table_allocated(ram, start, PAGE, Some(3), Content::Zero);
        san.switch(ram, 0, start, 1);
    });
    for at in (start + PAGE..start + 8 * PAGE).step_by(8) {
        store(at, at | 7);
    }
    let frame = |n: u64| {
        let phys = start + n * PAGE;
        watch.with(|san, ram| san.table_allocated(ram, phys, PAGE, None, Content::Unknown));
        phys
    };
    let clear = |table: u64| (table..table + PAGE).step_by(8).for_each(|at| store(at, 0));
    watch
        .run(|| {
            let (second, third, last) = (frame(1), frame(2), frame(3));
            clear(second);
            store(start, second | 7);
            clear(third);
            store(second, third | 7);
            store(third, last | 7); // linked before it is cleared
            clear(last);
            store(last, (start + 7 * PAGE) | 7);
        })
        .expect("runs");
    let translated = watch.with(|san, ram| san.translate(ram, 0, 8, Access::WRITE)).expect("mapped");
    assert_eq!(translated.phys, start + 7 * PAGE + 8);
    let counts = watch.with(|san, _| (san.count(Kind::LinkedBeforeCleared), san.total()));
    assert_eq!(counts, (1, 1), "{watch}");
    assert_eq!(watch.found()[0].phys, start + 2 * PAGE);
}

#[test]
fn watches_have_distinct_addresses_and_taken_ones_are_refused() {
    let (first, second) = (identity(1), identity(1));
    let start = first.memory().start();
    assert_ne!(start, second.memory().start());
    let bytes = 4 * PAGE as usize;
    // Neither the memory itself nor a neighbour of its pages can be had.
    for taken in [start, start - 4 * PAGE, start + PAGE] {
        let error = Watch::identity_at(taken, bytes, sanitizer()).expect_err("refused");
        let Error::Identity { start, bytes: of, .. } = error else { panic!("{error}") };
        assert_eq!((start, of), (taken, bytes));
        let text = error.to_string();
        assert!(text.contains(&format!("{taken:#x}..{:#x}", taken + 4 * PAGE)), "{text}");
        assert!(text.contains("uses some of them") && text.contains("`Watch::identity`"), "{text}");
    }
    first.run(|| store(start, 5)).expect("runs");
    assert_eq!((first.memory().load(start), first.stores()), (Some(5), 1), "what was there is there");
    let there = start + 16 * PAGE;
    let third = Watch::identity_at(there, bytes, sanitizer()).expect("free");
    assert_eq!(third.memory().start(), there);
    drop(third);
    drop(Watch::identity_at(there, bytes, sanitizer()).expect("free again"));
}

#[test]
fn addresses_that_no_process_has_are_refused() {
    for start in [0, 8, PAGE + 8, u64::MAX - 4095, u64::MAX - 8191] {
        let error = Watch::identity_at(start, 4096, sanitizer()).expect_err("refused");
        assert_eq!(error, Error::BadStart { start });
    }
    let error = Watch::identity_at(1 << 60, 4096, sanitizer()).expect_err("refused");
    assert!(error.to_string().contains("outside the address space"), "{error}");
    for bytes in [0, usize::MAX, usize::MAX / 2] {
        assert_eq!(Watch::identity(bytes, sanitizer()).expect_err("refused"), Error::BadSize { bytes });
    }
}
