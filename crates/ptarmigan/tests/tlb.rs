//! Gathers and invalidation: one flush for each operation, of the right size, to the right CPUs, before anything is
//! handed back.
mod common;
use common::{FailAt, small, va};
use proptest::prelude::*;
use ptarmigan::addr::{Pfn, PhysAddr, VirtRange};
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::{Attr, Format, X86_64, X86Pae};
use ptarmigan::frames::{AllocFlags, NoFrame};
use ptarmigan::hosted::{Host, HostMachine};
use ptarmigan::page::{Clean, Flushed, Level, Unhooked};
use ptarmigan::quicklist::{Policy, PolicyCounts};
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::table::{Free, Machine, Tree, parts};
use ptarmigan::tlb::{Gather, Generation, Invalidation, Mmu, Root, Scope, SpaceId};
use std::sync::Mutex;

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Alloc(PhysAddr),
    Unused(PhysAddr),
    Retire(usize),
    /// CPUs that were told the same, one after the other, are one event.
    Invalidate {
        scope: Scope,
        targets: u32,
        tables_freed: bool,
        reload_root: bool,
    },
    Flushed(usize),
    GatherEnd,
    Load(u16, SpaceId),
    Lazy(u16),
    Unload(u16),
}

fn with_targets(event: Event, to: u32) -> Event {
    match event {
        Event::Invalidate { scope, tables_freed, reload_root, .. } => {
            Event::Invalidate { scope, targets: to, tables_freed, reload_root }
        }
        other => other,
    }
}

#[derive(Default)]
struct Log(Mutex<Vec<Event>>);

impl Log {
    fn add(&self, event: Event) {
        let mut events = self.0.lock().unwrap();
        if let (Some(Event::Invalidate { targets, .. }), Event::Invalidate { targets: more, .. }) =
            (events.last().copied(), event)
        {
            let together = with_targets(event, targets | more);
            if events.last().map(|last| with_targets(*last, targets | more)) == Some(together) {
                events.pop();
                events.push(together);
                return;
            }
        }
        events.push(event);
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct Recorder<'l> {
    log: &'l Log,
    /// Free frames are looked at when the invalidation comes: nothing may have come back yet.
    free: &'l (dyn Fn() -> u32 + Sync),
    free_at_invalidate: &'l Mutex<Vec<u32>>,
}

// SAFETY: nothing in these tests walks tables: nothing is cached anywhere.
unsafe impl Mmu for Recorder<'_> {
    const NEEDS_ENTRY_VALID: bool = false;

    fn invalidate(&self, pin: &Pinned<'_>, request: &Invalidation) {
        let Invalidation { scope, tables_freed, reload_root, .. } = *request;
        self.log.add(Event::Invalidate { scope, targets: 1 << pin.cpu().0, tables_freed, reload_root });
        self.free_at_invalidate.lock().unwrap().push((self.free)());
    }
    fn invalidate_kernel(&self, _: &Pinned<'_>, _: &Scope) {}
    fn load(&self, pin: &Pinned<'_>, root: &Root) {
        self.log.add(Event::Load(pin.cpu().0, root.space));
    }
    fn lazy(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.log.add(Event::Lazy(pin.cpu().0));
    }
    fn unload(&self, pin: &Pinned<'_>, _: SpaceId) {
        self.log.add(Event::Unload(pin.cpu().0));
    }
}

struct Logged<'l, P> {
    log: &'l Log,
    inner: P,
}

