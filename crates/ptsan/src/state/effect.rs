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

    /// Returns why a flush of a CPU or a device drops nothing, if it drops nothing.
    pub(crate) fn without_effect(&self, flush: Flush, device: bool) -> Option<String> {
        let is = self.exception_level;
        if let Some(of) = flush.exception_level.filter(|of| *of != is) {
            return Some(format!("is for {of}, and these tables are of {is}"));
        }
        let why = "drops nothing on this processor: see Errata::sfence_drops_only_all";
        (!device && self.sfence_is_useless(flush)).then(|| why.to_owned())
    }

    fn sfence_is_useless(&self, flush: Flush) -> bool {
        let selective = match flush.target {
            Target::All => false,
            Target::Space(_) => self.asids,
            _ => true,
        };
        self.errata.sfence_drops_only_all && self.arch.ordering == StoreOrdering::Fenced && selective
    }
}
