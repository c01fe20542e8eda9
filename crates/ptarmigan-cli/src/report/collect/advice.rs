//! Advice for the author of a recorded program.
use crate::advise::{Brief, Effort, brief};
use ptarmigan_replay::SoloTrace;
use serde::Serialize;

/// Advice, or why there is none.
#[derive(Serialize)]
pub(crate) struct AdviceFigures {
    /// The pieces, the most valuable first.
    pub pieces: Vec<Brief>,
    /// Why advice was not found. The other figures stand without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl AdviceFigures {
    /// Looks for advice in replays on a machine of `memory` bytes.
    pub fn new(recorded: &SoloTrace, memory: u64, effort: Effort) -> Self {
        match brief(recorded, memory, effort) {
            Ok(pieces) => AdviceFigures { pieces, problem: None },
            Err(failure) => AdviceFigures { pieces: Vec::new(), problem: Some(failure.message().to_owned()) },
        }
    }
}
