//! Holds facts about a stale set beside its addresses.

/// Facts about a stale set beside its addresses; `None` where nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Stale pages that a hash table may hold. Not known: all of them.
    pub hashed: Option<u64>,
    /// Pages between the first and the last stale one that are in use and not stale. Not known: all
    /// that are not stale.
    pub live: Option<u64>,
    /// Pages in use that are found again after everything was forgotten. Not known: the value of
    /// the [costs](super::Costs::resident).
    pub resident: Option<u64>,
    /// Entries that the machine goes through to forget everything. Not known: the value of the
    /// [costs](super::Costs::entries).
    pub entries: Option<u64>,
    /// CPUs that are asked; 0 if the hardware broadcasts. They act at the same time, so the request
    /// is part of each plan's price and does not decide between plans.
    pub asked: u64,
}

impl Facts {
    /// No fact is known.
    pub const UNKNOWN: Facts = Facts { hashed: None, live: None, resident: None, entries: None, asked: 0 };
}
