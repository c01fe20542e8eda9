//! Control registers and model-specific registers, as the released crate `x86_64` uses them.
use super::{GLOBAL, Machine, config, store};
use crate::PAGE;
use ptsan::watch::Watch;
use ptsan::{Arch, Config, Content, Flush, Kind, Sanitizer};
use x86_64::PhysAddr;
use x86_64::VirtAddr;
use x86_64::instructions::interrupts;
use x86_64::instructions::tlb::{self, InvPcidCommand, Pcid};
use x86_64::registers::control::{Cr0, Cr0Flags, Cr2, Cr3, Cr3Flags, Cr4, Cr4Flags};
use x86_64::registers::model_specific::{Efer, EferFlags, LStar, Msr};
use x86_64::structures::paging::PhysFrame;

const VA: u64 = 0x4020_4000;

fn frame(phys: u64) -> PhysFrame {
    PhysFrame::from_start_address(PhysAddr::new(phys)).expect("a multiple of 4096")
}

fn pcid(number: u16) -> Pcid {
    Pcid::new(number).expect("below 4096")
}

/// Loads a root.
fn load(root: u64) {
    // SAFETY: the register is emulated.
    unsafe { Cr3::write(frame(root), Cr3Flags::empty()) };
}

/// Loads a root with a PCID, and flushes the entries of the PCID unless they are kept.
fn load_pcid(root: u64, number: u16, keep: bool) {
    // SAFETY: the register is emulated.
    unsafe {
        match keep {
            true => Cr3::write_pcid_no_flush(frame(root), pcid(number)),
            false => Cr3::write_pcid(frame(root), pcid(number)),
        }
    }
}

fn invpcid(command: InvPcidCommand) {
    // SAFETY: the instruction is emulated.
    unsafe { tlb::flush_pcid(command) };
}

fn update_cr4(change: impl FnOnce(&mut Cr4Flags)) {
    // SAFETY: the register is emulated.
    unsafe { Cr4::update(change) };
}

fn with_pcids(bits: u64) -> Machine {
    let machine = Machine::new(Config { asids: true, ..config() }, VA, bits);
    machine.run(|| update_cr4(|cr4| cr4.insert(Cr4Flags::PCID)));
    machine
}

#[test]
fn registers_read_what_was_written_and_begin_as_in_64_bit_mode() {
    let machine = Machine::plain(VA);
    machine.run(|| {
        assert_eq!(Cr3::read(), (frame(machine.root), Cr3Flags::empty()), "what the hook loaded");
        let first = Cr0::read();
        assert!(first.contains(Cr0Flags::PAGING | Cr0Flags::PROTECTED_MODE_ENABLE | Cr0Flags::WRITE_PROTECT));
        assert!(Cr4::read().contains(Cr4Flags::PHYSICAL_ADDRESS_EXTENSION | Cr4Flags::PAGE_GLOBAL));
        assert!(Efer::read().contains(EferFlags::LONG_MODE_ACTIVE | EferFlags::NO_EXECUTE_ENABLE));
        // SAFETY: the registers are emulated.
        unsafe {
            Cr0::write(first - Cr0Flags::WRITE_PROTECT);
            Cr3::write(frame(machine.root), Cr3Flags::PAGE_LEVEL_CACHE_DISABLE);
            Cr4::update(|cr4| cr4.insert(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION));
            Efer::update(|efer| efer.remove(EferFlags::SYSTEM_CALL_EXTENSIONS));
            assert_eq!(Msr::new(0x277).read(), 0x0007_0406_0007_0406);
            Msr::new(0x277).write(0x0106_0406_0007_0406);
            assert_eq!(Msr::new(0x277).read(), 0x0106_0406_0007_0406);
        }
        LStar::write(VirtAddr::new(0xffff_8000_dead_beef));
        assert_eq!(Cr0::read(), first - Cr0Flags::WRITE_PROTECT);
        assert_eq!(Cr3::read(), (frame(machine.root), Cr3Flags::PAGE_LEVEL_CACHE_DISABLE));
        assert!(Cr4::read().contains(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION));
        assert!(!Efer::read().contains(EferFlags::SYSTEM_CALL_EXTENSIONS));
        assert_eq!(LStar::read(), VirtAddr::new(0xffff_8000_dead_beef));
        assert_eq!(Cr2::read().expect("canonical"), VirtAddr::zero());
    });
    assert_eq!(machine.total(), 0, "{}", machine.watch);
}

