//! A finding that is made later names the store that was watched.
use ptsan::watch::{Ram, Watch};
use ptsan::{Arch, Config, Content, Finding, Kind, Sanitizer};

/// The entry of a page of 1 GiB.
const ENTRY: u64 = 0x2000;

#[inline(never)]
fn clear(ram: &Ram) {
    assert!(ram.store(ENTRY, 0));
    std::hint::black_box(ram);
}

/// Runs `code`, which takes the page away without a flush, and returns the finding.
fn found(code: impl FnOnce(&Watch)) -> Finding {
    let watch = Watch::new(1 << 16, Sanitizer::new(Config::new(Arch::x86_64()))).expect("a watch");
    watch.with(|san, ram| {
        san.table_allocated(ram, 0x1000, 4096, Some(3), Content::Zero);
        san.table_allocated(ram, 0x2000, 4096, Some(2), Content::Zero);
        san.switch(ram, 0, 0x1000, 1);
    });
    let map = |ram: &Ram| assert!(ram.store(0x1000, 0x2007) && ram.store(ENTRY, 0x4000_0087));
    watch.run(|| map(watch.memory())).expect("runs");
    watch.run(|| code(&watch)).expect("runs");
    watch.with(|san, ram| san.flushes_done(ram));
    let san = watch.into_sanitizer();
    let [finding] = san.findings() else { panic!("not one finding: {san}") };
    assert_eq!(finding.kind, Kind::FlushMissing);
    finding.clone()
}

#[test]
fn a_missing_flush_names_the_function_of_the_store() {
    let finding = found(|watch| clear(watch.memory()));
    let callers = finding.store.as_ref().expect("a store").frames();
    assert!(callers[0].symbol.ends_with("clear"), "{finding}");
    assert!(finding.to_string().contains("the store was made in\n    "), "{finding}");
}

/// Such a store is checked when the call ends: the stack is no longer its own.
#[test]
fn a_store_inside_with_has_no_callers() {
    let finding = found(|watch| watch.with(|_, ram| clear(ram)));
    assert!(finding.store.is_none(), "{finding}");
}
