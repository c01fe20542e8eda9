//! The rows of work by mapping and by function.
use super::group::{Counts, Group};
use crate::observed::mappings::{Mapping, MappingKind};
use foldhash::{HashMap, HashMapExt};
use ptarmigan_trace::{Symbols, Text};
use serde::Serialize;
use std::cmp::Reverse;

/// The work of a recording, by mapping and by function.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Work {
    /// By mapping; those with most faults first.
    pub mappings: Vec<MappingWork>,
    /// By function; those with most events first. Empty without the symbols of a recording.
    pub functions: Vec<FunctionWork>,
}

/// The faults in mappings of one kind and name, of one program. Memory without a name has a row for
/// each length.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct MappingWork {
    /// The program.
    pub program: String,
    /// The kind: `heap`, `file`, `library`; `unknown` if no event has made the mapping.
    pub kind: &'static str,
    /// The name of its object, if the trace has it.
    pub name: Option<String>,
    /// The number of the thread, if it is the stack of one.
    pub thread: Option<u32>,
    /// The number of mappings with a fault.
    pub mappings: u64,
    /// The address of the mapping with the most faults, in hexadecimal.
    pub address: Option<String>,
    /// The length of that mapping in bytes.
    pub bytes: u64,
    /// Faults.
    pub faults: u64,
    /// Share of all faults.
    pub share: f64,
    /// Last-level tables that these faults have made, if the recording was replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<u64>,
}

/// The work that one function of a program has caused.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct FunctionWork {
    /// The program.
    pub program: String,
    /// The work: `fault`, or a call.
    pub work: &'static str,
    /// The function. `None` if it is not known.
    pub function: Option<String>,
    /// The program or library that it is in.
    pub module: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line with the most events; 0 if unknown.
    pub line: u32,
    /// The functions that called it, inner ones first, where it caused the most.
    pub callers: Vec<String>,
    /// Events, as far as samples tell.
    pub events: u64,
    /// Share of all events of this work.
    pub share: f64,
    /// Seconds that the calls took, if the trace has times.
    pub seconds: Option<f64>,
}

impl Work {
    /// Keeps the first `most` rows of each table. A last row by mapping has the sums of the others.
    pub fn shorten(&mut self, most: usize) {
        self.functions.truncate(most);
        if self.mappings.len() <= most {
            return;
        }
        let others = self.mappings.split_off(most.saturating_sub(1));
        let mut rest =
            MappingWork { program: "others".to_owned(), kind: "mappings", ..MappingWork::default() };
        for row in others {
            rest.mappings += row.mappings;
            rest.faults += row.faults;
            rest.share += row.share;
            rest.tables = rest.tables.map_or(row.tables, |sum| Some(sum + row.tables.unwrap_or(0)));
        }
        self.mappings.push(rest);
    }
}

impl MappingWork {
    /// Returns the kind and the name: `heap`, `file data.db`, `stack of thread 3`.
    #[must_use]
    pub fn label(&self) -> String {
        match (&self.name, self.thread) {
            (Some(name), _) => format!("{} {name}", self.kind),
            (None, Some(thread)) => format!("stack of thread {thread}"),
            (None, None) if self.mappings > 1 && self.kind == MappingKind::ThreadStack.name() => {
                "thread stacks".to_owned()
            }
            (None, None) => self.kind.to_owned(),
        }
    }
}

impl FunctionWork {
    /// Returns the function and its line: `fill (work.c:12)`, or `caller unknown`.
    #[must_use]
    pub fn label(&self) -> String {
        match (&self.function, &self.file) {
            (Some(function), Some(file)) if self.line > 0 => format!("{function} ({file}:{})", self.line),
            (Some(function), _) => function.clone(),
            (None, _) => "caller unknown".to_owned(),
        }
    }
}

/// Program, kind, name and length.
type RowKey<'a> = (&'a str, Option<MappingKind>, Option<Text>, u64);
/// Sums, mappings, and the mapping with the most faults, with their number.
type RowCounts = (Counts, u64, Option<(Mapping, u64)>);

/// Makes the rows of mappings.
pub(super) fn mappings(
    groups: &HashMap<Group, Counts>,
    single: &HashMap<(u32, u32), (Mapping, u64)>,
    programs: &[String],
    symbols: &Symbols,
    replayed: bool,
) -> Vec<MappingWork> {
    let program = |start: u32| programs.get(start as usize).map_or("", |name| name.as_str());
    let faults: u64 = groups.values().map(|counts| counts.faults).sum();
    // Starts of one program share their rows.
    let key = |group: &Group| (program(group.start), group.kind, group.name, group.made);
    let mut rows: HashMap<RowKey<'_>, RowCounts> = HashMap::new();
    for (group, counts) in groups {
        let (sum, ..) = rows.entry(key(group)).or_default();
        sum.faults += counts.faults;
        sum.tables += counts.tables;
    }
    for ((start, _), (mapping, faults)) in single {
        let Some((_, mappings, top)) = rows.get_mut(&key(&Group::of(*start, Some(mapping)))) else {
            continue;
        };
        *mappings += 1;
        // Of equal ones the lowest, so that the order of a table does not matter.
        if top.is_none_or(|(most, n)| (n, Reverse(most.start)) < (*faults, Reverse(mapping.start))) {
            *top = Some((*mapping, *faults));
        }
    }
    let row = |(key, row): (RowKey<'_>, RowCounts)| {
        let ((program, kind, name, _), (sum, mappings, top)) = (key, row);
        let top = top.map(|(mapping, _)| mapping);
        MappingWork {
            program: program.to_owned(),
            kind: kind.map_or("unknown", MappingKind::name),
            name: name.map(|name| symbols.text(name).to_owned()),
            thread: top.and_then(|m| m.thread).filter(|_| mappings == 1),
            mappings,
            address: top.map(|m| format!("{:#x}", m.start << 12)),
            bytes: top.map_or(0, |m| (m.end - m.start) << 12),
            faults: sum.faults,
            share: sum.faults as f64 / faults.max(1) as f64,
            tables: replayed.then_some(sum.tables),
        }
    };
    let mut rows: Vec<_> = rows.into_iter().map(row).collect();
    rows.sort_by(|a, b| {
        let same = (&a.program, a.kind, &a.name, &a.address).cmp(&(&b.program, b.kind, &b.name, &b.address));
        b.faults.cmp(&a.faults).then(same)
    });
    rows
}
