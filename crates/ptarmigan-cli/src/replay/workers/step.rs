//! Errors of a single step of a program.
use super::cells::OutOfOrder;
use super::progress::Cancelled;
use ptarmigan::cpu::WrongMachine;
use ptarmigan::frames::NoFrame;
use ptarmigan::space::{AreaError, LockError};
use ptarmigan::tlb::TlbRefusal;

/// The reason why a recorded call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Memory ran out.
    NoFrame(NoFrame),
    /// The address space refused the call, for the reason given.
    Refused(String),
}

impl From<AreaError> for CallError {
    fn from(e: AreaError) -> Self {
        match e {
            AreaError::NoFrame(e) => CallError::NoFrame(e),
            e => CallError::Refused(e.to_string()),
        }
    }
}

impl From<WrongMachine> for CallError {
    fn from(e: WrongMachine) -> Self {
        CallError::Refused(e.to_string())
    }
}

impl From<TlbRefusal> for CallError {
    fn from(e: TlbRefusal) -> Self {
        CallError::Refused(e.to_string())
    }
}

impl From<LockError> for CallError {
    fn from(e: LockError) -> Self {
        CallError::Refused(e.to_string())
    }
}

impl From<NoFrame> for CallError {
    fn from(e: NoFrame) -> Self {
        CallError::NoFrame(e)
    }
}

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
