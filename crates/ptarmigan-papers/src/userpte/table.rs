//! The model as tables and rows.
use super::model::{FRAME, LowMemory, Records, leaf_bytes, sharing_of, span};
use super::report::{Part, Row, row};
use ptarmigan::params::AutoParams;
use ptarmigan_term::Bytes;
use ptarmigan_term::text::{Text, TextTable};
use std::fmt::{Result as Written, Write as _};

/// Rows and columns of the tables: memory sizes and sparseness.
pub(super) struct Grid {
    /// Low memory.
    pub low: LowMemory,
    /// Memories of machines, in bytes.
    pub rams: Vec<u64>,
    /// Sparseness: one of so many entries of a table is in use.
    pub one_in: Vec<u32>,
}

/// Returns the used share of a table's entries if one of `one_in` is.
pub(super) fn used(one_in: u32) -> f64 {
    1.0 / f64::from(one_in.max(1))
}

/// Formats a memory size.
pub(super) fn size(bytes: u64) -> String {
    Bytes(bytes).option()
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Formats a sharing with three digits.
pub(super) fn sharing(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) if value >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// Returns the tables for both kinds of records, and where `auto` changes over.
pub(super) fn part(grid: &Grid) -> Part {
    let mut text = Text::default();
    // Writing to a text cannot fail.
    let _ = write(&mut text, grid);
    Part { text, rows: rows(grid) }
}

fn rows(grid: &Grid) -> Vec<Row> {
    let (low, auto) = (&grid.low, AutoParams::default());
    let mut rows = argument(low.bytes);
    for records in Records::ALL {
        for ram in &grid.rams {
            let at = format!("{}/{}", size(*ram), records.name());
            let mut memory = |what: &str, value, unit| rows.push(row(format!("low/{at}"), what, value, unit));
            memory("records", mib(records.bytes(*ram, low.bytes) as f64), "MiB");
            memory("room", mib(low.room(*ram, records)), "MiB");
            memory("dense-tables", mib(leaf_bytes(low.mapped(*ram), 1.0, 1.0)), "MiB");
            memory("most-spaces-high", low.most_spaces(*ram, records), "spaces");
            for one_in in &grid.one_in {
                let (case, used) = (format!("sharing/{at}/1-in-{one_in}"), used(*one_in));
                let of = |value: Option<f64>| value.unwrap_or(f64::NAN);
                let nohigh = of(low.exhausted_at(*ram, records, used));
                rows.push(row(case.clone(), "nohigh-exhausted", nohigh, "mappings/frame"));
                let auto = of(low.auto_from(*ram, records, used, &auto));
                rows.push(row(case, "auto-high-from", auto, "mappings/frame"));
            }
        }
    }
    rows
}

/// Returns the argument of 2010: pages of low memory, bytes that a table maps, and bytes that all
/// of low memory, full of tables, maps; of tables that are full, and of those of which a tenth is
/// used.
fn argument(low: u64) -> Vec<Row> {
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let case = "argument-of-2010";
    let mapped = |used| gib(sharing_of(low as f64, 1.0, used));
    vec![
        row(case, "low-pages", (low / FRAME) as f64, "pages"),
        row(case, "table-maps", mib(span() as f64), "MiB"),
        row(case, "all-tables-map", mapped(1.0), "GiB"),
        row(case, "a-tenth-used", mapped(0.1), "GiB"),
    ]
}

fn write(text: &mut Text, grid: &Grid) -> Written {
    let LowMemory { bytes, kernel, spaces, mapped } = grid.low;
    writeln!(text, "The argument of 2010: low memory full of tables, and nothing else")?;
    for Row { contender, value, unit, .. } in argument(bytes) {
        writeln!(
            text,
            "{contender:<16} {:>10} {unit}",
            value.map_or("-".to_owned(), |value| value.to_string())
        )?;
    }
    writeln!(text)?;
    writeln!(text, "Low memory of {}: the sharing S at which low tables exhaust it (model)", size(bytes))?;
    let mapped = match mapped {
        Some(percent) => format!("{percent} % of memory is mapped"),
        None => "all high memory is mapped".to_owned(),
    };
    writeln!(text, "kernel and slabs {}, {spaces} spaces, {mapped}", Bytes(kernel))?;
    writeln!(text, "1/N: one of N entries of a table is in use. S: mappings of a frame, mean")?;
    for records in Records::ALL {
        let each = match records {
            Records::Linux => "Linux's page records, 32 bytes".to_owned(),
            Records::Library => {
                let ram = grid.rams.iter().copied().max().unwrap_or(bytes);
                let each = records.bytes(ram, bytes) as f64 / (ram / FRAME) as f64;
                format!("the library's page records, {each:.2} bytes")
            }
        };
        writeln!(text, "\nWith {each}: MiB, and S where low memory ends")?;
        let mut table = header(grid, ["records", "room", "dense"]);
        for ram in &grid.rams {
            let low = &grid.low;
            let taken = [
                records.bytes(*ram, bytes) as f64,
                low.room(*ram, records),
                leaf_bytes(low.mapped(*ram), 1.0, 1.0),
            ];
            let taken = taken.map(|bytes| format!("{:.1}", mib(bytes)));
            line(&mut table, grid, *ram, taken, |used| low.exhausted_at(*ram, records, used));
        }
        text.table(table);
    }
    let auto = AutoParams::default();
    let AutoParams { beta, reserve, .. } = auto;
    writeln!(
        text,
        "\nS from which auto makes high tables: they take {beta} % of low memory, or {reserve} %"
    )?;
    writeln!(text, "are left (the library's records; spaces: what exhausts low memory with high)")?;
    let mut table = header(grid, ["", "", "spaces"]);
    for ram in &grid.rams {
        let low = &grid.low;
        let spaces = format!("{:.0}", low.most_spaces(*ram, Records::Library));
        let taken = [String::new(), String::new(), spaces];
        line(&mut table, grid, *ram, taken, |used| low.auto_from(*ram, Records::Library, used, &auto));
    }
    text.table(table);
    Ok(())
}

fn header(grid: &Grid, names: [&str; 3]) -> TextTable {
    let shares: Vec<String> = grid.one_in.iter().map(|one_in| format!("1/{one_in}")).collect();
    let shares: Vec<&str> = shares.iter().map(String::as_str).collect();
    let widths = vec![8; names.len() + shares.len()];
    TextTable::new(&[&["RAM"], &names[..], &shares].concat(), &[&[-6], &widths[..]].concat())
}

fn line(
    table: &mut TextTable,
    grid: &Grid,
    ram: u64,
    taken: [String; 3],
    sharing_at: impl Fn(f64) -> Option<f64>,
) {
    let sharings = grid.one_in.iter().map(|one_in| sharing(sharing_at(used(*one_in))));
    table.texts([size(ram)].into_iter().chain(taken).chain(sharings));
}
