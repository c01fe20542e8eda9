//! `ax-page-table-multiarch`, a fork of `page_table_multiarch`, has three defects of the original:
//! tables freed while the root points at them, in two ways, and a large page remapped to an
//! address with reserved bits.
//!
//! The fork calls its user's flush on hosts too, so each flush is carried out where the crate asks
//! for it.
//!
//! `cargo run -p ptsan-released --example ax_page_table_multiarch`
use ax_memory_addr::{PhysAddr, VirtAddr};
use ax_page_table_entry::x86_64::X64PTE;
use ax_page_table_multiarch::{MappingFlags, PageSize, PageTable64, PagingHandler, PagingMetaData};
use ptsan::adapters::{Current, Machine};
use ptsan::{Access, Adversary, Arch, Config, Expected, Kind, Perms};
use ptsan_released::{Defect, silent};
use std::cell::RefCell;
use std::collections::BTreeMap;

const CPUS: usize = 4;
const PAGE: usize = 4096;
const LARGE: usize = 0x20_0000;
const VA: usize = 0x7000;
const READ_WRITE: MappingFlags = MappingFlags::READ.union(MappingFlags::WRITE).union(MappingFlags::USER);

type Table = PageTable64<Format, X64PTE, Frames>;

thread_local! {
    /// The machine of the test: the crate's hooks have no argument.
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

fn machine() -> Machine {
    match MACHINE.with(|m| m.borrow().clone()) {
        Some(machine) => machine,
        None => panic!("each test makes a machine first"),
    }
}

struct Frames;

impl PagingHandler for Frames {
    fn alloc_frames(frames: usize, align: usize) -> Option<PhysAddr> {
        machine().allocate_run(frames as u64, align as u64).map(|frame| PhysAddr::from_usize(frame as usize))
    }

    fn dealloc_frames(frame: PhysAddr, frames: usize) {
        machine().free(frame.as_usize() as u64, (frames * PAGE) as u64);
    }

    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from_mut_ptr_of(machine().pointer(frame.as_usize() as u64))
    }
}

/// x86-64, with the flushes of the machine.
struct Format;

impl PagingMetaData for Format {
    const LEVELS: usize = 4;
    const PA_MAX_BITS: usize = 52;
    const VA_MAX_BITS: usize = 48;

    type VirtAddr = VirtAddr;

    fn flush_tlb(va: Option<VirtAddr>) {
        machine().flush_loaded(va.map(|va| va.as_usize() as u64));
    }
}

/// Makes a machine on which the tests of the crate run.
fn enter(seed: u64) -> (Machine, Current) {
    let adversary = Some(Adversary::new(seed));
    let machine = Machine::new(Config { cpus: CPUS, adversary, ..Config::new(Arch::x86_64()) });
    MACHINE.with(|m| *m.borrow_mut() = Some(machine.clone()));
    let current = machine.enter();
    (machine, current)
}

fn empty() -> Table {
    Table::try_new().expect("a machine has frames")
}

fn with_a_page(frame: usize) -> Table {
    let mut table = empty();
    let (va, frame) = (VirtAddr::from_usize(VA), PhysAddr::from_usize(frame));
    table.cursor().map(va, frame, PageSize::Size4K, READ_WRITE).expect("the page is free");
    table
}

fn load(machine: &Machine, table: &Table) {
    (0..CPUS).for_each(|cpu| machine.load(cpu, table.root_paddr().as_usize() as u64, 1));
}

fn leave(machine: &Machine) {
    (0..CPUS).for_each(|cpu| machine.leave(cpu));
}

fn found(machine: &Machine, defect: &Defect) {
    machine.sanitizer(|san, _| defect.found(san));
}

fn old_tables_first() {
    let (machine, _current) = enter(1);
    let mut table = with_a_page(0x123_4000);
    let source = with_a_page(0x567_8000);
    load(&machine, &table);
    let _ = machine.access(0, VA as u64, Access::READ);
    table.cursor().copy_from(&source, VirtAddr::from_usize(0), 1 << 39);
    found(
        &machine,
        &Defect {
            title: "copy_from frees the old tables while the root still points at them",
            source: "ax-page-table-multiarch 0.8.15, src/bits64.rs:640 deallocates, :642 replaces the entry; the flush \
                     comes when the cursor is dropped",
            why: "Between the two lines the walker reaches freed tables from the live root; until the flush it holds \
                  them in its paging-structure cache.",
            must: &[Kind::FreeWhileLinked, Kind::FreeBeforeFlush],
            may: &[Kind::UseAfterFree],
        },
    );
    leave(&machine);
    drop((table, source));
}

