//! How a run of kernel code ended.

/// How [`super::Watch::run_on`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a run that halted did not return"]
pub enum Ended<R> {
    /// The code returned.
    Returned(R),
    /// The code executed `hlt`.
    Halted {
        /// Address of the instruction.
        rip: usize,
    },
}

impl<R> Ended<R> {
    /// Returns what the code returned, or `None` if it halted.
    pub fn returned(self) -> Option<R> {
        match self {
            Self::Returned(result) => Some(result),
            Self::Halted { .. } => None,
        }
    }

    /// Returns whether the code halted.
    #[must_use]
    pub fn halted(&self) -> bool {
        matches!(self, Self::Halted { .. })
    }
}
