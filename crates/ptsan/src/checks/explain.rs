//! Explains why the flushes of a CPU did not help.
use crate::arch::StructureScope;
use crate::cpu::{Flush, Target};
use crate::report::Rule;
use crate::state::{Queued, Sanitizer};

impl Sanitizer {
    /// Describes the last flush of a CPU, and why the entry that the CPU holds for `space` (and
    /// `va`) outlived it. `rule` names the kind of the entry if it is not a translation. `since` is
    /// the event at which the CPU cached it.
    pub(crate) fn explain_flush(
        &self,
        cpu: usize,
        space: u64,
        va: Option<u64>,
        rule: Option<Rule>,
        since: Option<u64>,
    ) -> String {
        if let Some(why) = self.not_waited_for(cpu, 0) {
            return why;
        }
        let Some((event, flush)) = self.cpus.get(cpu).and_then(|c| c.last_flush()) else {
            let loaded = if self.is_device(cpu) { "was attached" } else { "loaded the root" };
            return format!("it has flushed nothing since it {loaded}");
        };
        let why = if since.is_some_and(|s| event <= s) {
            "came before that"
        } else if let Some(why) = self.config.without_effect(flush, self.is_device(cpu)) {
            return format!("its last flush ({flush}, event {event}) {why}");
        } else if self.config.spares_globals()
            && match flush.target {
                Target::Page { va: of, .. } => Some(of >> 12) == va.map(|va| va >> 12),
                Target::Range { start, end, .. } | Target::EverySpace { start, end, .. } => {
                    va.is_some_and(|va| va >= start & !0xfff && va < end)
                }
                Target::Space(_) | Target::All => false,
            }
        {
            "spares global translations on this processor: see Errata::invlpg_spares_globals"
        } else {
            self.shortfall(flush, space, va, rule)
        };
        format!("its last flush ({flush}, event {event}) {why}")
    }

    /// Says of a device that it has invalidations in its queue, given to it after event `after`.
    pub(super) fn not_waited_for(&self, device: usize, after: u64) -> Option<String> {
        let queued = |q: &&Queued| q.device == device && q.event > after;
        let Queued { flush, event, .. } = self.queue.iter().find(queued)?;
        Some(format!("its queue was not waited for (first {flush}, event {event})"))
    }

    fn shortfall(&self, flush: Flush, space: u64, va: Option<u64>, rule: Option<Rule>) -> &'static str {
        let by_address = match flush.target {
            Target::Page { space: of, .. } | Target::Range { space: of, .. } | Target::Space(of)
                if of != space =>
            {
                return "was for another space";
            }
            Target::Page { va: of, .. }
                if rule == Some(Rule::CombinedStale) && Some(of >> 12) == va.map(|va| va >> 12) =>
            {
                return "spares what was combined of both stages";
            }
            Target::Page { va, .. } => Some((va, va)),
            Target::Range { start, end, .. } | Target::EverySpace { start, end, .. } => {
                Some((start, end.saturating_sub(1)))
            }
            Target::Space(_) | Target::All => None,
        };
        let Some((first, last)) = by_address else {
            return if matches!(flush.target, Target::Space(_)) {
                "came before, or spared it as global"
            } else {
                "came before"
            };
        };
        let table = rule == Some(Rule::HeldInStructureCache);
        if rule == Some(Rule::HeldInTopRegister) {
            "does not reload the root's entries"
        } else if table && self.config.arch.structures == StructureScope::WholeSpace {
            "was by address, which drops no tables here"
        } else if table && flush.leaf_only {
            "was for the last level only"
        } else if table && flush.level.is_some() {
            "named a level, and so dropped no tables"
        } else if va.is_some_and(|va| va > last || va < first & !0xfff) {
            "was for other addresses"
        } else if rule == Some(Rule::InvalidKept) {
            "came before, or was by address while the entry was a link"
        } else if flush.level.is_some() {
            "came before, or named another level than that of the entry"
        } else {
            "came before, or missed it by size or stride"
        }
    }
}
