//! Counts flushes by kind.
use super::plan::Plan;
use super::scope::Scope;
use crate::cpu::Counter;
use crate::sync::atomic::AtomicUsize;

/// Flushes issued, counted once each at the CPU that asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushCounts {
    /// Of one page.
    pub page: usize,
    /// Of several pages, one by one.
    pub range: usize,
    /// Of a whole space.
    pub full: usize,
    /// Of a part of the kernel's half, or all of it.
    pub kernel: usize,
    /// Of these, by how it was done: run by run, page by page, as one range, with everything.
    pub kernel_plans: KernelPlans,
    /// Pages in all `page` and `range` flushes together.
    pub pages: usize,
    /// Stale pages that had been put into a hash table.
    pub hashed: usize,
    /// CPUs that were asked by others to forget something.
    pub asked: usize,
    /// Calls that asked any. A machine that [broadcasts](super::Mmu::BROADCASTS) needs one
    /// broadcast for each, but for those that have CPUs load another root.
    pub remote: usize,
    /// Of the CPUs that were asked, those that had to load another root, or the same anew: a
    /// broadcast cannot do this.
    pub asked_for_root: usize,
    /// CPUs that were not asked, as the flush was left to them
    /// ([`Unmapping::Deferred`](crate::space::Unmapping)).
    pub deferred: usize,
    /// Flushes of everything by which CPUs made up for those.
    pub caught_up: usize,
    /// Of these requests, those that came to a CPU that had reached the generation already.
    pub skipped: usize,
    /// Those that came to a CPU that was more than one step behind, and forgot the whole space.
    pub upgraded: usize,
    /// Chains that were parked.
    pub parked: usize,
    /// Of these, those that were flushed by force.
    pub forced: usize,
}

/// Flushes of the kernel's half by [plan](Plan).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelPlans {
    /// Run by run.
    pub runs: usize,
    /// Page by page.
    pub pages: usize,
    /// As one range, from the first stale page to the last.
    pub window: usize,
    /// With everything else.
    pub full: usize,
}

impl FlushCounts {
    pub(super) fn plus(self, t: &CpuTally) -> Self {
        let add = |a: usize, b: &Counter| a.wrapping_add(b.get());
        FlushCounts {
            page: add(self.page, &t.page),
            range: add(self.range, &t.range),
            full: add(self.full, &t.full),
            kernel: t.kernel.iter().fold(self.kernel, add),
            kernel_plans: KernelPlans {
                runs: add(self.kernel_plans.runs, &t.kernel[Plan::Runs as usize]),
                pages: add(self.kernel_plans.pages, &t.kernel[Plan::Pages as usize]),
                window: add(self.kernel_plans.window, &t.kernel[Plan::Window as usize]),
                full: add(self.kernel_plans.full, &t.kernel[Plan::Full as usize]),
            },
            pages: add(self.pages, &t.pages),
            hashed: add(self.hashed, &t.hashed),
            asked: add(self.asked, &t.asked),
            remote: add(self.remote, &t.remote),
            asked_for_root: add(self.asked_for_root, &t.asked_for_root),
            deferred: add(self.deferred, &t.deferred),
            caught_up: add(self.caught_up, &t.caught_up),
            skipped: add(self.skipped, &t.skipped),
            upgraded: add(self.upgraded, &t.upgraded),
            parked: add(self.parked, &t.parked),
            forced: add(self.forced, &t.forced),
        }
    }
}

/// The counts of a CPU, in a line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct CpuTally {
    pub page: Counter,
    pub range: Counter,
    pub full: Counter,
    /// By plan.
    pub kernel: [Counter; Plan::ALL.len()],
    pub pages: Counter,
    pub hashed: Counter,
    pub asked: Counter,
    pub remote: Counter,
    pub asked_for_root: Counter,
    pub deferred: Counter,
    pub caught_up: Counter,
    pub skipped: Counter,
    pub upgraded: Counter,
    pub parked: Counter,
    pub forced: Counter,
    /// Owners of tables that began here, less those that ended here. A handler of an interrupt may
    /// change it in the middle of a change.
    pub owners: AtomicUsize,
}

impl CpuTally {
    /// Counts a flush of the kernel's half.
    #[inline]
    pub fn count_kernel(&self, plan: Plan) {
        self.kernel[plan as usize].add(1);
    }

    /// Counts a flush of a space.
    #[inline]
    pub fn count(&self, scope: &Scope) {
        match scope {
            Scope::Page { .. } => self.page.add(1),
            Scope::Range { .. } | Scope::Runs(_) => self.range.add(1),
            Scope::Full => self.full.add(1),
        }
        self.pages.add(scope.len() as usize);
    }
}
