//! Slots that are pages of a range of the kernel's half.
use crate::highmem::machine::{HIGH, Tlbs, error, host, low, machine, pins, pool};
use ptarmigan::addr::{Pfn, PhysAddr, VirtAddr};
use ptarmigan::format::{Attr, Entry, Format, FormatExt, X86_64};
use ptarmigan::highmem::pool::PoolConfig;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::table::{KernelSlots, SlotsError};
use ptarmigan::window::WindowGuard;
use ptarmigan_hosted::Host;

const START: u64 = 0xffff_c000_0000_0000;
const LEAF: u64 = 2 << 20;
/// As pages of the kernel's half have it.
const RW: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);

/// The present entry that an MMU finds for `va`.
fn walk(host: &Host<X86_64>, va: u64) -> Option<(Pfn, Attr)> {
    let top = X86_64::LAYOUT.root();
    let mut raw = host.kernel().get(X86_64::index(top, va))?;
    for level in (0..top.0).map(Level).rev() {
        let Entry::Link(at) = X86_64::entry(Level(level.0 + 1), raw) else { return None };
        // SAFETY: 1. it is an entry of a table in use.
        raw = unsafe { host.read(PhysAddr(at.0 + 8 * X86_64::index(level, va) as u64), 8) }?;
    }
    X86_64::is_present(Level::PTE, raw)
        .then(|| (X86_64::frame(Level::PTE, raw), X86_64::attr(Level::PTE, raw)))
}

/// The addresses of the format's kernel half have 64 bits.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_pool_of_kernel_pages_shows_frames_to_every_walker_and_hides_them_after_a_sweep() {
    let host = host(2);
    let tlbs = Tlbs::new();
    let machine = machine(&host, &tlbs);
    let cpus = host.slots();
    let pins = pins(&cpus);
    let on = machine.on(&pins[0]).unwrap();
    let range = host.kernel().claim(on, VirtAddr(START), 2 * LEAF).unwrap();
    let mut boot = host.boot(1 << 16).unwrap();
    // The promise of slots is that their frames can be written to, whatever was asked for.
    let slots = KernelSlots::new(&mut boot, on, range, Attr::READ).ok().unwrap();
    let pool = pool(&host, &machine, PoolConfig::new(2, 1024), &slots).unwrap();
    let shown = |pfn| {
        let base = pool.address_of(pfn)? as u64;
        assert!((START..START + 2 * LEAF).contains(&base));
        walk(&host, base)
    };
    assert_eq!(walk(&host, START), None);
    let held: Vec<_> = (0..700).map(|n| pool.try_map(&pins[n % 2], Pfn(HIGH + n as u32)).unwrap()).collect();
    for (n, page) in held.iter().enumerate() {
        assert_eq!(shown(Pfn(HIGH + n as u32)), Some((Pfn(HIGH + n as u32), RW)));
        assert_eq!(walk(&host, page.base() as u64).map(|(pfn, _)| pfn.0 - HIGH), Some(n as u32));
    }
    drop(held);
    // No user, and there still: a CPU may read it until the sweep.
    let at = pool.address_of(Pfn(HIGH)).unwrap() as u64;
    assert!(walk(&host, at).is_some());
    assert_eq!(pool.flush_unused(&pins[1]).unwrap().stale, 700);
    assert!((0..1024).all(|slot| walk(&host, START + slot * 4096).is_none()));
    assert_eq!(low(&host).limit(), u64::from(HIGH) << 12);
    drop(pool);
    // SAFETY: 1. the pool has gone.
    let range = unsafe { slots.into_range(on) }.ok().unwrap();
    range.release(on, |_, _| panic!("the range maps nothing")).ok().unwrap();
    machine.drain(&cpus);
    host.audit().unwrap();
}

#[test]
fn a_range_comes_back_when_slots_cannot_be_made() {
    let host = host(1);
    let tlbs = Tlbs::new();
    let machine = machine(&host, &tlbs);
    let cpus = host.slots();
    let pin = cpus[0].pin();
    let on = machine.on(&pin).unwrap();
    let range = host.kernel().claim(on, VirtAddr(START), 600 * LEAF).unwrap();
    let mut boot = host.boot(4096).unwrap();
    let _rest = boot.take(4000, |_| 0u8).unwrap();
    let refused = KernelSlots::new(&mut boot, on, range, RW);
    assert!(matches!(error(refused), SlotsError::Boot(_)));
}
