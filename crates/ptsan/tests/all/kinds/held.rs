//! Tables freed, or allocated again, while some CPU could still walk them.
use crate::common::{Machine, PAGE, RW, ready};
use crate::kinds::{DATA, VA, entry, mapped, x86};
use ptsan::{Arch, Config, Content, Flush, Kind, Rule, Session};

#[test]
fn a_table_freed_before_the_flush_is_found() {
    for flush in [false, true] {
        let mut m = mapped(2);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        let (leaf, _) = entry(&m, 0);
        m.put(leaf, 0);
        m.put(at, 0);
        m.flush(0, Flush::page(1, VA));
        if flush {
            m.flush(1, Flush::page(1, VA));
        }
        m.give_back(0, table);
        if flush {
            m.san.assert_clean();
        } else {
            m.found_only(Kind::FreeBeforeFlush);
            let f = &m.san.findings()[0];
            assert_eq!(
                (f.rule, f.place.cpu, f.place.frame),
                (Rule::HeldInStructureCache, Some(1), Some(table))
            );
            assert!(f.to_string().contains("walked by CPU 1"), "{f}");
        }
    }
}

#[test]
fn translations_given_by_another_table_free_the_old_one() {
    let mut m = mapped(1);
    let (_, old) = entry(&m, 0);
    let (at, _) = entry(&m, 1);
    let new = m.table(0);
    for offset in (0..PAGE).step_by(8) {
        let copied = m.get(old + offset);
        m.put(new + offset, copied);
        m.put(old + offset, 0);
    }
    m.put(at, new | RW);
    m.flush(0, Flush::page(1, 0x7000_0000));
    m.give_back(0, old);
    m.read(0, VA);
    m.san.assert_clean();
}

#[test]
fn a_lazy_cpu_that_is_not_flushed_is_found() {
    for flush in [false, true] {
        let mut m = mapped(2);
        m.san.lazy(1);
        if !flush {
            m.deaf = Some(1);
        }
        m.unmap(1, VA);
        if flush {
            m.san.resume(1);
            assert_eq!(m.read(1, VA), None);
            m.san.assert_clean();
        } else {
            m.found_only(Kind::FreeBeforeFlush);
            assert!(m.san.to_string().contains("CPU 1 is lazy"), "{}", m.san);
        }
    }
}

/// No store is told. A lazy CPU keeps the translation of a page that is gone until it comes back;
/// the links to its table go with any invalidation.
#[test]
fn a_translation_that_a_lazy_cpu_keeps_holds_no_table() {
    for (lazy, comes_back) in [(true, false), (true, true), (false, false)] {
        let mut s = Session::with(Config { cpus: 2, ..Config::new(Arch::x86_2level()) }, vec![0u8; 1 << 16]);
        [0x1000, 0x2000].into_iter().for_each(|table| s.alloc(table));
        for (at, entry) in [(0x1000, 0x2007u32), (0x2000, 0x9067), (0x2004, 0xa067)] {
            s.memory[at..at + 4].copy_from_slice(&entry.to_le_bytes());
        }
        s.each_cpu(|s| s.load(0x1000));
        assert_eq!(s.on(1).access(0x123), Ok(0x9123));
        if lazy {
            s.lazy();
        }
        s.memory[0x2000..0x2004].fill(0);
        s.on(0).flush(0x123);
        if comes_back {
            // It goes on without a flush, and may use the translation again.
            s.on(1).resume();
            assert_eq!(s.access(0x1123), Ok(0xa123));
        }
        s.memory[0x2004..0x2008].fill(0);
        s.memory[0x1000..0x1004].fill(0);
        s.each_cpu(|s| s.flush(0x1000));
        s.free(0x2000);
        let found: Vec<_> = s.sanitizer.findings().iter().map(|f| (f.kind, f.rule)).collect();
        let held = (Kind::FreeBeforeFlush, Rule::HeldInTlb);
        assert_eq!(found, [held][usize::from(lazy && !comes_back)..], "{}", s.sanitizer);
    }
}