#[test]
fn registers_belong_to_a_cpu_not_to_a_thread() {
    let machine = Machine::plain(VA);
    // SAFETY: the register is emulated; the code does not halt.
    machine.run(|| unsafe { Cr0::update(|cr0| cr0.remove(Cr0Flags::WRITE_PROTECT)) });
    let on = |cpu| {
        // SAFETY: 1. The code does not halt. 2. It reads a register.
        let ended = unsafe { machine.watch.run_on(cpu, || Cr0::read().contains(Cr0Flags::WRITE_PROTECT)) };
        ended.expect("runs").returned().expect("returns")
    };
    assert_eq!([on(0), on(1)], [false, true]);
    assert!(!std::thread::scope(|scope| scope.spawn(|| on(0)).join().expect("no panic")));
}

#[test]
fn five_levels_show_in_cr4() {
    for (arch, five) in [(Arch::x86_64(), false), (Arch::x86_64_la57(), true)] {
        let watch = Watch::identity(PAGE as usize, Sanitizer::new(Config::new(arch))).expect("a watch");
        // SAFETY: 1. The code does not halt. 2. It reads a register.
        let ended = unsafe { watch.run_on(0, || Cr4::read().contains(Cr4Flags::L5_PAGING)) };
        assert_eq!(ended.expect("runs").returned(), Some(five));
    }
}

