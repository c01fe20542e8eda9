//! The effect that a flush has on the processor of a run.
use super::config::Config;
use crate::arch::{StoreOrdering, StructureScope};
use crate::cpu::{Flush, Target};

impl Config {
    /// Returns whether an invalidation by address leaves global translations.
    pub(crate) fn spares_globals(&self) -> bool {
        let x86 = self.arch.structures == StructureScope::AnyInvalidation;
        self.errata.invlpg_spares_globals && self.asids && x86
    }

    /// Returns whether a flush drops nothing.
    pub(crate) fn is_without_effect(&self, flush: Flush) -> bool {
        let selective = match flush.target {
            Target::All => false,
            Target::Space(_) => self.asids,
            _ => true,
        };
        self.errata.sfence_drops_only_all && self.arch.ordering == StoreOrdering::Fenced && selective
    }
}