impl<P: Policy> Policy for Logged<'_, P> {
    fn alloc(&self, pin: &Pinned<'_>, level: Level, flags: AllocFlags) -> Result<Clean, NoFrame> {
        let page = self.inner.alloc(pin, level, flags)?;
        self.log.add(Event::Alloc(page.addr()));
        Ok(page)
    }
    fn unused(&self, pin: &Pinned<'_>, level: Level, page: Clean) {
        self.log.add(Event::Unused(page.addr()));
        self.inner.unused(pin, level, page);
    }
    fn retire(&self, pin: &Pinned<'_>, pages: &mut Unhooked) {
        self.log.add(Event::Retire(pages.len() as usize));
        self.inner.retire(pin, pages);
    }
    fn flushed(&self, pin: &Pinned<'_>, pages: Flushed) {
        self.log.add(Event::Flushed(pages.len() as usize));
        self.inner.flushed(pin, pages);
    }
    fn gather_end(&self, pin: &Pinned<'_>) {
        self.log.add(Event::GatherEnd);
        self.inner.gather_end(pin);
    }
    fn reclaim(&self, pin: &Pinned<'_>, node: NodeId, want: u32) -> u32 {
        self.inner.reclaim(pin, node, want)
    }
    fn drain(&self, pin: &Pinned<'_>) {
        self.inner.drain(pin);
    }
    fn counts(&self) -> PolicyCounts {
        self.inner.counts()
    }
}

/// Sets a machine up that logs, and runs `$body` with it.
macro_rules! machine {
    ($format:ty, $cpus:expr, |$host:ident, $m:ident, $slots:ident, $log:ident, $freed:ident| $body:block) => {
        let $host = Host::<$format>::new(small($cpus, 1, 16)).unwrap();
        let $slots = $host.slots();
        let log = Log::default();
        let $log = &log;
        let $freed = Mutex::new(Vec::new());
        let free = || $host.frames().counts().free;
        let recorder = Recorder { log: $log, free: &free, free_at_invalidate: &$freed };
        let policy = Logged { log: $log, inner: $host.plain().unwrap() };
        let $m = HostMachine::new(&$host, policy, recorder).unwrap();
        $body
        $m.drain(&$slots);
        $host.audit().unwrap();
    };
}

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange { start, end: start + n * PAGE }
}

fn flush(scope: Scope, targets: u32, tables_freed: bool) -> Event {
    Event::Invalidate { scope, targets, tables_freed, reload_root: false }
}

fn invalidations(events: &[Event]) -> Vec<Event> {
    events.iter().copied().filter(|e| matches!(e, Event::Invalidate { .. })).collect()
}

#[test]
fn tables_are_unhooked_then_flushed_then_available() {
    machine!(X86_64, 1, |host, m, slots, log, freed| {
        let pin = slots[0].pin();
        let mut space = Space::<X86_64>::new(&m, &pin).unwrap();
        space.activate(&m, &pin);
        let area = pages(0x40_0000, 8);
        space.mmap(&m, &pin, area, RW, 0).unwrap();
        for i in 0..8 {
            space.fault(&m, &pin, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        host.data().drain(host.frames(), &pin);
        log.take();
        let free = host.frames().counts().free;
        space.munmap(&m, &pin, area).unwrap();
        let scope = Scope::Range { start: area.start, end: area.end, stride: 12 };
        assert_eq!(
            log.take(),
            [Event::Retire(3), flush(scope, 1, true), Event::Flushed(3), Event::GatherEnd]
        );
        let early = freed.lock().unwrap().pop().map(|now| now - free);
        assert_eq!(early, Some(1), "but for the record of the area, nothing came back before the flush");
        host.data().drain(host.frames(), &pin);
        assert_eq!(host.frames().counts().free, free + 3 + 8 + 1, "tables, data and the area's record");
        space.end(&m, &pin);
        // The CPU that ran in it goes to the kernel's root.
        assert_eq!(log.take(), [Event::Retire(1), Event::Unload(0), Event::Flushed(1), Event::GatherEnd]);
    });
}

#[test]
fn a_table_that_moves_is_flushed_where_it_was() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let mut space = Space::<X86_64>::new(&m, &pin).unwrap();
        space.activate(&m, &pin);
        space.activate(&m, &slots[1].pin());
        space.rest(&m, &slots[1].pin());
        let (from, to) = (pages(0x40_0000, 512), pages(0x80_0000, 512));
        space.mmap(&m, &pin, from, RW, 0).unwrap();
        space.fault(&m, &pin, va(from.start + 7 * PAGE), Access::Write).unwrap();
        let leaf = space.tree().query(&m, va(from.start + 7 * PAGE));
        log.take();
        space.mremap(&m, &pin, from, to, false).unwrap();
        // Walkers, those of lazy CPUs too, may have the table in their paging-structure caches at the old place: the
        // lazy one goes to another root.
        let events = log.take();
        assert_eq!(invalidations(&events), [flush(Scope::Full, 0b01, true)]);
        assert!(events.contains(&Event::Unload(1)), "{events:?}");
        assert_eq!(space.tree().query(&m, va(to.start + 7 * PAGE)), leaf);
        assert_eq!(space.tree().tables(Level::PTE), 1, "the table itself moved");
        space.end(&m, &pin);
        let _ = &host;
    });
}

