//! Gathers and invalidation: one flush for each operation, of the right size, to the right CPUs,
//! before anything is handed back.
use crate::common;
use common::{FailAt, Mmus, peek, poke, small, va};
use proptest::prelude::*;
use ptarmigan::addr::{Pfn, PhysAddr, VirtRange};
use ptarmigan::cpu::{CpuId, Pinned};
use ptarmigan::format::{Attr, Format, X86_64, X86Pae};
use ptarmigan::frames::AllocFlags;
use ptarmigan::gather::Gather;
use ptarmigan::machine::{Machine, On};
use ptarmigan::page::Level;
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan::space::{Access, Advice, AreaFlags, CollapseLimits, Space};
use ptarmigan::table::{Free, Tree};
use ptarmigan::tlb::{
    CostModel, Generation, Invalidation, Scope, Shootdown, SpaceId, SpaceTlb, Tlb, TlbConfig,
};
use ptarmigan_hosted::test::{Call, LayerCall, Method, TestLayer, TestMmu};
use ptarmigan_hosted::{Delivery, Host, HostMachine};
use std::cell::Cell;
use std::sync::Mutex;

/// The events, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Alloc(PhysAddr),
    FreeUnlinked(PhysAddr),
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

    fn add_mmu(&self, call: &Call) {
        self.add(match *call {
            Call::Invalidate(cpu, Invalidation { scope, tables_freed, reload_root, .. }) => {
                Event::Invalidate { scope, targets: 1 << cpu.0, tables_freed, reload_root }
            }
            Call::Load(cpu, root) => Event::Load(cpu.0, root.space),
            Call::Lazy(cpu, _) => Event::Lazy(cpu.0),
            Call::Unload(cpu, _) => Event::Unload(cpu.0),
            _ => return,
        });
    }

    fn add_layer(&self, call: LayerCall) {
        self.add(match call {
            LayerCall::Allocated(_, Some(at)) => Event::Alloc(at),
            LayerCall::FreeUnlinked(at) => Event::FreeUnlinked(at),
            LayerCall::Flushed(pages) => Event::Flushed(pages),
            LayerCall::GatherEnd => Event::GatherEnd,
            _ => return,
        });
    }
}

/// Sets a machine up that logs, and runs `$body` with it.
macro_rules! machine {
    ($format:ty, $cpus:expr, |$host:ident, $m:ident, $slots:ident, $log:ident, $freed:ident| $body:block) => {
        machine!($format, $cpus, CostModel::LINUX, false, |$host, $m, $slots, $log, $freed| $body);
    };
    ($format:ty, $cpus:expr, $costs:expr, $tagged:literal,
     |$host:ident, $m:ident, $slots:ident, $log:ident, $freed:ident| $body:block) => {
        let $host = Host::<$format>::new(small($cpus, 1, 16)).unwrap();
        let $slots = $host.slots();
        let log = Log::default();
        let $log = &log;
        let $freed = Mutex::new(Vec::new());
        let mmu = TestMmu::<Mmus<false, false, $tagged>>::default();
        mmu.before(|_, call| {
            log.add_mmu(call);
            // No frame may have come back yet.
            if call.method() == Method::Invalidate {
                $freed.lock().unwrap().push($host.frames().counts().free);
            }
        });
        let layer = TestLayer::new(None, |_: &Pinned<'_>, call| log.add_layer(call));
        let policy = Layered::new(layer, $host.plain().unwrap()).unwrap();
        let config = TlbConfig { costs: $costs, ..TlbConfig::new($cpus) };
        let $m = HostMachine::with_tlb(&$host, policy, &mmu, config, Delivery::AtOnce).unwrap();
        $body
        $m.drain(&$slots);
        $host.audit().unwrap();
    };
}

const RW: AreaFlags = AreaFlags(3);
const PAGE: u64 = 4096;

fn pages(start: u64, n: u64) -> VirtRange {
    VirtRange::new(start, start + n * PAGE).unwrap()
}

fn flush(scope: Scope, targets: u32, tables_freed: bool) -> Event {
    Event::Invalidate { scope, targets, tables_freed, reload_root: false }
}

fn invalidations(events: &[Event]) -> Vec<Event> {
    events.iter().copied().filter(|e| matches!(e, Event::Invalidate { .. })).collect()
}

/// The CPU begins to run in a space without tables.
fn run_in<S: Shootdown>(tlb: &Tlb<S>, pin: &Pinned<'_>, space: &SpaceTlb) {
    // SAFETY: 1. there is no MMU that would walk tables.
    unsafe { tlb.activate(pin, space, PhysAddr(0x1000)).unwrap() };
}

#[test]
fn tables_of_changed_pages_add_no_page_to_a_flush() {
    machine!(X86_64, 1, CostModel::ALWAYS_PAGE, true, |host, m, slots, log, freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.activate(on).unwrap();
        // A page in the middle of its table: the first address of the table has not changed.
        let area = pages(0x40_0000 + 77 * PAGE, 1);
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        space.fault(on, va(area.start), Access::Write).unwrap();
        log.take();
        space.edit(on).unwrap().munmap(area).unwrap();
        let scope = Scope::Page { at: area.start, shift: 12 };
        assert_eq!(invalidations(&log.take()), [flush(scope, 1, true)]);
        freed.lock().unwrap().clear();
        space.end(on).unwrap();
    });
}

