//! Makes large pages of pages while a CPU is idle, as Linux's `khugepaged` does.

use ptarmigan::addr::VirtAddr;
use ptarmigan::cpu::Pinned;
use ptarmigan::space::CollapseLimits;

use super::Doing;
use crate::arch::Arch;
use crate::counts::Count;
use crate::params::LargePolicy;
use crate::{Kernel, State};

/// One span a time, as the kernel lock is held. All its pages but one may be missing, which is
/// Linux's default.
const LIMITS: CollapseLimits = CollapseLimits { spans: 1, missing: 511 };

impl<A: Arch> Kernel<A> {
    /// Looks at the next span of the next process whose first thread waits, and makes a large page
    /// of it if it qualifies. Called by a CPU that has nothing else to do.
    #[cold]
    #[inline(never)]
    pub(super) fn collapse(&'static self, state: &mut State, pin: &Pinned<'_>) {
        let tasks = &mut state.tasks;
        if state.large_pages != LargePolicy::Always || tasks.has_ready() {
            return;
        }
        let last = tasks.collapsed;
        let waits =
            |slot: &usize| tasks.is_process(*slot) && matches!(tasks.get(*slot).doing, Doing::Waiting(_));
        let Some(slot) = tasks.slots().filter(waits).min_by_key(|slot| (*slot <= last, *slot)) else {
            return;
        };
        tasks.collapsed = slot;
        let number = tasks.space_of(slot);
        // SAFETY: 1. The lock is held, and the task waits. 2. The reference ends with this call. 3.
        // It has not ended.
        let body = unsafe { self.body(slot) };
        let from = VirtAddr(tasks.space(number).collapse_from);
        let Ok(Ok(done)) = body.space.edit(self.on(pin), |mut edit| edit.collapse(from, LIMITS)) else {
            return;
        };
        tasks.space_mut(number).collapse_from = done.next.map_or(0, |next| next.0);
        if done.large > 0 {
            self.count(Count::Collapsed);
        }
    }
}
