//! Tables that an entry still points at when they are freed.
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, Link, State};
use crate::state::Sanitizer;

/// The most tables above one that are looked at.
const MOST_SEEN: usize = 1 << 10;

impl Sanitizer {
    /// Reports the table if an entry through which it was reached still points at it and can be
    /// walked.
    pub(crate) fn check_linked(&mut self, memory: &(impl Memory + ?Sized), at: FrameRef) {
        let Some(f) = self.frames.get(at) else { return };
        let Some(link) = self.walked_link(memory, at) else { return };
        let place = Place { frame: Some(f.phys), level: f.level, ..Place::default() };
        self.report(Kind::FreeWhileLinked, Rule::StillLinked, place, || pointed_at_by(Some(link)));
    }

    /// Returns whether a CPU may hold the table, or can walk to it.
    pub(crate) fn in_use(&self, memory: &(impl Memory + ?Sized), at: FrameRef) -> bool {
        let Some(f) = self.frames.get(at) else { return false };
        self.held(memory, at, f).is_some() || self.owe_unlinked(at) || self.walked_link(memory, at).is_some()
    }

    /// Returns an entry that points at the table and can be walked.
    fn walked_link(&self, memory: &(impl Memory + ?Sized), at: FrameRef) -> Option<Link> {
        let f = self.frames.get(at)?;
        let mut seen = Vec::new();
        f.links()
            .find(|link| self.points_at(memory, *link, f) && self.reachable(memory, link.parent, &mut seen))
    }

    /// Returns whether a walk on some CPU can reach this table: as a loaded root, from a cache, or
    /// from a reachable entry. Looks at no table that was `seen`.
    fn reachable(&self, memory: &(impl Memory + ?Sized), at: FrameRef, seen: &mut Vec<FrameRef>) -> bool {
        let Some(f) = self.frames.get(at) else { return false };
        if f.state == State::Freed || seen.len() >= MOST_SEEN || seen.contains(&at) {
            return false;
        }
        seen.push(at);
        self.held(memory, at, f).is_some_and(|h| h.rule != Rule::HeldInTlb)
            || f.links()
                .any(|link| self.points_at(memory, link, f) && self.reachable(memory, link.parent, seen))
    }
}

pub(super) fn pointed_at_by(link: Option<Link>) -> String {
    link.map_or_else(String::new, |l| format!("the entry at {:#x} points at it", l.entry))
}
