//! Shadow state: what is known of every frame that is or was a table.
mod frame;
mod frames;
mod history;
mod leftovers;

pub(crate) use frame::{Frame, FrameRef, GLOBALS, Holder, Link, REGISTERS, State};
pub(crate) use frames::FrameTable;
pub(crate) use leftovers::Leftovers;
