//! The checks of a table that a walk, a load of the root or an entry reaches.
use super::linked::pointed_at_by;
use crate::memory::Memory;
use crate::report::{Kind, Place, Rule};
use crate::shadow::{FrameRef, Link, State};
use crate::state::Sanitizer;

impl Sanitizer {
    /// Checks that the table at `phys`, reached by a walk, a load of the root or an entry, is one,
    /// and records the link.
    pub(crate) fn reached(
        &mut self,
        memory: &(impl Memory + ?Sized),
        phys: u64,
        link: Option<Link>,
        place: Place,
        walk: bool,
    ) -> FrameRef {
        let Some(at) = self.frames.find(phys) else {
            let kind = if memory.read(phys, 8).is_some() { Kind::UnknownTable } else { Kind::OutsideMemory };
            // The walk itself reports a read outside memory.
            if kind == Kind::UnknownTable || !walk {
                let rule = if kind == Kind::UnknownTable { Rule::NeverAnnounced } else { Rule::NoMemory };
                self.report(kind, rule, place, || pointed_at_by(link));
            }
            return FrameRef::UNKNOWN;
        };
        // A load of the root is the exact moment at which it becomes reachable.
        if link.is_none() || self.config.infer_leftovers {
            self.check_leftovers(memory, at, place);
        }
        let recursive = self.config.recursive;
        let levels = &self.config.arch.levels;
        let one =
            place.level.and_then(|l| levels.get(usize::from(l))).map_or(0, |l| u64::from(l.table_bytes));
        let granule = self.config.arch.granule();
        let Some(f) = self.frames.get_mut(at) else { return FrameRef::UNKNOWN };
        f.leftovers = None;
        let freed = f.state == State::Freed;
        let old_level = f.level;
        if !freed {
            // A block that holds several tables has no level of its own, unless one was announced.
            // A small root may have a whole frame.
            let alone = f.size <= one || link.is_none() && f.phys == phys && f.size <= granule;
            f.level = f.level.or(place.level.filter(|_| alone));
            if let Some(link) = link {
                f.link_through(link);
            }
        }
        let learned = old_level.is_none() && f.level.is_some();
        if freed && !self.blamed.contains_key(&at) {
            let rule = if walk { Rule::WalkedAfterFree } else { Rule::LinkedAfterFree };
            self.report(Kind::UseAfterFree, rule, place, || pointed_at_by(link));
        } else if !freed
            && let (Some(old), Some(now)) = (old_level, place.level)
            && old != now
            && !recursive
        {
            let arch = &self.config.arch;
            let note = format!("first {}, now {}", arch.level_name(old), arch.level_name(now));
            self.report(Kind::WalkLoop, Rule::TwoLevels, place, || note);
        } else if learned {
            self.level_learned(memory, at, walk);
        }
        at
    }
}
