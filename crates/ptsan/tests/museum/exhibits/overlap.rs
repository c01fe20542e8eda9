//! A comparison of ranges at the end of the address space.
use super::Exhibit;
use super::format::Format;
use super::machine::{Machine, PAGE, four};
use ptsan::{Flush, Kind, Rule};

pub const END_OF_SPACE: Exhibit = Exhibit {
    name: "kvm-arm64-end-of-space",
    numbers: "CVE-2026-89918",
    project: "Linux (KVM arm64)",
    year: 2026,
    pattern: true,
    kind: Kind::FlushMissing,
    rules: &[Rule::UnmapNotFlushed],
    check: "debts of a page that no flush names at all",
    setup: four(Format::ArmUpper),
    model: end_of_space,
};

/// A range of addresses: start and size.
#[derive(Clone, Copy)]
struct Range(u64, u64);

impl Range {
    /// Compares with the first address behind each range, which is 0 for the last page.
    fn overlaps_by_end(self, other: Self) -> bool {
        self.0 < other.0.wrapping_add(other.1) && other.0 < self.0.wrapping_add(self.1)
    }

    /// Compares with the last address of each range.
    fn overlaps_by_last(self, other: Self) -> bool {
        self.0 <= other.0 + (other.1 - 1) && other.0 <= self.0 + (self.1 - 1)
    }
}

/// A guest's invalidation is emulated: each virtual CPU has one cached translation, and drops it if
/// it overlaps the range that the guest names. For the last page of the upper half the sum wraps.
fn end_of_space(m: &mut Machine, broken: bool) {
    let space = m.space();
    m.everywhere(space);
    m.work();
    let va = 0u64.wrapping_sub(PAGE);
    m.map(space, va);
    let at = m.entry(space, va, 0);
    m.touch_everywhere(space, va);
    let pages = 1 + m.below(4);
    m.step(|m| {
        let unmapping = m.begin();
        m.exchange(at, 0);
        let (named, cached) = (Range(0u64.wrapping_sub(pages * PAGE), pages * PAGE), Range(va, PAGE));
        for cpu in 0..m.cpus() {
            let overlap = if broken { cached.overlaps_by_end(named) } else { cached.overlaps_by_last(named) };
            if overlap {
                m.flush(cpu, Flush::page(space, va));
            }
        }
        m.end(unmapping);
    });
    m.work();
}
