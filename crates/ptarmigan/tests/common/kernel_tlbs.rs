//! TLBs that hold the pages that the kernel has reached in its half.
use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::{Attr, Entry, Format};
use ptarmigan::page::Level;
use ptarmigan_hosted::Host;
use ptarmigan_hosted::test::{Refilled, TestMmu};

/// TLBs that remember frames and permissions, of a machine that is told of new entries.
pub type KernelTlbs = TestMmu<'static, Refilled, (Pfn, Attr)>;

/// Walks to `va` from `root` on, as an MMU does.
pub fn walk<F: Format>(host: &Host<F>, root: PhysAddr, va: u64) -> Option<(Pfn, Attr)> {
    let mut at = root;
    for level in (0..F::LAYOUT.levels).map(Level).rev() {
        // SAFETY: 1. it is an entry of a table in use.
        let raw = unsafe { host.read(PhysAddr(at.0 + 8 * F::index(level, va) as u64), 8) }.unwrap();
        match F::entry(level, raw) {
            Entry::None => return None,
            Entry::Link(next) => at = next,
            Entry::Leaf => {
                return F::is_present(Level::PTE, raw)
                    .then(|| (F::frame(Level::PTE, raw), F::attr(Level::PTE, raw)));
            }
        }
    }
    unreachable!("a leaf table has no links")
}
