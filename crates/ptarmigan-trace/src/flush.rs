//! The meaning of the reasons of [`Kind::TlbFlush`](crate::Kind::TlbFlush).
//!
//! The numbers are those of Linux's `enum tlb_flush_reason`. No number has changed its meaning, and
//! later versions have added some:
//!
//! | reason | Linux's name | since | an event says |
//! |---|---|---|---|
//! | 0 | `TLB_FLUSH_ON_TASK_SWITCH` | 3.17 | a CPU loaded another address space |
//! | 1 | `TLB_REMOTE_SHOOTDOWN` | 3.17 | a CPU flushed at the request of another |
//! | 2 | `TLB_LOCAL_SHOOTDOWN` | 3.17 | a CPU flushed what it asked for itself, of all spaces |
//! | 3 | `TLB_LOCAL_MM_SHOOTDOWN` | 3.17 | a CPU flushed what it asked for itself, of one space |
//! | 4 | `TLB_REMOTE_SEND_IPI` | 4.3 | a CPU asked others to flush, which is no flush yet |
//! | 5 | `TLB_REMOTE_WRONG_CPU` | 6.14 | a request met a CPU without the space, and made no flush |
//!
//! Reason 5 has no pages, so it is no flush of everything. Linux counts in pages since 4.6; before,
//! reason 4 counted bytes.

/// The meaning of an event of the tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushEvent {
    /// A CPU loaded another address space.
    Switch,
    /// A CPU flushed at the request of another.
    ForOthers,
    /// A CPU flushed what it had asked for itself.
    CarriedOut,
    /// A CPU asked others to flush.
    Requested,
    /// A request met a CPU that does not have the space, and made no flush.
    WrongCpu,
}

/// A reason, as Linux numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushReason {
    /// The number.
    pub number: u8,
    /// Linux's name.
    pub name: &'static str,
    /// The first version of Linux that has it.
    pub since: &'static str,
    /// The meaning of an event.
    pub event: FlushEvent,
}

/// The known reasons, by number.
pub const FLUSH_REASONS: [FlushReason; 6] = {
    const fn reason(number: u8, name: &'static str, since: &'static str, event: FlushEvent) -> FlushReason {
        FlushReason { number, name, since, event }
    }
    [
        reason(0, "TLB_FLUSH_ON_TASK_SWITCH", "3.17", FlushEvent::Switch),
        reason(1, "TLB_REMOTE_SHOOTDOWN", "3.17", FlushEvent::ForOthers),
        reason(2, "TLB_LOCAL_SHOOTDOWN", "3.17", FlushEvent::CarriedOut),
        reason(3, "TLB_LOCAL_MM_SHOOTDOWN", "3.17", FlushEvent::CarriedOut),
        reason(4, "TLB_REMOTE_SEND_IPI", "4.3", FlushEvent::Requested),
        reason(5, "TLB_REMOTE_WRONG_CPU", "6.14", FlushEvent::WrongCpu),
    ]
};

impl FlushEvent {
    /// Returns the meaning of an event with this reason. `None` for a reason that is not known:
    /// that of a later version of Linux.
    #[must_use]
    pub fn of(reason: u8) -> Option<Self> {
        FLUSH_REASONS.iter().find(|known| known.number == reason).map(|known| known.event)
    }
}

impl FlushEvent {
    /// Returns whether the event counts pages. Only [`WrongCpu`](Self::WrongCpu) has none.
    #[must_use]
    pub fn has_pages(self) -> bool {
        self != Self::WrongCpu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_meaning_and_later_ones_have_none() {
        use FlushEvent::{CarriedOut, ForOthers, Requested, Switch, WrongCpu};
        let known = [Switch, ForOthers, CarriedOut, CarriedOut, Requested, WrongCpu].map(Some);
        assert_eq!([0, 1, 2, 3, 4, 5].map(FlushEvent::of), known);
        assert!((6..=u8::MAX).all(|reason| FlushEvent::of(reason).is_none()));
    }

    /// The rows of a table of reasons: number, name, version.
    fn rows(text: &str) -> Vec<String> {
        FLUSH_REASONS
            .iter()
            .map(|reason| format!("| {} | `{}` | {} |", reason.number, reason.name, reason.since))
            .filter(|row| !text.contains(row.as_str()))
            .collect()
    }

    #[test]
    fn the_documents_have_the_table_of_the_code() {
        let none: [String; 0] = [];
        assert_eq!(rows(include_str!("flush.rs")), none);
        assert_eq!(rows(include_str!("../trace-format.md")), none);
    }
}
