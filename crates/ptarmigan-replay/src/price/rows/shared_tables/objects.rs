//! Tells which mappings of shared memory show the same object.
//!
//! Copies that forks make of a mapping show its object. So do mappings whose object has the same
//! name and length; System V segments without a name, and anonymous mappings of processes that ran
//! before the recording, at the same place. Of other objects one cannot know.
use crate::observed::MappingTracker;
use foldhash::HashMap;
use ptarmigan_trace::{Event, Kind, MapFlags, Openings, Text};

/// An object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    /// By its name and its length.
    Named(Text, u64),
    /// By its place and its length.
    At(u64, u64),
    /// By the number of its mapping.
    Mapping(u32),
}

/// The part of an object that one leaf table maps: the object, and the page of it at the table's
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part(Object, u64);

/// Follows the mappings of shared memory.
#[derive(Default)]
pub struct Objects {
    mappings: MappingTracker,
    openings: Openings,
    /// The mappings whose object is known without a name, by number, and whether their place and
    /// length tell it.
    known: HashMap<u32, bool>,
}

impl Objects {
    /// Follows an event. Faults change no mapping.
    pub fn follow(&mut self, event: &Event) {
        if let Kind::Fault { .. } | Kind::TlbFlush { .. } | Kind::Idle = event.kind {
            return;
        }
        let ran_before = self.openings.see(event).is_some();
        self.mappings.see(event);
        let Kind::Mmap { start, flags: MapFlags(flags), .. } = event.kind else { return };
        let is_segment = flags & MapFlags::SEGMENT != 0;
        if (is_segment || flags & MapFlags::ANON != 0 && flags & MapFlags::SHARED != 0)
            && let Some(mapping) = self.mappings.at(event.task, start)
        {
            self.known.insert(mapping.number, is_segment || ran_before);
        }
    }

    /// Returns the part of an object that the table at page `start` of a space maps, and whether
    /// other mappings of the object are known; `offset` is the page of the mapping there.
    pub fn part(&self, space: u32, start: u64, offset: u64) -> Option<(Part, bool)> {
        let mapping = self.mappings.map_of(space)?.at(start)?;
        let known = self.known.get(&mapping.number);
        let object = match (mapping.name, known) {
            (Some(name), _) => Object::Named(name, mapping.made),
            (None, Some(true)) => Object::At(start.wrapping_sub(offset), mapping.made),
            _ => Object::Mapping(mapping.number),
        };
        Some((Part(object, offset), mapping.name.is_some() || known.is_some()))
    }
}
