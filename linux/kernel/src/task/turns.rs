//! Turns that tasks take on a CPU: policies and ranks, as `sched_setscheduler` sets them.

use crate::errno::Errno;

/// `SCHED_RR`.
const ROUND_ROBIN: u8 = 2;
/// Policies that programs may choose, as a set: `SCHED_OTHER`, `FIFO`, `RR`, `BATCH`, `IDLE`.
const CHOSEN: u64 = 0b10_1111;
/// Those with ranks: `SCHED_FIFO` and `SCHED_RR`.
const RANKED: u64 = 0b110;
/// `SCHED_RESET_ON_FORK`.
const RESET_ON_FORK: u32 = 1 << 30;

/// How a task takes turns. One with a rank goes before all of a lower one, or without one. Tasks
/// without a rank take turns of a tick, whatever their policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The policy's number.
    policy: u8,
    /// The rank, from 1 to 99; 0 without one.
    pub rank: u8,
    /// Children do not inherit a rank.
    resets: bool,
}

impl Turns {
    /// Those of process 1: `SCHED_OTHER`.
    pub const NONE: Turns = Turns { policy: 0, rank: 0, resets: false };

    /// Makes those of a policy, with flags as `sched_setscheduler` has them, and a rank.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if there is no such policy, or if it has no such rank.
    pub fn new(policy: u32, rank: u32) -> Result<Self, Errno> {
        let (resets, policy) = (policy & RESET_ON_FORK != 0, policy & !RESET_ON_FORK);
        let is = |set: u64| policy < 8 && set & 1 << policy != 0;
        Errno::EINVAL.when(!is(CHOSEN) || rank > 99 || is(RANKED) != (rank > 0))?;
        Ok(Turns { policy: policy as u8, rank: rank as u8, resets })
    }

    /// Returns the policy, with flags.
    pub fn policy(self) -> u32 {
        u32::from(self.policy) | if self.resets { RESET_ON_FORK } else { 0 }
    }

    /// Whether tasks of its rank take turns.
    pub fn takes_turns(self) -> bool {
        self.rank == 0 || self.policy == ROUND_ROBIN
    }

    /// Returns those of a child.
    pub fn inherited(self) -> Self {
        match self {
            Turns { resets: false, .. } => self,
            Turns { rank: 0, .. } => Turns { resets: false, ..self },
            _ => Turns::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_their_ranks() {
        for (policy, rank, fits) in
            [(0, 0, true), (0, 1, false), (1, 1, true), (1, 0, false), (2, 99, true), (2, 100, false)]
        {
            assert_eq!(Turns::new(policy, rank).is_ok(), fits, "{policy} {rank}");
        }
        assert!(Turns::new(3, 0).is_ok() && Turns::new(5, 0).is_ok());
        for policy in [4, 6, 7, 8, 64, u32::MAX] {
            assert_eq!(Turns::new(policy, 0), Err(Errno::EINVAL), "{policy}");
        }
    }

    #[test]
    fn children_inherit_a_rank_unless_it_is_reset() {
        let ranked = Turns::new(1, 5).unwrap();
        assert_eq!((ranked.inherited(), ranked.takes_turns()), (ranked, false));
        let reset = Turns::new(2 | RESET_ON_FORK, 5).unwrap();
        assert_eq!((reset.policy(), reset.inherited()), (2 | RESET_ON_FORK, Turns::NONE));
        let batch = Turns::new(3 | RESET_ON_FORK, 0).unwrap();
        assert_eq!(batch.inherited().policy(), 3);
    }
}
