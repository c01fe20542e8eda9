//! Refills a hash table from tables.
//!
//! # The protocol
//!
//! A page that the MMU misses is put into the [hash table](crate::tlb::hash) by the handler of the
//! miss, on any CPU and at any time.
//!
//! 1. The handler takes the hash table's lock ([`HashTable::refill`]) and, holding it, sets the bit
//!    of the entry that says that the page was hashed, in one step with reading it: here.
//! 2. Code that changes an entry keeps the bit, and learns it in one step with the change.
//! 3. If the bit was set, its flush takes the page out of the hash table, under that table's lock.
//!
//! ```text
//!  refill, with the lock        lock ── bit set in entry ── inserted ── unlock
//!  unmap, before the refill     entry: none, bit clear ──> no flush; the refill finds no entry
//!  unmap, after the bit         entry: none, bit set ──> flush takes the lock, and the page out
//! ```
//!
//! # Why
//!
//! A handler must not wait for the lock of a space: a miss can come anywhere in the kernel. So the
//! entry's own bit decides which side came first. A refill that comes before the change is seen by
//! it, and one that comes after it puts the new entry in, or leaves an empty one out. One that has
//! set the bit has put the page in before the flush can take it out, because both hold the table's
//! lock. Without the bit, every unmap would search the hash table for every page.
//!
//! [`HashTable::refill`]: crate::tlb::hash::HashTable::refill
use super::kernel::KernelMap;
use super::node::Node;
use super::tables::{Tables, descend};
use super::tree::TreeView;
use crate::addr::{PhysAddr, VirtAddr};
use crate::format::{Access, Format};
use crate::machine::{Machine, On};
use crate::page::Level;
use crate::tlb::hash::Refill;
use crate::window::OpenWindow;

impl<F: Format> Tables<F> {
    /// Notes that the page at `va` is being put into the hash table for an `access`. See
    /// [`TreeView::refill`]; the tables whose root is at `root` may be changing, as in
    /// [`query_from`](Self::query_from).
    pub fn refill_from<M: Machine>(
        on: On<'_, M>,
        root: PhysAddr,
        va: VirtAddr,
        access: Access,
    ) -> Option<Refill<u64>> {
        if va.0 >= F::USER_END { None } else { refill::<F, M::Window>(on, on.window(), root, va, access) }
    }
}

/// As [`Tables::refill_from`], for any address.
fn refill<F: Format, W: OpenWindow>(
    on: On<'_, impl Machine>,
    window: &W,
    root: PhysAddr,
    va: VirtAddr,
    access: Access,
) -> Option<Refill<u64>> {
    let end = descend::<F, _>(window, root, F::LAYOUT.root(), va.0, Level::PTE);
    if end.level > Level::PTE {
        return None;
    }
    Node::<F, W>::open(window, on.frames(), Level::PTE, end.at).hash(F::index(Level::PTE, va.0), access)
}

impl<F: Format, M: Machine> TreeView<'_, F, M> {
    /// Records in the entry of the page at `va` that the page is being put into the hash table for
    /// an `access`, as an MMU would: the page is used, and written to if it is a write. Returns the
    /// entry as it is then, and whether the page may be in the hash table already; `None` if the
    /// entry does not allow the access, which is a fault.
    ///
    /// To be called with the hash table's lock held, by the closure of
    /// [`HashTable::refill`](crate::tlb::hash::HashTable::refill).
    pub fn refill(self, va: VirtAddr, access: Access) -> Option<Refill<u64>> {
        Tables::<F>::refill_from(self.machine_on(), self.root(), va, access)
    }
}

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// As [`TreeView::refill`], for a page of the kernel's half. `None` on another machine, too.
    ///
    /// The page belongs to a [range](super::KernelRange) that is not being released.
    pub fn refill<M: Machine>(&self, on: On<'_, M>, va: VirtAddr, access: Access) -> Option<Refill<u64>> {
        on.check(self.machine()).ok()?;
        let reference = self.reference();
        if va.0 < F::KERNEL_START {
            None
        } else {
            refill::<F, M::Window>(on, on.window(), reference, va, access)
        }
    }
}
