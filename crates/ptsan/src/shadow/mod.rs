//! Shadow state: all that is known of frames that are or were tables.
mod frame;
mod frames;
mod history;
mod holders;
mod leftovers;
mod mappings;
mod pages;
mod stored_values;

pub(crate) use frame::{Frame, FrameRef, Link, State};
pub(crate) use frames::FrameTable;
pub(crate) use holders::{GLOBALS, Holder, REGISTERS};
pub(crate) use leftovers::Leftovers;
pub(crate) use mappings::{Mappings, UserMapping};
pub(crate) use stored_values::Told;
