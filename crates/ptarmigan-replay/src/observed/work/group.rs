//! Mappings that share a row, and their counts.
use crate::observed::mappings::{Mapping, MappingKind};
use ptarmigan_trace::Text;

/// Mappings that are one row: of one start of a program, of one kind and name. Memory without a
/// name is told apart by its length.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) start: u32,
    pub(super) kind: Option<MappingKind>,
    pub(super) name: Option<Text>,
    pub(super) made: u64,
}

impl Group {
    pub(super) fn of(start: u32, mapping: Option<&Mapping>) -> Self {
        let by_length = mapping.filter(|m| {
            let kinds = [MappingKind::Anonymous, MappingKind::SharedMemory, MappingKind::ThreadStack];
            m.name.is_none() && kinds.contains(&m.kind)
        });
        let (kind, name) = (mapping.map(|m| m.kind), mapping.and_then(|m| m.name));
        Self { start, kind, name, made: by_length.map_or(0, |m| m.made) }
    }
}

/// Faults and tables.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) faults: u64,
    pub(super) tables: u64,
}
