//! The identity of a machine.
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The number of an exhausted counter: it matches no number, not even itself.
const NOTHING: u32 = 0;

/// Returns a number that no other call with the same counter returns, or [`NOTHING`] once the
/// numbers are used up. The counter begins at 1.
pub(crate) fn next_number(next: &AtomicU32) -> u32 {
    // `u32::MAX` is where the counter stops.
    next.fetch_update(Relaxed, Relaxed, |n| n.checked_add(1)).unwrap_or(NOTHING)
}

/// Which machine a pin, a frame or a part of the library belongs to.
///
/// A process may hold several machines at once: hosts of a test, pools, guests of an emulator. CPU
/// 0 of one is not CPU 0 of another. Every part takes the identity of its machine when it is made,
/// and refuses pins and frames of others.
///
/// ```
/// use ptarmigan::cpu::MachineId;
/// let (a, b) = (MachineId::new(), MachineId::new());
/// assert!(a.matches(a) && !a.matches(b));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MachineId(u32);

impl MachineId {
    /// No machine: it matches nothing.
    pub(crate) const NONE: MachineId = MachineId(NOTHING);

    /// Makes the identity of a machine; no other call returns the same one.
    ///
    /// After 2^32 - 2 calls identities run out. Those made then [match](Self::matches) no machine,
    /// so that everything made for them refuses to work, but no two are mixed up.
    #[expect(
        clippy::new_without_default,
        reason = "a default value is the same value each time; these differ"
    )]
    pub fn new() -> Self {
        // The model checker need not know: the number publishes no data.
        static NEXT: AtomicU32 = AtomicU32::new(NOTHING + 1);
        Self::next_of(&NEXT)
    }

    fn next_of(next: &AtomicU32) -> Self {
        MachineId(next_number(next))
    }

    /// Returns whether both name the same machine.
    #[inline]
    pub const fn matches(self, other: MachineId) -> bool {
        self.0 == other.0 && self.0 != NOTHING
    }
}

impl MachineId {
    /// Accepts objects that belong to this machine: a pin, a frame or a space.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if `other` names another machine.
    #[inline]
    pub const fn accept(self, other: MachineId) -> Result<(), WrongMachine> {
        if self.matches(other) { Ok(()) } else { Err(WrongMachine { called: self, given: other }) }
    }
}

impl fmt::Debug for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NOTHING => f.write_str("MachineId(none left)"),
            n => write!(f, "MachineId({n})"),
        }
    }
}

/// A call was given something of another machine: a pin, a space, a tree. Or both are of one
/// machine, but the part that was called was made for fewer CPUs. The call had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongMachine {
    /// The machine that was called.
    pub called: MachineId,
    /// The machine that the argument is of.
    pub given: MachineId,
}

impl fmt::Display for WrongMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.called.matches(self.given) {
            return write!(f, "a part of {:?} that was made for fewer CPUs; make it for all", self.called);
        }
        write!(f, "{:?} was given what belongs to {:?}; use it with its own machine", self.called, self.given)
    }
}

impl core::error::Error for WrongMachine {}

/// A value that a refused call gives back instead of consuming it, mostly because it is of another
/// machine.
#[must_use = "it holds what the call did not take"]
pub struct Refused<T, E = WrongMachine> {
    /// The value.
    pub value: T,
    /// Why it was not.
    pub error: E,
}

impl<T, E: fmt::Debug> fmt::Debug for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T, E: fmt::Display> fmt::Display for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: core::error::Error> core::error::Error for Refused<T, E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_identities_match_nothing_and_never_wrap() {
        let next = AtomicU32::new(u32::MAX - 1);
        let last = MachineId::next_of(&next);
        assert!(last.matches(last));
        for _ in 0..3 {
            let none = MachineId::next_of(&next);
            assert!(!none.matches(none) && !none.matches(last) && !last.matches(none));
        }
        assert_eq!(next.load(Relaxed), u32::MAX);
    }
}