#[test]
fn a_flush_is_as_large_as_what_changed() {
    machine!(X86_64, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let mut space = Space::<X86_64>::new(&m, &pin).unwrap();
        space.activate(&m, &pin);
        // A page on either side keeps the tables.
        let all = pages(0x40_0000, 100);
        let mut counts = m.tlb().counts();
        for n in [1u64, 2, 32, 33, 34, 98] {
            space.mmap(&m, &pin, all, RW, 0).unwrap();
            for i in 0..100 {
                space.fault(&m, &pin, va(all.start + i * PAGE), Access::Write).unwrap();
            }
            log.take();
            let part = pages(all.start + PAGE, n);
            space.munmap(&m, &pin, part).unwrap();
            let scope = match n {
                1 => Scope::Page(part.start),
                2..=33 => Scope::Range { start: part.start, end: part.end, stride: 12 },
                _ => Scope::Full,
            };
            assert_eq!(invalidations(&log.take()), [flush(scope, 1, false)], "{n} pages");
            let now = m.tlb().counts();
            match n {
                1 => assert_eq!((now.page, now.pages), (counts.page + 1, counts.pages + 1)),
                2..=33 => assert_eq!((now.range, now.pages), (counts.range + 1, counts.pages + n as usize)),
                _ => assert_eq!((now.full, now.pages), (counts.full + 1, counts.pages)),
            }
            space.munmap(&m, &pin, all).unwrap();
            counts = m.tlb().counts();
        }
        space.end(&m, &pin);
        let _ = &host;
    });
}

#[test]
fn nothing_is_flushed_when_nothing_changed() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let mut space = Space::<X86_64>::new(&m, &pin).unwrap();
        space.activate(&m, &pin);
        let area = pages(0x40_0000, 16);
        space.mmap(&m, &pin, area, RW, 0).unwrap();
        space.fault(&m, &pin, va(area.start), Access::Read).unwrap();
        log.take();
        let generation = space.tlb().generation();
        // Permissions gained, empty pages, a page that is there already, a file page mapped for writing.
        space.mprotect(&m, &pin, pages(area.start + PAGE, 8), AreaFlags::READ).unwrap();
        space.munmap(&m, &pin, pages(area.start + 4 * PAGE, 4)).unwrap();
        space.fault(&m, &pin, va(area.start), Access::Read).unwrap();
        space.munmap(&m, &pin, pages(0x80_0000, 4)).unwrap();
        let child = space.fork(&m, &pin).unwrap();
        assert_eq!(invalidations(&log.take()), []);
        assert_eq!(space.tlb().generation(), generation);
        child.end(&m, &pin);
        assert_eq!(invalidations(&log.take()), [], "a space that no CPU ever loaded needs no flush");
        space.end(&m, &pin);
        let _ = &host;
    });
}

