//! Answers from the caches that memory no longer gives.
use crate::arch::Access;
use crate::cpu::{Fault, Loaded, Translation};
use crate::report::{Kind, Place, Rule};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Reports an answer from the caches that memory does not give. While operations are under way,
    /// it is only suspected.
    pub(crate) fn compare(
        &mut self,
        cpu: usize,
        loaded: Loaded,
        va: u64,
        access: Access,
        used: Result<Translation, Fault>,
        truth: Result<Translation, Fault>,
    ) {
        if let Some(rule) = stale(access, used, truth)
            && !self.debts.was_reported(&self.config.arch, loaded.space, va)
            && !self.operations.suspect(cpu, loaded.space, va, access, self.event)
        {
            self.report_stale((cpu, loaded.space), va, access, rule, used, truth, "");
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all of it is the report")]
    pub(crate) fn report_stale(
        &mut self,
        (cpu, space): (usize, u64),
        va: u64,
        access: Access,
        rule: Rule,
        used: Result<Translation, Fault>,
        truth: Result<Translation, Fault>,
        when: &str,
    ) {
        let level = used.or(truth).ok().map(|t| t.level);
        let debt = self.debts.owed_at(&self.config.arch, cpu, space, va);
        let store = debt.and_then(|debt| debt.store.clone());
        // It is the same mistake.
        let bytes = 1u64 << self.config.arch.levels[usize::from(level.unwrap_or_default())].shift;
        self.debts.forgive(space, va & !(bytes - 1), bytes);
        let place = Place { va: Some(va), cpu: Some(cpu), level, space: Some(space), frame: None };
        let of = Some(rule).filter(|rule| matches!(rule, Rule::CombinedStale | Rule::InvalidKept));
        let why = self.explain_flush(cpu, space, Some(va), of, None);
        let names = self.config.arch.level_names;
        self.report_of(store.as_ref(), (Kind::StaleUse, rule), place, || {
            let show = |t: Result<Translation, Fault>| match t {
                Ok(t) => format!("{:#x} ({})", t.phys, t.perms),
                Err(fault) => fault.text(names),
            };
            format!("{:?}: {when}CPU used {}, memory says {}; {why}", access.kind, show(used), show(truth))
        });
    }
}

/// Returns the rule that an answer breaks when memory says `truth`.
pub(crate) fn stale(
    access: Access,
    used: Result<Translation, Fault>,
    truth: Result<Translation, Fault>,
) -> Option<Rule> {
    match (used, truth) {
        (Ok(u), Ok(t)) if u.phys != t.phys => Some(Rule::Remapped),
        (Ok(_), Ok(t)) if !t.perms.allows(access) => Some(Rule::PermissionRemoved),
        (Ok(_), Err(_)) => Some(Rule::Unmapped),
        (Err(_), Ok(t)) if t.accessed && t.perms.allows(access) => Some(Rule::NotReloaded),
        _ => None,
    }
}
