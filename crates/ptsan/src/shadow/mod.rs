//! Shadow state: all that is known of frames that are or were tables.
mod frame;
mod frames;
mod history;
mod leftovers;

pub(crate) use frame::{Frame, FrameRef, GLOBALS, Holder, Link, REGISTERS, State};
pub(crate) use frames::FrameTable;
pub(crate) use leftovers::Leftovers;