#[test]
fn lazy_cpus_are_flushed_only_when_tables_go() {
    machine!(X86_64, 3, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let mut space = Space::<X86_64>::new(&m, &pin).unwrap();
        let area = pages(0x40_0000, 8);
        space.mmap(&m, &pin, area, RW, 0).unwrap();
        for slot in &slots {
            space.activate(&m, &slot.pin());
        }
        space.rest(&m, &slots[1].pin());
        for i in 0..8 {
            space.fault(&m, &pin, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        log.take();
        space.mprotect(&m, &pin, pages(area.start, 1), AreaFlags::READ).unwrap();
        assert_eq!(invalidations(&log.take()), [flush(Scope::Page(area.start), 0b101, false)]);
        // The lazy CPU missed that: it has to load the root anew. CPU 2 took part and need not.
        space.activate(&m, &slots[1].pin());
        assert_eq!(log.take(), [Event::Load(1, space.tlb().id())]);
        space.rest(&m, &slots[1].pin());
        space.activate(&m, &slots[1].pin());
        assert_eq!(log.take(), [Event::Lazy(1)], "nothing happened in between: the root is still good");
        space.rest(&m, &slots[1].pin());
        space.munmap(&m, &pin, area).unwrap();
        let scope = Scope::Range { start: area.start, end: area.end, stride: 12 };
        let events = log.take();
        assert_eq!(invalidations(&events), [flush(scope, 0b101, true)]);
        assert!(events.contains(&Event::Unload(1)), "the lazy CPU goes to another root: {events:?}");
        space.deactivate(&m, &slots[2].pin());
        assert!(!space.tlb().is_active_on(CpuId(2)));
        log.take();
        space.end(&m, &pin);
        let ends: Vec<Event> = log.take().into_iter().filter(|e| matches!(e, Event::Unload(_))).collect();
        assert_eq!(ends, [Event::Unload(0)], "nobody else has it any more");
        let _ = &host;
    });
}

#[test]
fn a_lazy_cpu_that_flushes_for_others_is_not_up_to_date_itself() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let mut space = Space::<X86_64>::new(&m, &slots[0].pin()).unwrap();
        let area = pages(0x40_0000, 4);
        space.mmap(&m, &slots[0].pin(), area, RW, 0).unwrap();
        space.activate(&m, &slots[0].pin());
        space.activate(&m, &slots[1].pin());
        for i in 0..4 {
            space.fault(&m, &slots[0].pin(), va(area.start + i * PAGE), Access::Write).unwrap();
        }
        space.rest(&m, &slots[0].pin());
        log.take();
        // The call is made on the CPU that only keeps the root loaded.
        space.mprotect(&m, &slots[0].pin(), pages(area.start, 1), AreaFlags::READ).unwrap();
        assert_eq!(invalidations(&log.take()), [flush(Scope::Page(area.start), 0b10, false)]);
        space.activate(&m, &slots[0].pin());
        assert_eq!(log.take(), [Event::Load(0, space.tlb().id())], "CPU 0 was no target: it must forget now");
        space.end(&m, &slots[0].pin());
        let _ = &host;
    });
}

#[test]
fn a_cpu_that_missed_one_flush_is_not_brought_up_to_date_by_the_next() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let mut space = Space::<X86_64>::new(&m, &slots[0].pin()).unwrap();
        let area = pages(0x40_0000, 4);
        space.mmap(&m, &slots[0].pin(), area, RW, 0).unwrap();
        space.activate(&m, &slots[0].pin());
        for i in 0..4 {
            space.fault(&m, &slots[0].pin(), va(area.start + i * PAGE), Access::Write).unwrap();
        }
        space.rest(&m, &slots[0].pin());
        // Missed while lazy.
        space.mprotect(&m, &slots[1].pin(), pages(area.start, 1), AreaFlags::READ).unwrap();
        let before = space.tlb().generation();
        assert_eq!(before, Generation(1), "raised although no CPU had to be told");
        space.activate(&m, &slots[0].pin());
        log.take();
        space.rest(&m, &slots[0].pin());
        space.activate(&m, &slots[0].pin());
        assert_eq!(log.take(), [Event::Lazy(0)], "the load before caught up");
        space.end(&m, &slots[0].pin());
        let _ = &host;
    });
}

#[test]
fn a_switch_to_another_space_and_back_loads_the_root() {
    machine!(X86_64, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let one = Space::<X86_64>::new(&m, &pin).unwrap();
        let two = Space::<X86_64>::new(&m, &pin).unwrap();
        log.take();
        one.activate(&m, &pin);
        one.rest(&m, &pin);
        two.activate(&m, &pin);
        two.rest(&m, &pin);
        one.activate(&m, &pin);
        let loads: Vec<Event> = log.take().into_iter().filter(|e| matches!(e, Event::Load(..))).collect();
        assert_eq!(loads, [&one, &two, &one].map(|s| Event::Load(0, s.tlb().id())));
        one.end(&m, &pin);
        two.end(&m, &pin);
        let _ = &host;
    });
}

