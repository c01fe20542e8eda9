//! The areas of a space, in order of address, in frames of the library's own.
//!
//! Records lie sorted in leaf frames of 127; from the second leaf on, a directory frame lists the
//! leaves in order. So a small process needs one frame, lookup is two binary searches, and fork
//! copies frames.
//!
//! # The most areas
//!
//! A space has [`MAX_AREAS`] areas at the most, in whatever order they come and go. The directory
//! lists 1024 leaves:
//!
//! 1. A full leaf is split where the new record lies. So a leaf that is filled from one side, up or
//!    down, is full when the next one begins.
//! 2. Two neighbouring leaves become one when they have few records together. That is looked at
//!    after a split, and after every 16th removal from a leaf.
//! 3. If a leaf is to be split and the directory is full, two neighbouring leaves that fit into one
//!    are joined first. There are two, because 512 pairs of which none fits into one leaf of 127
//!    have 65,536 records.
mod error;
mod leaf;
mod ranges;
mod store;

use super::area::Area;
use crate::addr::{Pfn, VirtRange};
use crate::cpu::{MachineId, WrongMachine};
use crate::machine::{Machine, On};
use crate::sync::atomic::AtomicU32;
pub use error::AreaError;
pub(super) use leaf::Hint;

/// The areas of a space, to read them. They lie in frames of the space's machine: on another one
/// the list is empty.
///
/// Only the calls of [`SpaceMut`](super::SpaceMut) change them:
///
/// ```compile_fail,E0603
/// use ptarmigan::space::areas::Areas; // private
/// ```
///
/// ```compile_fail,E0599
/// use ptarmigan::{format::X86_64, machine::On, space::{Space, SpaceMachine}};
/// fn forget<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<X86_64>) {
///     space.areas().clear(on); // its pages would be mapped without an area
/// }
/// ```
#[derive(Clone, Copy)]
pub struct AreasRef<'a> {
    areas: &'a Areas,
    machine: MachineId,
}

impl<'a> AreasRef<'a> {
    #[inline]
    pub(in crate::space) fn new(areas: &'a Areas, machine: MachineId) -> Self {
        AreasRef { areas, machine }
    }

    /// Returns how many areas there are.
    pub fn len(self) -> usize {
        self.areas.len as usize
    }

    /// Returns whether it is empty.
    pub fn is_empty(self) -> bool {
        self.areas.len == 0
    }

    /// Returns the number of frames in use for records.
    pub fn frames(self) -> u32 {
        self.areas.frames()
    }

    /// Returns the area that `va` lies in.
    pub fn find<M: Machine>(self, on: On<'_, M>, va: u64) -> Option<Area> {
        self.on(on).ok()?.find(on, va)
    }

    /// Returns the first area that ends above `va`: the one it lies in, or the next.
    pub fn at_or_after<M: Machine>(self, on: On<'_, M>, va: u64) -> Option<Area> {
        self.on(on).ok()?.at_or_after(on, va)
    }

    /// Returns the last area that ends at or below `va`.
    pub fn last_before<M: Machine>(self, on: On<'_, M>, va: u64) -> Option<Area> {
        self.on(on).ok()?.last_before(on, va)
    }

    /// Calls `visit` for every area that has anything in `range`, in order.
    ///
    /// # Errors
    ///
    /// [`WrongMachine`] if the space is of another machine.
    pub fn each<M: Machine>(
        self,
        on: On<'_, M>,
        range: VirtRange,
        visit: impl FnMut(&Area),
    ) -> Result<(), WrongMachine> {
        self.on(on)?.each(on, range, visit);
        Ok(())
    }

    fn on<M: Machine>(self, on: On<'_, M>) -> Result<&'a Areas, WrongMachine> {
        on.check(self.machine)?;
        Ok(self.areas)
    }
}

/// The number of areas that a space has at the most: Linux's default (`vm.max_map_count`). One more
/// is [`AreaError::TooMany`].
pub const MAX_AREAS: u32 = 65_530;

/// The areas of one space. They do not know their machine: callers pass the one that they have
/// compared with the space's.
pub(super) struct Areas {
    /// The only leaf, or the directory.
    root: Pfn,
    leaves: u32,
    len: u32,
    /// How many [histories](Area::history) have begun.
    histories: AtomicU32,
}