#[test]
fn a_collapse_flushes_the_span_of_the_table_that_it_replaces() {
    const SPAN: u64 = 2 << 20;
    machine!(X86_64, 1, CostModel::LinuxCeiling { pages: 512 }, false, |host, m, slots, log, freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.activate(on).unwrap();
        let area = pages(0x40_0000, 512);
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for i in 0..512 {
            space.fault(on, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        space.edit(on).unwrap().madvise(area, Advice::Large(true)).unwrap();
        log.take();
        let limits = CollapseLimits { spans: 1, missing: 0 };
        assert_eq!(space.edit(on).unwrap().collapse(va(0), limits).unwrap().large, 1);
        let scope = Scope::Range { start: area.start, end: area.start + SPAN, stride: 12, mixed: true };
        // The pages are copied after the first of its flushes.
        assert_eq!(invalidations(&log.take()).first(), Some(&flush(scope, 1, true)));
        freed.lock().unwrap().clear();
        space.end(on).unwrap();
    });
}

#[test]
fn tables_are_flushed_then_available() {
    machine!(X86_64, 1, |host, m, slots, log, freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.activate(on).unwrap();
        let area = pages(0x40_0000, 8);
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for i in 0..8 {
            space.fault(on, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        host.data().drain(host.frames(), &pin);
        log.take();
        let free = host.frames().counts().free;
        space.edit(on).unwrap().munmap(area).unwrap();
        let scope = Scope::Range { start: area.start, end: area.end, stride: 12, mixed: false };
        assert_eq!(log.take(), [flush(scope, 1, true), Event::Flushed(3), Event::GatherEnd]);
        let early = freed.lock().unwrap().pop().map(|now| now - free);
        assert_eq!(early, Some(1), "but for the record of the area, nothing came back before the flush");
        host.data().drain(host.frames(), &pin);
        assert_eq!(host.frames().counts().free, free + 3 + 8 + 1, "tables, data and the area's record");
        space.end(on).unwrap();
        // First of all the CPU that ran in it goes to the kernel's root: nobody can see the tables
        // that are taken down.
        assert_eq!(log.take(), [Event::Unload(0), Event::Flushed(1), Event::GatherEnd]);
    });
}

#[test]
fn a_table_that_moves_is_flushed_where_it_was() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.activate(on).unwrap();
        space.activate(m.on(&slots[1].pin()).unwrap()).unwrap();
        space.rest(m.on(&slots[1].pin()).unwrap()).unwrap();
        let (from, to) = (pages(0x40_0000, 512), pages(0x80_0000, 512));
        space.edit(on).unwrap().mmap(from, RW, 0).unwrap();
        space.fault(on, va(from.start + 7 * PAGE), Access::Write).unwrap();
        let leaf = space.tree().query(on, va(from.start + 7 * PAGE));
        log.take();
        space.edit(on).unwrap().mremap(from, to, false).unwrap();
        // Walkers, those of lazy CPUs too, may have the table in their paging-structure caches at
        // the old place: the lazy one goes to another root.
        let events = log.take();
        assert_eq!(invalidations(&events), [flush(Scope::Full, 0b01, true)]);
        assert!(events.contains(&Event::Unload(1)), "{events:?}");
        assert_eq!(space.tree().query(on, va(to.start + 7 * PAGE)), leaf);
        assert_eq!(space.tree().count(Level::PTE), 1, "the table itself moved");
        space.end(on).unwrap();
        let _ = &host;
    });
}

