//! Errors of a single step of a program.
use super::cells::OutOfOrder;
use super::progress::Cancelled;
use crate::linux::CallError;

/// The reason why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError {
    /// Another worker stopped the replay.
    Cancelled,
    /// The worker has not claimed the space that the step uses: the schedule is wrong.
    OutOfOrder,
    /// The recorded call failed.
    Call(CallError),
}

impl<E: Into<CallError>> From<E> for StepError {
    fn from(e: E) -> Self {
        StepError::Call(e.into())
    }
}

impl From<OutOfOrder> for StepError {
    fn from(_: OutOfOrder) -> Self {
        StepError::OutOfOrder
    }
}

impl From<Cancelled> for StepError {
    fn from(_: Cancelled) -> Self {
        StepError::Cancelled
    }
}

/// The step that ended a worker's program early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedStep {
    /// The event of the trace that the step belongs to.
    pub event: u32,
    /// The reason.
    pub error: StepError,
}