/// A name, kernel code, and whether the code drops the pages of the current space, and its global
/// ones.
type Drop = (&'static str, fn(&Machine), [bool; 2]);

const DROPS: [Drop; 8] = [
    ("nothing", |_| {}, [false, false]),
    ("interrupts off and on", |_| interrupts::without_interrupts(|| {}), [false, false]),
    ("invlpg", |m| tlb::flush(VirtAddr::new(m.va)), [true, true]),
    ("reload of CR3", |_| tlb::flush_all(), [true, false]),
    ("CR4.PGE cleared", |_| update_cr4(|cr4| cr4.remove(Cr4Flags::PAGE_GLOBAL)), [true, true]),
    ("invpcid 1", |_| invpcid(InvPcidCommand::Single(pcid(0))), [true, false]),
    ("invpcid 2", |_| invpcid(InvPcidCommand::All), [true, true]),
    ("invpcid 3", |_| invpcid(InvPcidCommand::AllExceptGlobal), [true, false]),
];

#[test]
fn each_way_to_flush_drops_what_processors_drop() {
    for asids in [false, true] {
        for (name, flush, drops) in DROPS {
            for global in [false, true] {
                let bits = if global { GLOBAL } else { 0 };
                let machine = Machine::new(Config { asids, ..config() }, VA, bits);
                machine.use_both(0);
                machine.unmap_both();
                machine.run(|| flush(&machine));
                let dropped = drops[usize::from(global)];
                assert_eq!(machine.reaches(0, 0), !dropped, "{name}, global {global}, PCIDs {asids}");
                assert_eq!(machine.total(), u64::from(!dropped), "{name}: {}", machine.watch);
            }
        }
    }
}

#[test]
fn invpcid_of_an_address_spares_global_pages_and_other_spaces() {
    for global in [false, true] {
        let machine = with_pcids(if global { GLOBAL } else { 0 });
        machine.use_both(0);
        machine.unmap_both();
        let flush = |number| invpcid(InvPcidCommand::Address(VirtAddr::new(VA), pcid(number)));
        // No code has ever run in this space.
        machine.run(|| {
            flush(5);
            invpcid(InvPcidCommand::Single(pcid(6)));
        });
        assert_eq!(machine.total(), 0, "it may be flushed all the same: {}", machine.watch);
        assert!(machine.reaches(0, 0), "another space was flushed");
        machine.run(|| flush(0));
        assert_eq!(machine.held(0), [global, true]);
    }
}

/// `invlpg` ends the debt of a CPU for a global page, `invpcid` does not.
#[test]
fn invpcid_of_an_address_leaves_the_flush_of_a_global_page_owed() {
    for (global, by_number) in [(false, false), (false, true), (true, false), (true, true)] {
        let machine = with_pcids(if global { GLOBAL } else { 0 });
        machine.use_both(0);
        machine.run(|| {
            store(machine.entry, 0);
            match by_number {
                true => invpcid(InvPcidCommand::Address(VirtAddr::new(VA), pcid(0))),
                false => tlb::flush(VirtAddr::new(VA)),
            }
        });
        machine.watch.with(|san, ram| san.flushes_done(ram));
        let owed = machine.watch.with(|san, _| san.count(Kind::FlushMissing));
        assert_eq!(owed, u64::from(global && by_number), "{global} {by_number}: {}", machine.watch);
    }
}

/// `invlpg` drops all tables of the space, `invpcid` those on the way to its address.
#[test]
fn invpcid_of_an_address_spares_the_tables_of_other_addresses() {
    const OTHER: u64 = VA + (1 << 30);
    for (address, by_number, found) in [(VA, true, 0), (OTHER, true, 1), (OTHER, false, 0)] {
        let machine = with_pcids(0);
        let (root, table) = (machine.root, machine.root + 3 * PAGE);
        // A walk to an empty entry: the CPU holds the tables, and no translation.
        assert!(!machine.reaches(0, 7), "no page is mapped there");
        machine.run(|| {
            store(root + 2 * PAGE + (VA >> 21 & 511) * 8, 0);
            match by_number {
                true => invpcid(InvPcidCommand::Address(VirtAddr::new(address), pcid(0))),
                false => tlb::flush(VirtAddr::new(address)),
            }
        });
        machine.watch.with(|san, ram| san.table_freed(ram, table, PAGE));
        let count = machine.watch.with(|san, _| san.count(Kind::FreeBeforeFlush));
        assert_eq!(count, found, "{address:#x} {by_number}: {}", machine.watch);
    }
}

#[test]
fn only_a_cr3_load_with_bit_63_keeps_translations() {
    for keep in [false, true] {
        let machine = with_pcids(0);
        let root = machine.root;
        machine.use_both(0);
        machine.run(|| load_pcid(root, 3, false));
        machine.use_both(0);
        machine.unmap_both();
        machine.run(|| {
            load_pcid(root, 0, keep);
            assert_eq!(Cr3::read_pcid(), (frame(root), pcid(0)));
        });
        assert_eq!(machine.held(0), [keep; 2], "space 0, bit 63: {keep}");
        // The other space was not flushed in either case.
        machine.run(|| load_pcid(root, 3, true));
        assert_eq!(machine.held(0), [true; 2], "space 3");
        machine.run(|| invpcid(InvPcidCommand::Single(pcid(3))));
        assert_eq!(machine.held(0), [false; 2], "space 3 after its flush");
    }
}

#[test]
fn invpcid_of_every_space_reaches_those_that_are_not_loaded() {
    for (command, kept) in [
        (InvPcidCommand::AllExceptGlobal, false),
        (InvPcidCommand::All, false),
        (InvPcidCommand::Single(pcid(0)), true),
    ] {
        let machine = with_pcids(0);
        let root = machine.root;
        machine.run(|| load_pcid(root, 3, false));
        machine.use_both(0);
        machine.unmap_both();
        machine.run(|| {
            load_pcid(root, 0, false);
            invpcid(command);
            load_pcid(root, 3, true);
        });
        assert_eq!(machine.held(0), [kept; 2]);
    }
}

#[test]
fn without_pcids_each_root_is_a_space_and_each_load_flushes() {
    for asids in [false, true] {
        let machine = Machine::new(Config { asids, ..config() }, VA, 0);
        machine.use_both(0);
        machine.unmap_both();
        let (root, other) = (machine.root, machine.root + 14 * PAGE);
        machine.watch.with(|san, ram| san.table_allocated(ram, other, PAGE, None, Content::Zero));
        machine.run(|| {
            load(other);
            load(root);
        });
        assert_eq!((machine.held(0), machine.total()), ([false; 2], 0), "{}", machine.watch);
        machine.watch.with(|san, ram| {
            san.flush(ram, 0, Flush::space(if asids { 0 } else { other }));
            assert_eq!(san.total(), 0, "spaces are known by these numbers: {san}");
        });
    }
}