#[test]
fn a_flush_is_as_large_as_what_changed() {
    machine!(X86_64, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.activate(on).unwrap();
        // A page on either side keeps the tables.
        let all = pages(0x40_0000, 100);
        let mut counts = m.tlb().counts();
        for n in [1u64, 2, 32, 33, 34, 98] {
            space.edit(on).unwrap().mmap(all, RW, 0).unwrap();
            for i in 0..100 {
                space.fault(on, va(all.start + i * PAGE), Access::Write).unwrap();
            }
            log.take();
            let part = pages(all.start + PAGE, n);
            space.edit(on).unwrap().munmap(part).unwrap();
            let scope = match n {
                1 => Scope::Page { at: part.start, shift: 12 },
                2..=33 => Scope::Range { start: part.start, end: part.end, stride: 12, mixed: false },
                _ => Scope::Full,
            };
            assert_eq!(invalidations(&log.take()), [flush(scope, 1, false)], "{n} pages");
            let now = m.tlb().counts();
            match n {
                1 => assert_eq!((now.page, now.pages), (counts.page + 1, counts.pages + 1)),
                2..=33 => assert_eq!((now.range, now.pages), (counts.range + 1, counts.pages + n as usize)),
                _ => assert_eq!((now.full, now.pages), (counts.full + 1, counts.pages)),
            }
            space.edit(on).unwrap().munmap(all).unwrap();
            counts = m.tlb().counts();
        }
        space.end(on).unwrap();
        let _ = &host;
    });
}

#[test]
fn nothing_is_flushed_when_nothing_changed() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        space.activate(on).unwrap();
        let area = pages(0x40_0000, 16);
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        space.fault(on, va(area.start), Access::Read).unwrap();
        log.take();
        let generation = space.tlb().generation();
        // Permissions gained, empty pages, a page that is there already, a file page mapped for
        // writing.
        space.edit(on).unwrap().mprotect(pages(area.start + PAGE, 8), AreaFlags::READ).unwrap();
        space.edit(on).unwrap().munmap(pages(area.start + 4 * PAGE, 4)).unwrap();
        space.fault(on, va(area.start), Access::Read).unwrap();
        space.edit(on).unwrap().munmap(pages(0x80_0000, 4)).unwrap();
        let child = space.edit(on).unwrap().fork().unwrap();
        assert_eq!(invalidations(&log.take()), []);
        assert_eq!(space.tlb().generation(), generation);
        child.end(on).unwrap();
        assert_eq!(invalidations(&log.take()), [], "a space that no CPU ever loaded needs no flush");
        space.end(on).unwrap();
        let _ = &host;
    });
}

