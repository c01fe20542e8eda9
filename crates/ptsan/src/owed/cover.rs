//! The extent of a flush.
use super::debt::{GLOBAL, PageDebt, TableDebt};
use crate::arch::{Arch, ByGuestAddress, StoreOrdering, StructureScope};
use crate::cpu::{Flush, Strides, Target};

/// A flush on a CPU that runs in a space.
#[derive(Clone, Copy)]
pub(crate) struct Cover<'a> {
    pub(crate) arch: &'a Arch,
    pub(crate) flush: Flush,
    /// The space that the CPU has loaded, if a flush by address of it reaches global translations.
    pub(crate) loaded: Option<u64>,
    /// No flush by address reaches global translations: see [`crate::Errata`].
    pub(crate) spares_globals: bool,
    /// Stores from this event on were not ordered before the flush.
    pub(crate) before: u64,
    /// The addresses are those of stage 2: CPUs keep translations that combine both stages.
    pub(crate) two_stages: bool,
    /// It is one of a device.
    pub(crate) device: bool,
}

impl Cover<'_> {
    /// Returns whether the flush reaches entries of a space by address.
    fn reaches(&self, of: u64, space: u64) -> bool {
        // Invalidation by address reaches global translations if the space is the loaded one.
        space == of || space == GLOBAL && self.loaded == Some(of)
    }

    pub(super) fn covers_page(&self, debt: &PageDebt) -> bool {
        let size = 1u64 << self.arch.levels[usize::from(debt.level)].shift;
        match (self.flush.target, self.flush.addresses()) {
            (Target::Space(space), _) => debt.space == space,
            (_, None) => true,
            (_, Some(_)) if !self.flush.drops_level(debt.level) => false,
            (_, Some((Some(space), range))) => self.reaches(space, debt.space) && range.hit(debt.va, size),
            (_, Some((None, range))) => {
                let spared = self.spares_globals && debt.space == GLOBAL;
                !spared && range.hit(debt.va, size)
            }
        }
    }

    pub(super) fn covers_table(&self, debt: &TableDebt) -> bool {
        let spares = self.flush.spares_tables(self.arch.structures, self.device);
        let range = match (self.flush.target, self.flush.addresses()) {
            (Target::Space(_), _) | (_, None) if self.device && spares => return false,
            (Target::Space(space), _) => return debt.space == space,
            (_, None) => return true,
            (_, Some(_)) if spares => return false,
            (_, Some((space, range))) if space.is_none_or(|space| space == debt.space) => range,
            (_, Some(_)) => return false,
        };
        // Registers are loaded with the root alone.
        if self.arch.top_registers && debt.level + 1 == self.arch.top() {
            return false;
        }
        match self.arch.structures {
            StructureScope::AnyInvalidation => range.count() > 0,
            StructureScope::Tagged => {
                let l = &self.arch.levels[usize::from(debt.level)];
                range.hit(debt.va, (1u64 << l.shift).saturating_mul(l.entries() as u64))
            }
            StructureScope::WholeSpace | StructureScope::None => false,
        }
    }

    /// Returns whether a store was ordered before the flush.
    pub(super) fn is_ordered(&self, cpu: usize, since: u64, by: Option<usize>) -> bool {
        // SFENCE.VMA orders the earlier stores of its own CPU.
        since < self.before || self.arch.ordering == StoreOrdering::Fenced && by == Some(cpu)
    }

    /// Pays a debt that the flush covers, if the store came before it.
    pub(super) fn settle(&self, cpu: usize, debt: &mut PageDebt) {
        if self.is_ordered(cpu, debt.since, debt.by) {
            let drops_combined =
                self.arch.second_stage.is_some_and(|s| s.by_address == ByGuestAddress::DropsCombined);
            let whole = matches!(self.flush.target, Target::All | Target::Space(_));
            if self.two_stages && !whole && !drops_combined {
                debt.combined.insert(cpu);
            } else {
                debt.cpus.remove(cpu);
            }
        } else {
            debt.unordered = true;
        }
    }

    /// Returns the addresses of the flush, or `None` if it has no addresses or so many that it is
    /// cheaper to look at `debts` debts.
    pub(super) fn addresses(&self, debts: usize) -> Option<(u64, Strides)> {
        let (space, range) = self.flush.addresses()?;
        Some((space?, range)).filter(|_| range.count() <= debts as u64)
    }
}
