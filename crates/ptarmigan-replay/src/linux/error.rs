//! Why a recorded call failed.
use ptarmigan::addr::BackwardRange;
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

impl From<BackwardRange> for CallError {
    fn from(e: BackwardRange) -> Self {
        CallError::Refused(e.to_string())
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