#[test]
fn lazy_cpus_are_flushed_only_when_tables_go() {
    machine!(X86_64, 3, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86_64>::new(on).unwrap();
        let area = pages(0x40_0000, 8);
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for slot in &slots {
            space.activate(m.on(&slot.pin()).unwrap()).unwrap();
        }
        space.rest(m.on(&slots[1].pin()).unwrap()).unwrap();
        for i in 0..8 {
            space.fault(on, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        log.take();
        space.edit(on).unwrap().mprotect(pages(area.start, 1), AreaFlags::READ).unwrap();
        assert_eq!(
            invalidations(&log.take()),
            [flush(Scope::Page { at: area.start, shift: 12 }, 0b101, false)]
        );
        // The lazy CPU missed that: it has to load the root anew. CPU 2 took part and need not.
        space.activate(m.on(&slots[1].pin()).unwrap()).unwrap();
        assert_eq!(log.take(), [Event::Load(1, space.tlb().id())]);
        space.rest(m.on(&slots[1].pin()).unwrap()).unwrap();
        space.activate(m.on(&slots[1].pin()).unwrap()).unwrap();
        assert_eq!(log.take(), [Event::Lazy(1)], "nothing happened in between: the root is still good");
        space.rest(m.on(&slots[1].pin()).unwrap()).unwrap();
        space.edit(on).unwrap().munmap(area).unwrap();
        let scope = Scope::Range { start: area.start, end: area.end, stride: 12, mixed: false };
        let events = log.take();
        assert_eq!(invalidations(&events), [flush(scope, 0b101, true)]);
        assert!(events.contains(&Event::Unload(1)), "the lazy CPU goes to another root: {events:?}");
        space.deactivate(m.on(&slots[2].pin()).unwrap()).unwrap();
        assert!(!space.tlb().is_active_on(CpuId(2)));
        log.take();
        space.end(on).unwrap();
        let ends: Vec<Event> = log.take().into_iter().filter(|e| matches!(e, Event::Unload(_))).collect();
        assert_eq!(ends, [Event::Unload(0)], "nobody else has it any more");
        let _ = &host;
    });
}

#[test]
fn a_lazy_cpu_that_flushes_for_others_is_not_up_to_date_itself() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let mut space = Space::<X86_64>::new(m.on(&slots[0].pin()).unwrap()).unwrap();
        let area = pages(0x40_0000, 4);
        space.edit(m.on(&slots[0].pin()).unwrap()).unwrap().mmap(area, RW, 0).unwrap();
        space.activate(m.on(&slots[0].pin()).unwrap()).unwrap();
        space.activate(m.on(&slots[1].pin()).unwrap()).unwrap();
        for i in 0..4 {
            space.fault(m.on(&slots[0].pin()).unwrap(), va(area.start + i * PAGE), Access::Write).unwrap();
        }
        space.rest(m.on(&slots[0].pin()).unwrap()).unwrap();
        log.take();
        // The call is made on the CPU that only keeps the root loaded.
        space
            .edit(m.on(&slots[0].pin()).unwrap())
            .unwrap()
            .mprotect(pages(area.start, 1), AreaFlags::READ)
            .unwrap();
        assert_eq!(
            invalidations(&log.take()),
            [flush(Scope::Page { at: area.start, shift: 12 }, 0b10, false)]
        );
        space.activate(m.on(&slots[0].pin()).unwrap()).unwrap();
        assert_eq!(log.take(), [Event::Load(0, space.tlb().id())], "CPU 0 was no target: it must forget now");
        space.end(m.on(&slots[0].pin()).unwrap()).unwrap();
        let _ = &host;
    });
}