#[test]
fn pae_tops_keep_their_entries_until_the_space_ends() {
    machine!(X86Pae, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let mut space = Space::<X86Pae>::new(&m, &pin).unwrap();
        assert_eq!(space.tree().tables(Level(1)), 3, "filled when the space is made");
        let root = space.tree().root();
        let entries: Vec<_> = (0..4).map(|i| host.read(PhysAddr(root.0 + 8 * i), 8)).collect();
        space.activate(&m, &pin);
        let area = pages(0x4000_0000, 600);
        space.mmap(&m, &pin, area, RW, 0).unwrap();
        for i in 0..600 {
            space.fault(&m, &pin, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        assert_eq!(space.tree().tables(Level(0)), 2);
        space.munmap(&m, &pin, area).unwrap();
        assert_eq!(space.tree().tables(Level(0)), 0);
        assert_eq!(space.tree().tables(Level(1)), 3);
        let now: Vec<_> = (0..4).map(|i| host.read(PhysAddr(root.0 + 8 * i), 8)).collect();
        assert_eq!(now, entries);
        log.take();
        space.end(&m, &pin);
        let events = log.take();
        assert_eq!(events[0], Event::Retire(4), "three tables and the top");
    });
}

#[test]
fn a_change_of_a_top_in_registers_reloads_the_root() {
    machine!(X86Pae, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let tlb = m.tlb().new_space();
        m.tlb().activate(&pin, &tlb, PhysAddr(0x1000)).unwrap();
        let mut gather = Gather::new(parts(&m, &pin), &tlb, X86Pae::PAGE_SHIFT);
        gather.changed(0x1000, 0x2000);
        gather.top_entry_changed();
        gather.finish();
        let events = invalidations(&log.take());
        assert!(
            matches!(events[..], [Event::Invalidate { scope: Scope::Full, reload_root: true, .. }]),
            "{events:?}"
        );
        let _ = &host;
    });
}

#[test]
fn dropping_a_gather_flushes_and_frees() {
    machine!(X86_64, 1, |host, m, slots, log, freed| {
        let pin = slots[0].pin();
        let tlb = m.tlb().new_space();
        let mut tree = Tree::<X86_64>::new(&m, &pin, AllocFlags::NORMAL).unwrap();
        m.tlb().activate(&pin, &tlb, tree.root()).unwrap();
        tree.map(&m, &pin, va(0x1000), Pfn(77), Attr::READ | Attr::USER, AllocFlags::NORMAL).unwrap();
        let data = m.data().take(m.frames(), &pin, AllocFlags::NORMAL).unwrap();
        log.take();
        let mut gather = Gather::new(parts(&m, &pin), &tlb, 12);
        tree.unmap_range(&m, pages(0, 16), Free::Empty, &mut gather, |_, pfn, _| assert_eq!(pfn, Pfn(77)));
        assert_eq!(gather.waiting(), (3, 0));
        ptarmigan::frames::DataFrames::release(m.frames(), data);
        // SAFETY: 1. mapped nowhere, and its only reference is gone.
        unsafe { gather.data(data) };
        assert_eq!(gather.waiting(), (3, 1));
        drop(gather);
        assert_eq!(
            log.take(),
            [Event::Retire(3), flush(Scope::Page(0x1000), 1, true), Event::Flushed(3), Event::GatherEnd]
        );
        assert_eq!(freed.lock().unwrap().len(), 1);
        // What was flushed may be looked at before it is given back.
        tree.map(&m, &pin, va(0x1000), Pfn(77), Attr::READ, AllocFlags::NORMAL).unwrap();
        let mut gather = Gather::new(parts(&m, &pin), &tlb, 12);
        tree.unmap_range(&m, pages(0, 16), Free::Empty, &mut gather, |_, _, _| {});
        let released = gather.flush();
        let ticket = released.ticket().expect("something was flushed");
        assert_eq!((ticket.space, ticket.generation), (tlb.id(), Generation(2)));
        assert!(ticket.active.has(CpuId(0)) && ticket.lazy.is_empty());
        let live = m.policy().counts().live();
        drop(released);
        assert_eq!(m.policy().counts().live(), live - 3);
        let mut gather = Gather::ending(parts(&m, &pin), &tlb, 12);
        tree.end(&m, &mut gather, |_, _, _| {});
        drop(gather);
        let _ = &host;
    });
}

