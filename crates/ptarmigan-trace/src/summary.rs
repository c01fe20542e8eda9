//! The trailer: counts, and the checksum of everything before it.
use crate::{Kind, MAX_TASKS, ReadError, hash, row};

/// The first bytes of the trailer.
const MAGIC: [u8; 8] = *b"PTRTAIL\n";
/// Length of the trailer in bytes.
pub(crate) const LEN: usize = 184;

/// The data after the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Summary {
    /// Number of events.
    pub events: u64,
    /// Number of events that the kernel dropped. They are not in the trace, which then replays only
    /// in part.
    pub lost: u64,
    /// Number of tasks, the first included.
    pub tasks: u32,
    /// Number of programs that ran and were not recorded. The trace has at most their start and
    /// their end. Format 3 has it; 0 in others.
    pub unrecorded: u32,
    /// Number of events by kind; see [`kind_index`](crate::kind_index).
    pub by_kind: [u64; 16],
    /// Length of the rows before compression, in bytes.
    pub row_bytes: u64,
}

impl Summary {
    /// Returns the number of events of the same kind as `kind`, whatever its fields.
    #[must_use]
    pub fn count(&self, kind: &Kind) -> u64 {
        self.by_kind[row::kind_index(kind)]
    }

    pub(crate) fn encode(&self, file_hash: u64) -> [u8; LEN] {
        let mut b = Vec::with_capacity(LEN);
        b.extend(MAGIC);
        b.extend(self.events.to_le_bytes());
        b.extend(self.lost.to_le_bytes());
        b.extend(self.tasks.to_le_bytes());
        b.extend(self.unrecorded.to_le_bytes());
        for n in self.by_kind {
            b.extend(n.to_le_bytes());
        }
        b.extend(self.row_bytes.to_le_bytes());
        b.extend(file_hash.to_le_bytes());
        b.extend(hash::of(&b).to_le_bytes());
        let mut out = [0; LEN];
        out.copy_from_slice(&b);
        out
    }

    /// Decodes a trailer of a trace in `version`. Returns it with the checksum of the bytes before
    /// it.
    pub(crate) fn decode(b: &[u8; LEN], version: u16) -> Result<(Self, u64), ReadError> {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&b[at..at + 8]);
            u64::from_le_bytes(w)
        };
        let damaged = ReadError::Checksum { part: "trailer" };
        if b[..8] != MAGIC || word(LEN - 8) != hash::of(&b[..LEN - 8]) {
            return Err(damaged);
        }
        let (tasks, unrecorded) = (word(24) as u32, (word(24) >> 32) as u32);
        let mut by_kind = [0; 16];
        for (i, n) in by_kind.iter_mut().enumerate() {
            *n = word(32 + 8 * i);
        }
        if unrecorded != 0 && version < 3 {
            return Err(damaged);
        }
        let (events, lost, row_bytes) = (word(8), word(16), word(160));
        let summary = Self { events, lost, tasks, unrecorded, by_kind, row_bytes };
        if !summary.is_possible() {
            let what = "the trailer contradicts itself";
            return Err(ReadError::Damaged { event: summary.events, offset: summary.row_bytes, what });
        }
        Ok((summary, word(168)))
    }

    /// Returns whether any trace has these counts. Each clone makes one task, and each event has at
    /// least one byte, as has the end mark.
    fn is_possible(&self) -> bool {
        let sum = self.by_kind.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        let clones = u64::from(self.tasks).checked_sub(1);
        sum == Some(self.events)
            && self.by_kind[usize::from(row::END)] == 0
            && clones == Some(self.by_kind[row::CLONE])
            && self.tasks <= MAX_TASKS
            && self.row_bytes > self.events
    }

    /// Returns whether a trailer begins here, whatever its checksum.
    pub(crate) fn starts(b: &[u8]) -> bool {
        b.starts_with(&MAGIC)
    }
}
