//! Hooks called with nonsense, and the counting of findings.
use crate::common::{Machine, PAGE, RW, ready};
use crate::kinds::{DATA, VA, entry, mapped, x86};
use ptsan::{Access, Arch, Config, Content, Fault, Flush, Kind};

#[test]
fn wrong_arguments_are_findings_and_never_panics() {
    let mut m = ready(x86(), 1);
    let mut expected = 0;
    let mut misuse = |m: &Machine| {
        expected += 1;
        assert_eq!(m.count(Kind::Misuse), expected, "{}", m.san);
    };
    m.san.lazy(7);
    misuse(&m);
    assert_eq!(m.read(7, VA), None);
    misuse(&m);
    m.probe(7, VA);
    misuse(&m);
    m.san.switch(&m.ram, 7, 0, 1);
    misuse(&m);
    m.flush(7, Flush::all());
    misuse(&m);
    m.flush(0, Flush::range(1, 0x1000, 0, PAGE));
    misuse(&m);
    m.flush(0, Flush::range(1, 0, 0x1000, 0));
    misuse(&m);
    m.san.table_allocated(&m.ram, 0, 0, None, Content::Zero);
    misuse(&m);
    m.san.table_allocated(&m.ram, u64::MAX, 4096, None, Content::Zero);
    misuse(&m);
    m.san.table_allocated(&m.ram, 0, 4096, Some(9), Content::Zero);
    misuse(&m);
    m.san.table_linked(&m.ram, 0, u64::MAX, 0);
    misuse(&m);
    m.san.space_destroyed(1);
    misuse(&m);
    m.san.leave(0);
    m.san.resume(0);
    misuse(&m);
    assert_eq!(m.access(0, VA, Access::READ), Err(Fault::NoRoot));
    misuse(&m);
    m.san.switch(&m.ram, 0, 0x7fff_f000, 1);
    misuse(&m);
    m.san.switch(&m.ram, 0, u64::MAX, 1);
    misuse(&m);
    m.probe(0, VA);
    m.flush(0, Flush::range(1, 0, u64::MAX, 1));
    m.san.table_freed(&m.ram, u64::MAX, u64::MAX);
    m.san.table_freed(&m.ram, 0, 0);
    assert_eq!(m.access(0, 1 << 50, Access::READ), Err(Fault::NonCanonical));

    let mut none = Machine::new(Arch { levels: Vec::new(), ..x86() }, 1);
    none.san.switch(&none.ram, 0, 0, 1);
    none.san.table_allocated(&none.ram, 0x1000, 4096, None, Content::Unknown);
    none.san.table_linked(&none.ram, 0x1000, 1, 0x2000);
    none.san.table_freed(&none.ram, 0x1000, 4096);
    assert!(none.count(Kind::Misuse) >= 2);
}

/// Kernels flush a number before they use it, at boot and when numbers roll over.
#[test]
fn a_flush_of_an_unannounced_number_is_only_counted() {
    let mut m = ready(x86(), 1);
    m.flush(0, Flush::space(99));
    m.flush(0, Flush::page(99, VA));
    m.flush(0, Flush::range(99, 0, 0x2000, PAGE));
    assert_eq!((m.san.total(), m.san.stats().unknown_spaces_flushed), (0, 3), "{}", m.san);
    m.san.space_created(99);
    m.flush(0, Flush::space(99));
    assert_eq!(m.san.stats().unknown_spaces_flushed, 3);
}

#[test]
#[should_panic(expected = "stale-use")]
fn assert_clean_panics_with_the_report() {
    let mut m = mapped(1);
    let (at, _) = entry(&m, 0);
    m.put(at, 0);
    m.read(0, VA);
    m.san.assert_clean();
}

#[test]
fn findings_are_counted_exactly_and_kept_once() {
    // Four callers, so four causes.
    let readers: [fn(&mut Machine, u64) -> bool; 4] = [
        |m, va| m.access(0, va, Access::READ).is_ok(),
        |m, va| m.access(0, va, Access::WRITE).is_ok(),
        |m, va| m.access(0, va, Access::EXEC).is_ok(),
        |m, va| m.access(0, va, Access::READ.kernel()).is_ok(),
    ];
    let mut m = Machine::with(Config { keep: 2, ..Config::new(x86()) });
    m.space(1);
    m.switch(0, 1);
    for page in 0..4 {
        m.map(1, VA + page * PAGE, (DATA + page * PAGE) | RW);
        m.read(0, VA + page * PAGE);
    }
    for page in 0..4 {
        let at = m.path(1, VA + page * PAGE).last().unwrap().2;
        m.put(at, 0);
    }
    for _ in 0..5 {
        for (page, read) in (0..4).zip(readers) {
            assert!(read(&mut m, VA + page * PAGE));
        }
    }
    assert_eq!(m.count(Kind::StaleUse), 20);
    assert_eq!(m.san.findings().iter().map(|f| f.count).collect::<Vec<_>>(), [5, 5]);
    assert!(m.san.to_string().contains("10 more are counted above"), "{}", m.san);
}
