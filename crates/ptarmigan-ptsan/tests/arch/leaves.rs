//! Leaves of every size that a format has, changed alone and beside others: what instructions say
//! of an address, its size or its level, is right for each.
use crate::driver::rng::Rng;
use crate::recorder::Recorder;
use ptarmigan::addr::{Pfn, VirtRange};
use ptarmigan::format::{Attr, Format};
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Layered;
use ptarmigan::table::{Free, Sizes, Tree};
use ptarmigan::tlb::{CostModel, Mmu, TlbConfig};
use ptarmigan_hosted::{Delivery, HostMachine};
use ptsan::Access;
use std::collections::BTreeSet;

/// Trees that are made in a run.
const TREES: u64 = 18;
/// Changes of each.
const CHANGES: u64 = 6;

const USED: Attr = Attr(Attr::READ.0 | Attr::WRITE.0 | Attr::USER.0 | Attr::ACCESSED.0 | Attr::DIRTY.0);

impl<F: Format> Recorder<'_, '_, F> {
    /// Maps, changes and unmaps leaves of all sizes on MMUs that are made of this recorder, while
    /// all CPUs use them. Flushes name pages one by one, or ranges of them.
    pub fn leaves(&self, mmu: impl Mmu, (seed, cpus, asids): (u64, usize, u16)) {
        let (host, soft) = self.host();
        let mut rng = Rng::new(seed);
        let policy = Layered::new(soft, host.quicklists().unwrap()).unwrap();
        let tlb = TlbConfig { asids, costs: CostModel::ALWAYS_PAGE, ..TlbConfig::new(cpus) };
        let machine = HostMachine::with_tlb(host, policy, mmu, tlb, Delivery::AtOnce).unwrap();
        let slots = host.slots();
        let all = || (0..F::LAYOUT.levels).map(Level).filter(|level| F::LEAF_LEVELS >> level.0 & 1 != 0);
        let (page, top) = (1u64 << F::PAGE_SHIFT, all().next_back().unwrap());
        let pins: Vec<_> = slots.iter().map(|slot| slot.pin()).collect();
        let mut changed = BTreeSet::new();
        for n in 0..TREES {
            let on = machine.on(&pins[0]).unwrap();
            let mut tree = Tree::<F>::new(on, AllocFlags::NORMAL).unwrap();
            pins.iter().for_each(|pin| tree.activate(machine.on(pin).unwrap()).unwrap());
            // Some pages; of a level a leaf, two, or a group; and some pages.
            let levels = all().count() as u64;
            let (level, n) = (all().nth((n % levels) as usize).unwrap(), n / levels);
            let (size, bits) = (1u64 << F::shift(level), u32::from(F::GROUP_BITS[level.at()]));
            let in_group = n % 3 == 2;
            let leaves = if in_group { 1 << bits } else { 1 + n % 3 };
            let align = F::shift(top).max(F::shift(level) + bits);
            let middle = (1 + rng.below(3)) << align;
            let before = rng.below(2) * (1 + rng.below(20)) * page;
            let after = rng.below(2) * (1 + rng.below(20)) * page;
            let range = VirtRange::new(middle - before, middle + leaves * size + after).unwrap();
            let sizes = Sizes::up_to(level);
            let sizes = if in_group || rng.below(2) == 0 { sizes.with_groups() } else { sizes };
            // Behind the host's memory.
            let first = Pfn(((range.start + (1 << align)) >> 12) as u32);
            let mut edit = tree.edit(on).unwrap();
            // SAFETY: 1. nobody uses the memory behind the frames, which the host does not have.
            unsafe { edit.map_range_large(range, first, USED, sizes) }.unwrap();
            drop(edit);
            for change in 0..CHANGES {
                let mut leaves = Vec::new();
                tree.view().walk_leaves(on, range, |leaf| leaves.push(leaf)).unwrap();
                if leaves.is_empty() {
                    break;
                }
                for leaf in &leaves {
                    let at = leaf.at.0 + rng.below(1 << leaf.shift);
                    (0..cpus).for_each(|cpu| _ = soft.access(cpu, at, Access::READ));
                }
                // First the largest alone.
                let largest = leaves.iter().map(|leaf| leaf.shift).max();
                let (from, count) = match leaves.iter().position(|leaf| Some(leaf.shift) == largest) {
                    Some(at) if change == 0 => (at, 1),
                    _ => {
                        let from = rng.below(leaves.len() as u64) as usize;
                        (from, 1 + rng.below(3.min((leaves.len() - from) as u64)) as usize)
                    }
                };
                let some = &leaves[from..from + count];
                let (start, last) = (some[0].at.0, some[count - 1]);
                let part = VirtRange::new(start, last.at.0 + (1 << last.shift)).unwrap();
                changed.extend(some.iter().map(|leaf| (leaf.shift, count == 1)));
                let mut edit = tree.edit(on).unwrap();
                match rng.below(4) {
                    0 => edit.unmap_range(part, Free::Empty, |_, _, _| {}),
                    1 => edit.take_dirty(part, top, |_| {}).unwrap(),
                    _ => edit.change_range(part, |was| Attr(was.0 ^ Attr::WRITE.0)).unwrap(),
                }
                drop(edit);
                soft.with(|san, memory| san.flushes_done(memory));
            }
            pins.iter().for_each(|pin| tree.deactivate(machine.on(pin).unwrap()).unwrap());
            tree.end(on, |_, _, _| {}).map_err(|refused| refused.error).unwrap();
            soft.with(|san, memory| san.flushes_done(memory));
        }
        drop(pins);
        machine.drain(&slots);
        for level in all() {
            let shift = F::shift(level);
            assert!(changed.contains(&(shift, true)), "{}: {changed:?}", F::NAME);
            let bits = u32::from(F::GROUP_BITS[level.at()]);
            assert!(bits == 0 || changed.contains(&(shift + bits, true)), "{}: {changed:?}", F::NAME);
        }
    }
}