#[test]
fn a_speculative_walk_alone_makes_a_cpu_a_holder() {
    let mut m = ready(x86(), 2);
    m.map(1, VA, DATA | RW);
    m.probe(1, VA);
    m.deaf = Some(1);
    m.unmap(1, VA);
    m.found_only(Kind::FreeBeforeFlush);
}

#[test]
fn eager_walkers_find_the_shootdown_that_an_idle_cpu_missed() {
    for eager_walkers in [false, true] {
        let mut m = Machine::with(Config { cpus: 2, eager_walkers, ..Config::new(x86()) });
        m.space(1);
        m.switch(0, 1);
        m.switch(1, 1);
        m.san.lazy(1);
        m.map(1, VA, DATA | RW);
        m.read(0, VA);
        m.deaf = Some(1);
        m.unmap(1, VA);
        assert_eq!(m.count(Kind::FreeBeforeFlush) > 0, eager_walkers);
    }
}

#[test]
fn a_cpu_that_left_the_space_holds_nothing() {
    let mut m = mapped(2);
    m.deaf = Some(1);
    m.leave(1);
    m.unmap(1, VA);
    m.san.assert_clean();
}

#[test]
fn a_root_freed_while_loaded_is_found() {
    let mut m = Machine::new(x86(), 1);
    let root = m.space(1);
    m.switch(0, 1);
    m.give_back(3, root);
    m.found_only(Kind::FreeBeforeFlush);
    assert_eq!(m.san.findings()[0].rule, Rule::HeldAsRoot);

    let mut m = Machine::new(x86(), 1);
    let root = m.space(1);
    m.switch(0, 1);
    m.leave(0);
    m.give_back(3, root);
    m.san.assert_clean();
}

#[test]
fn handing_out_a_table_held_by_a_cpu_is_its_own_finding() {
    for flush in [false, true] {
        let mut m = mapped(1);
        m.deaf = Some(0);
        m.unmap(1, VA);
        let early = m.count(Kind::FreeBeforeFlush);
        assert!(early > 0);
        if flush {
            m.flush(0, Flush::all());
        }
        m.table(0);
        assert_eq!(m.count(Kind::ReuseBeforeFlush), u64::from(!flush));
    }
}

#[test]
fn reuse_is_found_after_a_cut_into_tables_of_other_sizes() {
    let mut m = mapped(1);
    m.deaf = Some(0);
    let (_, table) = entry(&m, 0);
    m.unmap(1, VA);
    m.san.table_allocated(&m.ram, table + 2048, 2048, None, Content::Zero);
    assert_eq!(m.count(Kind::ReuseBeforeFlush), 1);
}

#[test]
fn freeing_a_table_that_is_still_linked_is_found() {
    for clear in [false, true] {
        let mut m = mapped(1);
        let (_, table) = entry(&m, 0);
        let (at, _) = entry(&m, 1);
        let (leaf, _) = entry(&m, 0);
        m.put(leaf, 0);
        if clear {
            m.put(at, 0);
        }
        m.flush(0, Flush::page(1, VA));
        m.give_back(0, table);
        if clear {
            m.san.assert_clean();
        } else {
            m.found_only(Kind::FreeWhileLinked);
            m.probe(0, VA);
            assert_eq!(m.count(Kind::UseAfterFree), 1, "and a walk then goes through it");
        }
    }
}

#[test]
fn an_unreachable_tree_may_be_freed_without_clearing_it() {
    let mut m = mapped(1);
    let path = m.path(1, VA);
    m.leave(0);
    for (level, table, _) in path {
        m.give_back(level, table);
    }
    m.san.assert_clean();
}

#[test]
fn no_cpu_of_many_is_forgotten() {
    let cpus = 100;
    for deaf in [0, 17, 99] {
        let mut m = mapped(cpus);
        // Holders that no longer count make room for those that do.
        for cpu in 0..cpus {
            m.switch(cpu, 1);
            m.read(cpu, VA);
        }
        m.deaf = Some(deaf);
        m.unmap(1, VA);
        m.found_only(Kind::FreeBeforeFlush);
        assert!(m.san.findings().iter().all(|f| f.place.cpu == Some(deaf)), "{}", m.san);
    }
}