#[test]
fn a_cpu_that_missed_one_flush_is_not_brought_up_to_date_by_the_next() {
    machine!(X86_64, 2, |host, m, slots, log, _freed| {
        let mut space = Space::<X86_64>::new(m.on(&slots[0].pin()).unwrap()).unwrap();
        let area = pages(0x40_0000, 4);
        space.edit(m.on(&slots[0].pin()).unwrap()).unwrap().mmap(area, RW, 0).unwrap();
        space.activate(m.on(&slots[0].pin()).unwrap()).unwrap();
        for i in 0..4 {
            space.fault(m.on(&slots[0].pin()).unwrap(), va(area.start + i * PAGE), Access::Write).unwrap();
        }
        space.rest(m.on(&slots[0].pin()).unwrap()).unwrap();
        // Missed while lazy.
        space
            .edit(m.on(&slots[1].pin()).unwrap())
            .unwrap()
            .mprotect(pages(area.start, 1), AreaFlags::READ)
            .unwrap();
        let before = space.tlb().generation();
        assert_eq!(before, Generation(1), "raised although no CPU had to be told");
        space.activate(m.on(&slots[0].pin()).unwrap()).unwrap();
        log.take();
        space.rest(m.on(&slots[0].pin()).unwrap()).unwrap();
        space.activate(m.on(&slots[0].pin()).unwrap()).unwrap();
        assert_eq!(log.take(), [Event::Lazy(0)], "the load before caught up");
        space.end(m.on(&slots[0].pin()).unwrap()).unwrap();
        let _ = &host;
    });
}

#[test]
fn a_switch_to_another_space_and_back_loads_the_root() {
    machine!(X86_64, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let one = Space::<X86_64>::new(on).unwrap();
        let two = Space::<X86_64>::new(on).unwrap();
        log.take();
        one.activate(on).unwrap();
        one.rest(on).unwrap();
        two.activate(on).unwrap();
        two.rest(on).unwrap();
        one.activate(on).unwrap();
        let loads: Vec<Event> = log.take().into_iter().filter(|e| matches!(e, Event::Load(..))).collect();
        assert_eq!(loads, [&one, &two, &one].map(|s| Event::Load(0, s.tlb().id())));
        one.end(on).unwrap();
        two.end(on).unwrap();
        let _ = &host;
    });
}

#[test]
fn pae_tops_keep_their_entries_until_the_space_ends() {
    machine!(X86Pae, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut space = Space::<X86Pae>::new(on).unwrap();
        assert_eq!(space.tree().count(Level(1)), 3, "filled when the space is made");
        let root = space.tree().root();
        // SAFETY: 1. it is an entry of a table in use.
        let entries: Vec<_> = (0..4).map(|i| unsafe { host.read(PhysAddr(root.0 + 8 * i), 8) }).collect();
        space.activate(on).unwrap();
        let area = pages(0x4000_0000, 600);
        space.edit(on).unwrap().mmap(area, RW, 0).unwrap();
        for i in 0..600 {
            space.fault(on, va(area.start + i * PAGE), Access::Write).unwrap();
        }
        assert_eq!(space.tree().count(Level(0)), 2);
        space.edit(on).unwrap().munmap(area).unwrap();
        assert_eq!(space.tree().count(Level(0)), 0);
        assert_eq!(space.tree().count(Level(1)), 3);
        // SAFETY: 1. it is an entry of a table in use.
        let now: Vec<_> = (0..4).map(|i| unsafe { host.read(PhysAddr(root.0 + 8 * i), 8) }).collect();
        assert_eq!(now, entries);
        log.take();
        space.end(on).unwrap();
        let events = log.take();
        assert_eq!(events[..2], [Event::Unload(0), Event::Flushed(4)], "three tables and the root");
    });
}

