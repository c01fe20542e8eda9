//! The library's view of this machine: one CPU whose MMU finds pages in the
//! [hash table](super::hashed).

use core::ptr;

use ptarmigan::addr::VirtAddr;
use ptarmigan::format::Access;
use ptarmigan::tlb::{CostModel, Costs};
use ptarmigan_kernel_base::direct::physical;

use super::hashed::{self, HASH_TABLE};
use crate::machine::{Board, BoardMachine, Plan, machine, on, pin};

pub use super::hashed::Hashed as Mmus;
pub use ptarmigan::format::Ppc32 as Format;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Context numbers: fewer than there are spaces, so that they are handed out anew, and the hash
/// table is wiped.
const CONTEXTS: u16 = 6;
/// Puts a page of the kernel's into the hash table that was missed; false if its entry does not
/// allow the access. `protected` is as for [`hashed::refill_user`].
pub fn refill_kernel(at: u32, access: Access, protected: bool) -> bool {
    let pin = pin();
    let on = on(&pin);
    hashed::refill_kernel(at, protected, &|| machine().kernel_map().refill(on, VirtAddr(at.into()), access))
}

/// A root without entries: the kernel's half is mapped by block translation, or claimed later.
#[repr(C, align(4096))]
struct EmptyRoot([u32; 1024]);

static EMPTY_ROOT: EmptyRoot = EmptyRoot([0; 1024]);

impl BoardMachine for Board {
    /// Counted in entries that are looked at: a page that is hashed or was takes two groups and the
    /// instructions that wait for the bus, one that was not the groups; for everything the whole
    /// table is gone through.
    const COSTS: CostModel = CostModel::Costs(Costs { page_hashed: 40, ..Costs::new(16, HASH_TABLE / 8) });

    fn mmus() -> Mmus {
        Mmus
    }

    fn asids() -> u16 {
        CONTEXTS
    }

    fn with_kernel_half(plan: Plan<'_>) -> Plan<'_> {
        plan.kernel_root(physical(ptr::from_ref(&EMPTY_ROOT)))
    }

    /// The reference table was taken before all were counted.
    fn kept() -> usize {
        machine().kernel_map().tables().saturating_sub(1)
    }
}