fn source_dropped_first() {
    let (machine, _current) = enter(2);
    let mut table = empty();
    let source = with_a_page(0x567_8000);
    table.cursor().copy_from(&source, VirtAddr::from_usize(0), 1 << 39);
    load(&machine, &table);
    let _ = machine.access(0, VA as u64, Access::READ);
    drop(source);
    found(
        &machine,
        &Defect {
            title: "a table that was copied from can be dropped while the copy is loaded",
            source: "ax-page-table-multiarch 0.8.15, src/bits64.rs:619 takes the source by a reference that ends with \
                     the call, :642 copies its entries, :345 frees what they point at",
            why: "copy_from is a safe function without a condition on the source. After the drop the loaded root leads \
                  to frames that have another owner.",
            must: &[Kind::FreeWhileLinked, Kind::FreeBeforeFlush],
            may: &[Kind::UseAfterFree],
        },
    );
    leave(&machine);
    drop(table);
}

fn reserved_bits() {
    let (machine, _current) = enter(3);
    let mut table = empty();
    load(&machine, &table);
    let (va, frame) = (VirtAddr::from_usize(LARGE), PhysAddr::from_usize(0x4000_0000));
    table.cursor().map(va, frame, PageSize::Size2M, READ_WRITE).expect("the page is free");
    let size = table.cursor().remap(va, PhysAddr::from_usize(0x123_4000), READ_WRITE);
    assert_eq!(size, Ok(PageSize::Size2M), "the call says that it went well");
    assert!(machine.access(0, LARGE as u64, Access::READ).is_err(), "no page of it can be used");
    found(
        &machine,
        &Defect {
            title: "remap of a large page stores an address with reserved bits",
            source: "ax-page-table-multiarch 0.8.15, src/bits64.rs:437 (map aligns the frame down at :418, remap does \
                     not)",
            why: "The next access to any of the 512 pages raises a reserved-bit fault, and the call has returned Ok.",
            must: &[Kind::MalformedEntry],
            may: &[],
        },
    );
    leave(&machine);
    drop(table);
}

/// Maps, remaps, protects and unmaps at random, with four CPUs that use the pages in between, and
/// compares all pages with a model.
fn right(seed: u64) {
    let (machine, _current) = enter(seed);
    let mut table = empty();
    load(&machine, &table);
    let mut model = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut below = |n: u64| rng.u64(..n);
    for _ in 0..2000 {
        let page = LARGE as u64 * below(4) + PAGE as u64 * below(16);
        let frame = (1 << 30) + PAGE as u64 * below(1 << 16);
        let (va, target) = (VirtAddr::from_usize(page as usize), PhysAddr::from_usize(frame as usize));
        let flags = if below(2) == 0 { READ_WRITE } else { READ_WRITE.difference(MappingFlags::WRITE) };
        let mut cursor = table.cursor();
        if let std::collections::btree_map::Entry::Vacant(free) = model.entry(page) {
            cursor.map(va, target, PageSize::Size4K, flags).expect("the page is free");
            free.insert((frame, flags));
        } else {
            match below(3) {
                0 => {
                    cursor.unmap(va).expect("the page is mapped");
                    model.remove(&page);
                }
                1 => {
                    cursor.remap(va, target, flags).expect("the page is mapped");
                    model.insert(page, (frame, flags));
                }
                _ => {
                    cursor.protect(va, flags).expect("the page is mapped");
                    model.entry(page).and_modify(|e| e.1 = flags);
                }
            }
        }
        drop(cursor);
        let access = if below(2) == 0 { Access::READ } else { Access::WRITE };
        let va = LARGE as u64 * below(4) + PAGE as u64 * below(16);
        let _ = machine.access(below(CPUS as u64) as usize, va, access);
    }
    for page in (0..4 * LARGE as u64).step_by(PAGE) {
        let says = model.get(&page).map(|&(frame, flags): &(u64, MappingFlags)| {
            let perms = Perms::READ.with_if(Perms::WRITE, flags.contains(MappingFlags::WRITE));
            Expected::at(frame).allowing(perms.with_if(Perms::USER, true))
        });
        machine.expect(0, page, says);
    }
    leave(&machine);
    drop(table);
    machine.finish();
    machine.sanitizer(|san, _| silent("maps, remaps, protections and unmaps at random", san));
}

/// Runs the crate. Fails unless exactly the known defects are found.
pub fn main() {
    old_tables_first();
    source_dropped_first();
    reserved_bits();
    (10..14).for_each(right);
}