#[test]
fn a_change_of_a_top_in_registers_reloads_the_root() {
    machine!(X86Pae, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let tlb = m.tlb().new_space();
        run_in(m.tlb(), &pin, &tlb);
        let mut gather = Gather::new(on, &tlb, X86Pae::PAGE_SHIFT).unwrap();
        gather.changed(0x1000, 0x2000);
        gather.root_entry_changed();
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
        let on = m.on(&pin).unwrap();
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        tree.activate(on).unwrap();
        let map = |tree: &mut Tree<X86_64>| {
            let mut edit = tree.edit(on).unwrap();
            // SAFETY: 1. no program runs in the tree.
            unsafe { edit.map(va(0x1000), Pfn(77), Attr::READ | Attr::USER, AllocFlags::NORMAL).unwrap() };
        };
        map(&mut tree);
        log.take();
        let mut edit = tree.edit(on).unwrap();
        edit.unmap_range(pages(0, 16), Free::Empty, |_, pfn, _| assert_eq!(pfn, Pfn(77)));
        assert_eq!(edit.waiting(), (3, 0));
        assert_eq!(log.take(), []);
        drop(edit);
        assert_eq!(
            log.take(),
            [flush(Scope::Page { at: 0x1000, shift: 12 }, 1, true), Event::Flushed(3), Event::GatherEnd]
        );
        assert_eq!(freed.lock().unwrap().len(), 1);
        // Flushed pages may be looked at before they are given back.
        map(&mut tree);
        let id = tree.tlb().id();
        let mut edit = tree.edit(on).unwrap();
        edit.unmap_range(pages(0, 16), Free::Empty, |_, _, _| {});
        let released = edit.into_released();
        let ticket = released.ticket().expect("something was flushed");
        assert_eq!((ticket.space, ticket.generation), (id, Generation(2)));
        assert!(ticket.active.has(CpuId(0)) && ticket.lazy.is_empty());
        let live = m.policy().counts().live();
        drop(released);
        assert_eq!(m.policy().counts().live(), live - 3);
        tree.end(on, |_, _, _| {}).unwrap();
        let _ = &host;
    });
}

#[test]
fn dropping_a_gather_gives_data_frames_back_after_the_flush() {
    machine!(X86_64, 1, |host, m, slots, log, freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let tlb = m.tlb().new_space();
        run_in(m.tlb(), &pin, &tlb);
        let attr = Attr::READ | Attr::USER;
        // Enough for some to go past the CPU's own list.
        let taken: Vec<Pfn> = (0..600)
            .map(|_| m.data().take(m.frames(), &pin, AllocFlags::NORMAL).unwrap().into_raw())
            .collect();
        m.data().drain(m.frames(), &pin);
        let free = host.frames().counts().free;
        let mut gather = Gather::new(on, &tlb, 12).unwrap();
        for (i, pfn) in taken.iter().enumerate() {
            // SAFETY: 1. mapped nowhere: its only reference is given away. 2. below.
            unsafe { gather.release::<X86_64>(Level::PTE, X86_64::leaf(Level::PTE, *pfn, attr)) };
            gather.changed(i as u64 * PAGE, (i as u64 + 1) * PAGE);
        }
        // A special frame has no references.
        // SAFETY: 1. it is special. 2. below.
        unsafe {
            gather.release::<X86_64>(Level::PTE, X86_64::leaf(Level::PTE, Pfn(77), attr | Attr::SPECIAL))
        };
        gather.changed(0, PAGE);
        assert_eq!(gather.waiting(), (0, 600));
        log.take();
        freed.lock().unwrap().clear();
        drop(gather);
        assert_eq!(log.take(), [flush(Scope::Full, 1, false), Event::GatherEnd]);
        assert_eq!(*freed.lock().unwrap(), [free], "nothing came back before the flush");
        m.data().drain(m.frames(), &pin);
        assert_eq!(host.frames().counts().free, free + 600);
    });
}

/// Whether entries of the tree are changed with plain stores: bits that an MMU sets just before the
/// store are lost then. `at` is where the entry of the page at address 0 lies.
fn is_private<M: Machine>(host: &Host<X86_64>, on: On<'_, M>, tree: &mut Tree<X86_64>, at: u64) -> bool {
    const DIRTY: u64 = 1 << 6;
    poke(host, at, peek(host, at) & !DIRTY);
    let calls = Cell::new(0);
    let change = |attr: Attr| {
        calls.update(|n| n + 1);
        // The entry has been loaded, and is not stored yet. The first call is before any change.
        if calls.get() == 2 {
            poke(host, at, peek(host, at) | DIRTY);
        }
        Attr(attr.0 ^ Attr::ACCESSED.0)
    };
    tree.edit(on).unwrap().change_range(pages(0, 1), change).unwrap();
    peek(host, at) & DIRTY == 0
}

