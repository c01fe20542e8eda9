//! Pieces of advice, and those that were considered and rejected.
use super::expect::Expect;
use super::figures::{Figures, Saved};
use super::program::work::LinuxWork;
use ptarmigan_term::Bytes;
use serde::Serialize;

/// Whom a piece of advice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum To {
    /// The author of the recorded program.
    Program,
    /// A kernel that runs it.
    Kernel,
    /// Whoever sets up the machine that runs it.
    Machine,
}

impl To {
    /// Returns whom advice of a kind is for that looks at a program.
    pub fn of(kind: &str) -> Self {
        if MACHINE.contains(&kind) { To::Machine } else { To::Program }
    }
}

/// Kinds of advice on settings of the machine.
const MACHINE: [&str; 2] = ["mthp", "pin"];

/// A piece of advice.
#[derive(Debug, Serialize)]
pub struct Advice {
    /// Its kind.
    pub kind: &'static str,
    /// Whom it is for.
    pub to: To,
    /// The change that it advises, in a few words.
    pub title: String,
    /// The saving, as sentences.
    pub figure: String,
    /// How to do it.
    pub how: String,
    /// The effects that were not measured.
    pub not_measured: String,
    /// The part of the whole that it saves, 0 to 1: pieces without known seconds are sorted by it.
    pub value: f64,
    /// The replay as recorded, or with the usual settings.
    pub without: Figures,
    /// The replay with the advice followed.
    pub with: Figures,
    /// The difference.
    pub saved: Saved,
    /// Where it applies, and what a second recording should show.
    #[serde(flatten)]
    pub details: Details,
    /// What Linux on this machine takes for work on pages, for huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxWork>,
    /// Further replays, and settings that were tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// Where a piece of advice applies, and what a second recording should show.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Details {
    /// The programs that change, those with most of it first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramShare>,
    /// The mappings, the largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<MappingPlace>,
    /// The function that causes most of it, if callers were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// What a second recording should show.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<Expect>,
    /// Seconds of CPU time that it saves, if they are known: pieces of advice are sorted by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The saving is an upper bound, of which so large a part is likely: it is sorted by that.
    #[serde(skip)]
    pub likely: Option<f64>,
    /// The range of the saving holds 0: it may as well be a loss.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
}

/// A program's part of what a piece of advice is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramShare {
    /// The program.
    pub name: String,
    /// Forks, regions, tables: what the title counts.
    pub count: u64,
    /// Seconds, if calls were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappingPlace {
    /// The program.
    pub program: String,
    /// The kind of mapping, and its name if it has one.
    pub mapping: String,
    /// Its first address.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

impl MappingPlace {
    /// Returns it as a part of a sentence.
    pub fn text(&self) -> String {
        let MappingPlace { program, mapping, address, bytes } = self;
        format!("{mapping} of {program} at {address:#x}, {}", Bytes(*bytes))
    }
}

/// Another replay.
#[derive(Debug, Serialize)]
pub struct Variant {
    /// The difference from the replay of the advice.
    pub name: String,
    /// Tables made.
    pub tables_made: u64,
    /// The most tables at once.
    pub tables_peak: u64,
    /// Tables that address spaces had when they ended.
    pub tables_at_end: u64,
    /// Table pages that came from the frame allocator.
    pub misses: u64,
    /// Magazines that a CPU exchanged at its node's depot.
    pub refills: u64,
    /// The most pages that the lists kept.
    pub cached_peak: u64,
    /// Cost of flushes by the model, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush_ns: Option<f64>,
    /// Large pages of the library, if the replay has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large: Option<LargeFigures>,
}

/// Large pages that the library had in a replay.
#[derive(Debug, Serialize)]
pub struct LargeFigures {
    /// Faults that mapped one.
    pub mapped: u64,
    /// Large pages that were split.
    pub splits: u64,
    /// Faults that find their page mapped, less those that do so without large pages.
    pub faults_spared: i64,
    /// The most tables at once, with those that are reserved for splits.
    pub tables_peak_with_reserve: u64,
}

impl Variant {
    /// Makes a variant of the counts of a replay.
    pub fn new(name: impl Into<String>, figures: &Figures) -> Self {
        let &Figures { tables_made, tables_peak, tables_at_end, misses, refills, cached_peak, .. } = figures;
        let name = name.into();
        Variant {
            name,
            tables_made,
            tables_peak,
            tables_at_end,
            misses,
            refills,
            cached_peak,
            flush_ns: None,
            large: None,
        }
    }
}

/// Something that was looked at, and is not advised.
#[derive(Debug, Serialize)]
pub struct Rejected {
    /// The kind of advice.
    pub kind: &'static str,
    /// Whom it would be for.
    pub to: To,
    /// Whether it was measured.
    pub measured: bool,
    /// Why it is not advised, or not measured, as a sentence without a full stop.
    pub reason: String,
}

impl Verdict {
    /// Returns the faults that it saves if it advises huge pages.
    pub fn spared_by_huge_pages(&self) -> i64 {
        match self {
            Verdict::Advised(advice) if advice.kind == "huge-pages" => advice.saved.faults,
            _ => 0,
        }
    }
}

/// The result of the search for one kind of advice.
pub enum Verdict {
    /// It pays.
    Advised(Box<Advice>),
    /// It does not pay, or was not measured.
    Not(Rejected),
}
