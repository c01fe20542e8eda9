//! `ptsan log dump`: the records of a log, one a line.
use crate::failure::Failure;
use crate::input::Input;
use crate::symbols::Symbols;
use clap::Args;
use ptsan_log::{Header, Record, Scope};
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The most bytes of memory that a line shows.
const SHOWN: usize = 16;
/// The most characters of a mark that a line shows.
const TEXT: usize = 40;

/// Prints the records of a log, one a line
///
/// Each line has the number of the record, the event, and the instruction that did it if the log
/// says so.
#[derive(Args)]
pub struct DumpArgs {
    /// The log; - is standard input
    log: PathBuf,
    /// The kernel's image: names the functions of instructions
    #[arg(long, value_name = "ELF")]
    symbols: Option<PathBuf>,
    /// Begins with this record
    #[arg(long, value_name = "N", default_value_t = 1)]
    from: u64,
    /// Prints at most so many records
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// The log cannot be read, is cut or damaged: the records before that have been printed.
pub fn run(args: &DumpArgs) -> Result<ExitCode, Failure> {
    let symbols = Symbols::open(args.symbols.as_deref(), false)?;
    let mut input = Input::open(&args.log)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let output = |e: io::Error| Failure::output(&e);
    writeln!(out, "{}", header_line(input.reader.header())).map_err(output)?;
    let last = args.count.map_or(u64::MAX, |count| args.from.saturating_add(count));
    loop {
        match input.reader.next() {
            Ok(Some(entry)) if entry.number >= last => break,
            Ok(Some(entry)) if entry.number < args.from => {}
            Ok(Some(entry)) => {
                let mut line = format!("{:>8} {}", entry.number, describe(&entry.record));
                if let Some(pc) = entry.pc {
                    let _ = match symbols.outermost(pc) {
                        Some(name) => write!(line, " in {name}"),
                        None => write!(line, " pc {pc:#x}"),
                    };
                }
                writeln!(out, "{line}").map_err(output)?;
            }
            Ok(None) => break,
            Err(e) => {
                out.flush().map_err(output)?;
                return Err(Failure::at(&input.name, e));
            }
        }
    }
    out.flush().map_err(output)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns one line on the machine that a log is about.
pub(crate) fn header_line(header: &Header) -> String {
    let plural = if header.cpus == 1 { "" } else { "s" };
    let asids = if header.asids { ", ASIDs" } else { "" };
    let upper = if header.upper { ", upper half" } else { "" };
    let barriers = if header.barriers { ", barriers" } else { "" };
    let bits = if header.accessed_dirty { ", accessed and dirty bits" } else { "" };
    let stages = if header.two_stages { ", two stages" } else { "" };
    format!("{}, {} CPU{plural}{asids}{upper}{barriers}{bits}{stages}", header.architecture, header.cpus)
}

/// Describes a record in a line.
pub(crate) fn describe(record: &Record<'_>) -> String {
    let name = record.name();
    let sized = |phys: u64, size: u64| match size {
        0 => format!("{name} {phys:#x}"),
        size => format!("{name} {phys:#x} {size:#x} bytes"),
    };
    match *record {
        Record::TableAllocated { phys, size, level, content } => {
            let level = level.map_or_else(String::new, |level| format!(" level {level}"));
            format!("{}{level} {}", sized(phys, size), format!("{content:?}").to_lowercase())
        }
        Record::TableFreed { phys, size }
        | Record::DataFreed { phys, size }
        | Record::DataReused { phys, size } => sized(phys, size),
        Record::Store { phys, value, bytes: 8 } | Record::Exchange { phys, value, bytes: 8 } => {
            format!("{name} {phys:#x} = {value:#x}")
        }
        Record::Store { phys, value, bytes } | Record::Exchange { phys, value, bytes } => {
            format!("{name} {phys:#x} = {value:#x} ({bytes})")
        }
        Record::Fill { phys, bytes, value } => format!("{name} {phys:#x} {bytes:#x} bytes = {value:#x}"),
        Record::Memory { phys, bytes } => {
            let mut text = format!("{name} {phys:#x} {} bytes ", bytes.len());
            bytes.iter().take(SHOWN).for_each(|byte| _ = write!(text, "{byte:02x}"));
            if bytes.len() > SHOWN {
                text.push_str("..");
            }
            text
        }
        Record::RootLoaded { cpu, root, space, flushes } => {
            let flushes = if flushes { " flushes" } else { "" };
            format!("{name} cpu {cpu} {root:#x} space {space:#x}{flushes}")
        }
        Record::Lazy { cpu }
        | Record::Resume { cpu }
        | Record::Leave { cpu }
        | Record::Running { cpu }
        | Record::Stage1Flushed { cpu } => {
            format!("{name} cpu {cpu}")
        }
        Record::Barrier { cpu, kind } => {
            format!("{name} cpu {cpu} {}", format!("{kind:?}").to_lowercase())
        }
        Record::DataMapped { space, va } => format!("{name} space {space:#x} {va:#x}"),
        Record::FlushesDone => name.to_owned(),
        Record::Invalidate { cpu, scope, leaf_only } => {
            let cpu = cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string());
            let leaf = if leaf_only { " leaf" } else { "" };
            let scope = match scope {
                Scope::Page { space, va } => format!("space {space:#x} {va:#x}"),
                Scope::Range { space, start, end, stride } => {
                    format!("space {space:#x} {start:#x}..{end:#x} by {stride:#x}")
                }
                Scope::EverySpace { start, end, .. } if end == start.saturating_add(1) => {
                    format!("every space {start:#x}")
                }
                Scope::EverySpace { start, end, stride } => {
                    format!("every space {start:#x}..{end:#x} by {stride:#x}")
                }
                Scope::Space(space) => format!("space {space:#x}"),
                Scope::All => "everything".to_owned(),
            };
            format!("{name} cpu {cpu} {scope}{leaf}")
        }
        Record::SpaceCreated { space } | Record::SpaceDestroyed { space } => format!("{name} {space:#x}"),
        Record::OperationBegins { id } | Record::OperationEnds { id } => format!("{name} {id}"),
        Record::Access { cpu, va, kind, user } => {
            let mode = if user { "user" } else { "kernel" };
            format!("{name} cpu {cpu} {va:#x} {mode} {}", format!("{kind:?}").to_lowercase())
        }
        // A log may hold anything, a terminal must not.
        Record::Mark { text } => {
            let shown: String = text.chars().take(TEXT).collect();
            format!("{name} \"{}\"", shown.escape_debug())
        }
        Record::End { all_freed } => {
            format!("{name}{}", if all_freed { ", all tables should be free" } else { "" })
        }
    }
}