#[test]
fn entries_are_changed_with_plain_stores_only_if_no_cpu_has_the_space() {
    machine!(X86_64, 1, |host, m, slots, log, _freed| {
        let pin = slots[0].pin();
        let on = m.on(&pin).unwrap();
        let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
        let attr = Attr::READ | Attr::USER;
        // SAFETY: 1. no program runs in the tree.
        unsafe { tree.edit(on).unwrap().map(va(0), Pfn(77), attr, AllocFlags::NORMAL).unwrap() };
        let leaf = (1..4).rev().fold(tree.root(), |at, level| {
            X86_64::linked(Level(level), peek(&host, at.0))
                .expect("the first entry of each table is the link")
        });
        assert!(is_private(&host, on, &mut tree, leaf.0));
        tree.activate(on).unwrap();
        assert!(!is_private(&host, on, &mut tree, leaf.0));
        m.tlb().rest(&pin, tree.tlb()).unwrap();
        assert!(!is_private(&host, on, &mut tree, leaf.0), "a lazy CPU's walker still walks");
        log.take();
        tree.deactivate(on).unwrap();
        assert_eq!(log.take(), [Event::Unload(0)]);
        assert!(is_private(&host, on, &mut tree, leaf.0));
        // The library does not know other users of foreign tables.
        let tlb = m.tlb().new_space();
        assert!(!Gather::new(on, &tlb, 12).unwrap().is_private());
        tree.end(on, |_, _, _| {}).unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_gather_covers_all_that_changed(ranges in proptest::collection::vec((0u64..5000, 1u64..40), 1..12)) {
        let seen;
        machine!(X86_64, 1, |host, m, slots, log, _freed| {
            let pin = slots[0].pin();
            let on = m.on(&pin).unwrap();
            let tlb = m.tlb().new_space();
            run_in(m.tlb(), &pin, &tlb);
            log.take();
            let mut gather = Gather::new(on, &tlb, 12).unwrap();
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
            // Nobody knows the sizes of pages that are not the library's.
            1..=33 => Scope::Range { start: low * PAGE, end: high * PAGE, stride: 12, mixed: true },
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
    let layer = TestLayer::new(None, |_: &Pinned<'_>, call| log.add_layer(call));
    let policy = Layered::new(layer, Layered::new(FailAt::new(), host.plain().unwrap()).unwrap()).unwrap();
    let mmu = TestMmu::new();
    mmu.before(|_, call| log.add_mmu(call));
    let m = HostMachine::new(&host, policy, &mmu).unwrap();
    let on = m.on(&pin).unwrap();
    let mut tree = Tree::<X86_64>::new(on, AllocFlags::NORMAL).unwrap();
    tree.activate(on).unwrap();
    log.take();
    m.policy().inner().layer().set(2);
    // SAFETY: 1. no program runs in the tree.
    let failed = unsafe { tree.edit(on).unwrap().map(va(0), Pfn(9), Attr::READ, AllocFlags::NORMAL) };
    assert!(failed.is_err());
    let events = log.take();
    assert!(
        matches!(events[..], [Event::Alloc(a), Event::Alloc(b), Event::FreeUnlinked(c), Event::FreeUnlinked(d)]
        if a == d && b == c),
        "{events:?}"
    );
    m.policy().inner().layer().set(usize::MAX);
    tree.end(on, |_, _, _| {}).unwrap();
    m.drain(&slots);
    host.audit().unwrap();
}
