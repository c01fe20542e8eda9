//! Shadow state: all that is known of frames that are or were tables.
mod frame;
mod frames;
mod history;
mod holders;
mod leftovers;
mod mappings;
mod pages;
mod told;

pub(crate) use frame::{Frame, FrameRef, Link, State};
pub(crate) use frames::FrameTable;
pub(crate) use holders::{GLOBALS, Holder, REGISTERS};
pub(crate) use leftovers::Leftovers;
pub(crate) use mappings::{Mapping, Mappings};
pub(crate) use told::Told;
