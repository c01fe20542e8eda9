//! Reports where tables were placed, as text and as JSON.
use ptarmigan::params::UserPte;
use ptarmigan::quicklist::PolicyCounts;
use ptarmigan_hosted::HostTables;
use ptarmigan_term::Count;
use ptarmigan_term::text::Text;
use serde::Serialize;
use std::fmt::Write;

/// Where leaf tables were placed, and how often they were opened.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct UserPteReport {
    /// The value of `userpte=`: `nohigh`, `high` or `auto`.
    pub userpte: &'static str,
    /// Leaf tables handed out.
    pub tables: u64,
    /// Of these, those in high memory.
    pub high: u64,
    /// Windows opened on tables in high memory.
    pub opened: u64,
}

impl UserPteReport {
    /// Creates a report.
    pub fn new(userpte: UserPte, tables: &HostTables, counts: &PolicyCounts) -> Self {
        UserPteReport {
            userpte: match userpte {
                UserPte::NoHigh => "nohigh",
                UserPte::High => "high",
                UserPte::Auto(_) => "auto",
            },
            tables: counts.levels[0].allocs as u64,
            high: counts.high.allocs as u64,
            opened: tables.opened() as u64,
        }
    }

    /// Writes the report as text, at most 80 columns wide.
    pub fn write(&self, out: &mut Text, faults: u64) -> std::fmt::Result {
        let UserPteReport { userpte, tables, high, opened } = *self;
        let per_fault = opened as f64 / (faults as f64).max(1.0);
        let [tables, high, times] = [tables, high, opened].map(Count);
        write!(out, "userpte  {userpte}: {high} of {tables} leaf tables in high memory")?;
        if opened == 0 {
            return writeln!(out);
        }
        writeln!(out, ",")?;
        writeln!(out, "         opened {times} times, {per_fault:.2} a fault")
    }
}
