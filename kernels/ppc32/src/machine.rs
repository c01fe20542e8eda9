//! The library's view of this machine: memory in the direct map, one CPU whose MMU finds pages in
//! the [hash table](crate::hashed), and the order in which the parts are set up.

use core::ptr;

use ptarmigan::addr::VirtAddr;
use ptarmigan::cpu::{CpuId, NodeId, Pinned};
use ptarmigan::format::{Access, Ppc32};
use ptarmigan::frames::MemoryRun;
use ptarmigan::machine::{Machine as _, On};
use ptarmigan::setup::{Kernel, Setup};
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan::window::DirectMap;
use ptarmigan_kernel_base::machine::{self, NoLayer};
use ptarmigan_kernel_base::once_cell::OnceCell;
use ptarmigan_kernel_base::program::{Pages, Program};
use ptarmigan_kernel_base::{Failed, fail, fail_if, say};

use crate::hashed::{self, HASH_TABLE, Hashed};
use crate::mmu::{self, DIRECT_MAP, DIRECT_MAP_LIMIT};

/// All parts together.
pub type Machine = machine::Machine<Ppc32, Hashed, Program>;

/// Context numbers: fewer than there are spaces, so that they are handed out anew, and the hash
/// table is wiped.
const CONTEXTS: u16 = 6;
/// Counted in entries that are looked at: a page that is hashed or was takes two groups and the
/// instructions that wait for the bus, one that was not the groups; for everything the whole table
/// is gone through.
const COSTS: CostModel = CostModel::Costs(Costs { page_hashed: 40, ..Costs::new(16, HASH_TABLE / 8) });

/// Proof of being on the one CPU.
pub fn pin() -> Pinned<'static> {
    // SAFETY: 1. There is one CPU and one thread, which goes on only after an exception handler has
    // returned. 2. The machine has one CPU and one node.
    unsafe { Pinned::assume(machine().id(), CpuId(0), NodeId(0)) }
}

/// The machine, seen from its CPU.
pub fn on<'a>(pin: &'a Pinned<'a>) -> On<'a, Machine> {
    machine().here(pin)
}

/// Puts a page of the kernel's into the hash table that was missed; false if its entry does not
/// allow the access. `protected` is as for [`hashed::refill_user`].
pub fn refill_kernel(at: u32, access: Access, protected: bool) -> bool {
    let pin = pin();
    let on = on(&pin);
    hashed::refill_kernel(at, protected, &|| machine().kernel_map().refill(on, VirtAddr(at.into()), access))
}

static KERNEL: Kernel<Ppc32, DirectMap, Hashed, Program> = Kernel::new();
static MACHINE: OnceCell<Machine> = OnceCell::new();

/// A root without entries: the kernel's half is mapped by block translation, or claimed later.
#[repr(C, align(4096))]
struct EmptyRoot([u32; 1024]);

static EMPTY_ROOT: EmptyRoot = EmptyRoot([0; 1024]);

/// The machine.
pub fn machine() -> &'static Machine {
    MACHINE.get()
}

/// Returns the user program, which the image carries, as an object that spaces map.
pub fn program() -> Program {
    static PROGRAM: &Pages<[u8]> = &Pages(*include_bytes!(concat!(env!("OUT_DIR"), "/user.bin")));
    // SAFETY: 1. The direct map has the image.
    unsafe { PROGRAM.object(DIRECT_MAP.into()) }
}

/// Sets the hash table and the library up on the memory from `start` to `end`.
///
/// # Safety
///
/// 1. Nobody else uses that memory, now or later, and it is in the direct map.
/// 2. It is called once.
pub unsafe fn set_up(start: u64, end: u64) -> Result<(), Failed> {
    // The hash table comes first, aligned to its size.
    let at = start.next_multiple_of(HASH_TABLE);
    // SAFETY: 1. Point 1 of the caller's; all else begins behind it. 2. Point 2.
    unsafe { hashed::set_up(at)? };
    let memory = [MemoryRun::new(at + HASH_TABLE..end)];
    let setup = Setup::direct_map(&memory, mmu::direct(0), DIRECT_MAP_LIMIT, Hashed)?
        .objects(program())
        .kernel_root(mmu::physical(ptr::from_ref(&EMPTY_ROOT)))
        .asids(CONTEXTS)
        .costs(COSTS);
    // SAFETY: 1. Point 1 of the caller's. 2. Block translation covers all memory in every space,
    // for good. 3. The root has no entries.
    unsafe { KERNEL.set_up(setup)? };
    let Some(parts) = KERNEL.parts() else { fail(format_args!("used before it was set up")) };
    // SAFETY: 1. Point 2 of the caller's.
    unsafe { MACHINE.set(Machine::new(parts, NoLayer)) };
    Ok(())
}

/// Gives back the pages on lists.
pub fn drain() {
    Machine::drain(on(&pin()), true);
}

/// Checks, after [`drain`] and with only the image's own mappings, that every frame is back and
/// that no page is left in the hash table.
pub fn check_balance() {
    // The reference table was taken before; tables of the kernel's half stay.
    machine().check_balance(machine().kernel_map().tables().saturating_sub(1));
    let hashed = hashed::table().valid();
    fail_if(hashed != 0, format_args!("stale: {hashed} pages are hashed, and none is mapped"));
}

/// Prints the counts, and checks that the run was meaningful: pages were evicted from the hash
/// table.
pub fn report() {
    let hash = hashed::table().counts();
    machine().report(format_args!("{} hashed pages", machine().tlb().counts().hashed));
    say!(
        "hash table: {} inserted, {} over another page; {} removed, {} not found; wiped {} times; {} probes",
        hash.inserted,
        hash.evicted,
        hash.removed,
        hash.missing,
        hash.wiped,
        hash.probes
    );
    fail_if(
        hash.evicted < 1000 || hash.wiped == 0 || hash.missing == 0,
        format_args!("too little happened in the hash table"),
    );
}
