//! Describes the end of a run of kernel code.

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
    /// Returns the code's result, or `None` if it halted.
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
