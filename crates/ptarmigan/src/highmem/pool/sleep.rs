//! Contexts that may sleep.
use crate::cpu::Pinned;

/// A context that may sleep, and that can pin itself to a CPU when it does not.
///
/// It is the proof that [`Pool::map`](super::Pool::map) wants, and the reason that the call cannot
/// sleep with a pin: pins come out of [`pinned`](Self::pinned) only, and both methods take the
/// context for themselves.
pub trait MaySleep {
    /// Pins the caller to a CPU while `f` runs.
    fn pinned<R>(&mut self, f: impl FnOnce(&Pinned<'_>) -> R) -> R;

    /// Returns the name under which [`Wake::wake`] wakes the caller.
    fn task(&self) -> usize;

    /// Sleeps until `is_woken` returns true; it may return earlier. Returns false if the caller
    /// will not wait any longer: its time is up, or it was killed.
    ///
    /// `is_woken` becomes true before the task is woken.
    fn sleep(&mut self, is_woken: &dyn Fn() -> bool) -> bool;
}

/// How tasks are woken.
pub trait Wake: Sync {
    /// Wakes the task that [`MaySleep::task`] has named so. It may be awake, or gone.
    fn wake(&self, task: usize);
}

/// Tasks that look now and then need not be woken.
impl Wake for () {
    fn wake(&self, _task: usize) {}
}
