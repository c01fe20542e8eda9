//! Random correct operations of `x86_64` 0.16 on two CPUs, and one that forgets its flush.
use ptsan::adapters::Machine;
use ptsan::{Access, Adversary, Arch, Config, Expected, Kind};
use ptsan_x86_64_0_16::{Forward, Space};
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{Mapper, Page, PageTableFlags as Flags, PhysFrame, Size4KiB, Translate};
use x86_64::{PhysAddr, VirtAddr};

const PAGES: u64 = 1024;
/// Behind the machine's memory.
const DATA: u64 = 1 << 32;

fn machine(seed: u64) -> (Machine, Space) {
    let adversary = Some(Adversary::new(seed));
    let machine = Machine::new(Config { cpus: 2, adversary, ..Config::new(Arch::x86_64()) });
    let space = Space::new(&machine, 1).unwrap();
    (0..2).for_each(|cpu| machine.load(cpu, space.root(), 1));
    (machine, space)
}

fn page(n: u64) -> Page<Size4KiB> {
    Page::containing_address(VirtAddr::new(n * 4096))
}

#[test]
fn random_correct_operations_are_silent() {
    for seed in 1..=6 {
        let (machine, mut space) = machine(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        // The crate clears a table after it has linked it.
        let mut frames = space.frames().zeroed();
        for _ in 0..600 {
            let (at, writable) = (page(random.u64(..PAGES)), random.bool());
            let flags = Flags::PRESENT | Flags::USER_ACCESSIBLE;
            let flags = if writable { flags | Flags::WRITABLE } else { flags };
            match random.u64(..3) {
                0 => {
                    let frame = PhysFrame::containing_address(PhysAddr::new(DATA + random.u64(..64) * 4096));
                    // SAFETY: the frame is simulated.
                    if let Ok(flush) = unsafe { space.mapper().map_to(at, frame, flags, &mut frames) } {
                        flush.forward(&machine, 1);
                    }
                }
                1 => {
                    if let Ok((_, _, flush)) = space.mapper().unmap(at) {
                        flush.forward(&machine, 1);
                    }
                }
                _ => {
                    // SAFETY: no memory is reached through the page.
                    if let Ok(flush) = unsafe { space.mapper().update_flags(at, flags) } {
                        flush.forward(&machine, 1);
                    }
                }
            }
            for cpu in 0..2 {
                let _ = machine.access(cpu, random.u64(..PAGES) * 4096, Access::WRITE);
            }
        }
        for n in 0..PAGES {
            let phys = space.mapper().translate_addr(VirtAddr::new(n * 4096)).map(PhysAddr::as_u64);
            machine.expect(0, n * 4096, phys.map(|phys| Expected { phys, size: None, perms: None }));
        }
        assert_eq!(machine.sanitizer(|san, _| san.total()), 0, "seed {seed}: {machine}");
    }
}

#[test]
fn a_forgotten_flush_is_found() {
    let (machine, mut space) = machine(1);
    let mut frames = space.frames().zeroed();
    let frame = PhysFrame::containing_address(PhysAddr::new(DATA));
    let flags = Flags::PRESENT | Flags::WRITABLE | Flags::USER_ACCESSIBLE;
    // SAFETY: the frame is simulated.
    unsafe { space.mapper().map_to(page(5), frame, flags, &mut frames) }.unwrap().forward(&machine, 1);
    machine.access(1, 5 * 4096, Access::WRITE).unwrap();
    space.mapper().unmap(page(5)).unwrap().2.ignore();
    machine.access(1, 5 * 4096, Access::WRITE).unwrap();
    assert_eq!(machine.sanitizer(|san, _| san.count(Kind::StaleUse)), 1, "{machine}");
}

#[test]
fn tables_that_are_cleaned_up_are_flushed_first() {
    let (machine, mut space) = machine(1);
    let mut frames = space.frames().zeroed();
    let frame = PhysFrame::containing_address(PhysAddr::new(DATA));
    // SAFETY: the frame is simulated, and no CPU has the space loaded when its tables go.
    unsafe {
        let mapped = space.mapper().map_to(page(5), frame, Flags::PRESENT, &mut frames);
        mapped.unwrap().forward(&machine, 1);
        space.mapper().unmap(page(5)).unwrap().2.forward(&machine, 1);
        (0..2).for_each(|cpu| machine.leave(cpu));
        space.mapper().clean_up(&mut frames);
    }
    space.destroy();
    machine.finish();
    assert_eq!(machine.sanitizer(|san, _| san.total()), 0, "{machine}");
}

/// Number 1 of `docs/defects.md`, which is about 0.15.5: `create_next_table` links, then clears.
#[test]
fn a_table_is_still_linked_before_it_is_cleared() {
    let (machine, mut space) = machine(1);
    let mut frames = space.frames();
    machine.walk_ahead(0, 0x4000_0000);
    let frame = PhysFrame::containing_address(PhysAddr::new(DATA));
    // SAFETY: the frame is simulated.
    unsafe { space.mapper().map_to(page(5), frame, Flags::PRESENT, &mut frames) }
        .unwrap()
        .forward(&machine, 1);
    assert!(machine.sanitizer(|san, _| san.count(Kind::LinkedBeforeCleared)) > 0, "{machine}");
}