#[test]
fn a_private_gather_is_one_whose_space_no_cpu_has() {
    machine!(X86_64, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let tlb = m.tlb().new_space();
        assert!(Gather::new(parts(&m, &pin), &tlb, 12).is_private());
        m.tlb().activate(&pin, &tlb, PhysAddr(0)).unwrap();
        assert!(!Gather::new(parts(&m, &pin), &tlb, 12).is_private());
        m.tlb().rest(&pin, &tlb).unwrap();
        assert!(!Gather::new(parts(&m, &pin), &tlb, 12).is_private(), "a lazy CPU's walker still walks");
        m.tlb().deactivate(&pin, &tlb).unwrap();
        assert!(Gather::new(parts(&m, &pin), &tlb, 12).is_private());
        assert_eq!(log.take().last(), Some(&Event::Unload(0)));
        let _ = &host;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_gather_covers_all_that_changed(ranges in proptest::collection::vec((0u64..5000, 1u64..40), 1..12)) {
        let seen;
        machine!(X86_64, 1, |host, m, slots, log, _freed| {
            let pin = slots[0].pin();
            let tlb = m.tlb().new_space();
            m.tlb().activate(&pin, &tlb, PhysAddr(0)).unwrap();
            log.take();
            let mut gather = Gather::new(parts(&m, &pin), &tlb, 12);
            for (start, n) in &ranges {
                gather.changed(start * PAGE, (start + n) * PAGE);
            }
            gather.finish();
            seen = invalidations(&log.take());
            let _ = &host;
        });
        prop_assert_eq!(seen.len(), 1, "one flush");
        let low = ranges.iter().map(|r| r.0).min().unwrap_or(0);
        let high = ranges.iter().map(|r| r.0 + r.1).max().unwrap_or(0);
        let scope = match high - low {
            1 => Scope::Page(low * PAGE),
            2..=33 => Scope::Range { start: low * PAGE, end: high * PAGE, stride: 12 },
            _ => Scope::Full,
        };
        prop_assert_eq!(seen[0], flush(scope, 1, false));
    }
}

#[test]
fn a_failed_map_gives_unlinked_pages_back_without_a_flush() {
    let host = Host::<X86_64>::new(small(1, 1, 16)).unwrap();
    let slots = host.slots();
    let pin = slots[0].pin();
    let log = Log::default();
    let freed = Mutex::new(Vec::new());
    let free = || 0;
    let failing = FailAt::new(host.plain().unwrap());
    let m = HostMachine::new(
        &host,
        Logged { log: &log, inner: failing },
        Recorder { log: &log, free: &free, free_at_invalidate: &freed },
    )
    .unwrap();
    let mut tree = Tree::<X86_64>::new(&m, &pin, AllocFlags::NORMAL).unwrap();
    let tlb = m.tlb().new_space();
    m.tlb().activate(&pin, &tlb, tree.root()).unwrap();
    log.take();
    m.policy().inner.set(2);
    assert!(tree.map(&m, &pin, va(0), Pfn(9), Attr::READ, AllocFlags::NORMAL).is_err());
    let events = log.take();
    assert!(
        matches!(events[..], [Event::Alloc(a), Event::Alloc(b), Event::Unused(c), Event::Unused(d)]
        if a == c && b == d),
        "{events:?}"
    );
    m.policy().inner.set(usize::MAX);
    let mut gather = Gather::ending(parts(&m, &pin), &tlb, 12);
    tree.end(&m, &mut gather, |_, _, _| {});
    drop(gather);
    m.drain(&slots);
    host.audit().unwrap();
}
