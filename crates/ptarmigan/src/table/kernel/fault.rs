//! Serves faults of the kernel on its own half.
use super::roots::KernelMap;
use crate::addr::VirtAddr;
use crate::format::{Access, Attr, Format};
use crate::machine::{Machine, On};
use crate::tlb::{Mmu, NewEntry, Runs};
use crate::window::OpenWindow;

impl<F: Format, W: OpenWindow> KernelMap<F, W> {
    /// Serves a fault of the kernel itself at `va`, on the calling CPU, if the entry of `va` allows
    /// the access. Returns whether it does: the handler returns then, and the access is made again.
    /// If not, the fault is an error of the kernel's. Addresses of programs are never allowed here:
    /// [`Space::fault`](crate::space::Space::fault) serves them, whoever faults.
    ///
    /// # Why
    ///
    /// A CPU may cache entries that are not valid (RISC-V without Svvptc), or entries that deny an
    /// access. When a page is mapped in the kernel's half, or gains a right, the CPU that does it
    /// forgets the entry from before. Others may go on faulting until they do, and no shootdown is
    /// sent to them. So on a machine that says
    /// [`NEEDS_ENTRY_VALID`](crate::tlb::Mmu::NEEDS_ENTRY_VALID), the handler of page faults calls
    /// this first for faults that come from the kernel. On others, a fault there is never served.
    ///
    /// It may be called in the middle of any other call of the library, takes no frame, and waits
    /// for nothing. If the map is being changed at that moment, the entry is not looked at: the
    /// access is made again, and faults again if it is not allowed.
    ///
    /// # Limits
    ///
    /// The handler itself must not need a page that a CPU may not know yet: its stack, and the code
    /// on the way here, are mapped before the CPU starts, or were used by it before.
    ///
    /// ```
    /// use ptarmigan::addr::VirtAddr;
    /// use ptarmigan::format::{Access, Format};
    /// use ptarmigan::machine::{Machine, On};
    /// use ptarmigan::table::KernelMap;
    /// use ptarmigan::window::OpenWindow;
    /// # fn panic_at(va: u64) {}
    /// fn kernel_fault<F: Format, W: OpenWindow, M: Machine>(
    ///     on: On<'_, M>, kernel: &KernelMap<F, W>, va: u64, access: Access,
    /// ) {
    ///     if !kernel.serve_fault(on, VirtAddr(va), access) {
    ///         panic_at(va);
    ///     }
    /// }
    /// ```
    pub fn serve_fault<M: Machine>(&self, on: On<'_, M>, va: VirtAddr, access: Access) -> bool {
        let root = F::LAYOUT.root();
        if on.check(self.machine()).is_err() || self.get(F::index(root, va.0)).is_none() {
            return false;
        }
        // While the lock is held, no table that is walked to is taken away. This CPU may hold it.
        let Some(claims) = self.claims().try_lock() else {
            if const { <M::Shootdown as Mmu>::NEEDS_ENTRY_VALID } {
                // In the middle of a flush the access is made again, and the CPU flushes by then.
                let _ = on.tlb().flush_own_kernel(on.pin(), &Runs::one(0, 0, F::PAGE_SHIFT));
            }
            return true;
        };
        let found = self.leaf_at(on, va.0);
        drop(claims);
        let Some((level, raw)) = found.filter(|&(level, raw)| allows(F::attr(level, raw), access)) else {
            return false;
        };
        let shift = F::shift(level);
        on.became_reachable(None, NewEntry::ANY_LEVEL, (va.0 & !((1 << shift) - 1), shift, 1), raw, raw);
        true
    }
}

/// Whether an entry lets an access of the kernel through.
fn allows(attr: Attr, access: Access) -> bool {
    attr.has(match access {
        Access::Read => Attr::READ,
        Access::Write => Attr::WRITE,
        Access::Exec => Attr::EXEC,
    })
}
