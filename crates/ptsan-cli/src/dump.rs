//! `ptsan log dump`: the records of a log, one a line.
use crate::failure::Failure;
use crate::input::Input;
use crate::symbols::Symbols;
use clap::Args;
use ptsan_log::{AccessKind, ExceptionLevel, Header, Record, Scope};
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
    let header = *input.reader.header();
    let mut out = BufWriter::new(io::stdout().lock());
    let output = |e: io::Error| Failure::output(&e);
    writeln!(out, "{}", header_line(&header)).map_err(output)?;
    let last = args.count.map_or(u64::MAX, |count| args.from.saturating_add(count));
    loop {
        match input.reader.next() {
            Ok(Some(entry)) if entry.number >= last => break,
            Ok(Some(entry)) if entry.number < args.from => {}
            Ok(Some(entry)) => {
                let mut line = format!("{:>8} {}", entry.number, describe(&header, &entry.record));
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
    let plural = |n: u16| if n == 1 { "" } else { "s" };
    let devices = match header.devices {
        0 => String::new(),
        devices => format!(", {devices} device{}", plural(devices)),
    };
    let asids = if header.asids { ", ASIDs" } else { "" };
    let upper = if header.upper { ", upper half" } else { "" };
    let barriers = if header.barriers { ", barriers" } else { "" };
    let bits = if header.accessed_dirty { ", accessed and dirty bits" } else { "" };
    let stages = if header.two_stages { ", two stages" } else { "" };
    let numbers = if header.common_numbers { ", common numbers" } else { "" };
    let locks = if header.locks { ", locks" } else { "" };
    let invalid = if header.keeps_invalid { ", keeps invalid entries" } else { "" };
    let level = match header.exception_level {
        ExceptionLevel::El1 => String::new(),
        level => format!(", EL{}", level as u8),
    };
    format!(
        "{}, {} CPU{}{devices}{asids}{upper}{barriers}{bits}{stages}{numbers}{locks}{invalid}{level}",
        header.architecture,
        header.cpus,
        plural(header.cpus)
    )
}

/// Describes a record in a line.
fn describe(header: &Header, record: &Record<'_>) -> String {
    let name = record.name();
    let reader = |number: u16| match number.checked_sub(header.cpus).filter(|n| *n < header.devices) {
        Some(device) => format!("device {device}"),
        None => format!("cpu {number}"),
    };
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
            format!("{name} {phys:#x} {}", content(bytes))
        }
        Record::RootLoaded { cpu, root, space, flushes } => {
            let flushes = if flushes { " flushes" } else { "" };
            format!("{name} {} {root:#x} space {space:#x}{flushes}", reader(cpu))
        }
        Record::Lazy { cpu }
        | Record::Resume { cpu }
        | Record::Leave { cpu }
        | Record::Running { cpu }
        | Record::Stage1Flushed { cpu } => {
            format!("{name} {}", reader(cpu))
        }
        Record::Barrier { cpu, kind } => {
            format!("{name} cpu {cpu} {}", format!("{kind:?}").to_lowercase())
        }
        Record::DataMapped { space, va } => format!("{name} space {space:#x} {va:#x}"),
        Record::FlushesDone => name.to_owned(),
        Record::Invalidate { cpu, scope, leaf_only, level, exception_level } => {
            let cpu = cpu.map_or_else(|| "cpu all".to_owned(), reader);
            format!("{name} {cpu} {}", extent(scope, leaf_only, (level, exception_level)))
        }
        Record::SpaceCreated { space } | Record::SpaceDestroyed { space } => format!("{name} {space:#x}"),
        Record::OperationBegins { id } | Record::OperationEnds { id } => format!("{name} {id}"),
        Record::Access { cpu, va, kind, user } => {
            let mode = if user { "user" } else { "kernel" };
            format!("{name} {} {va:#x} {mode} {}", reader(cpu), access(kind))
        }
        Record::AccessCombined { cpu, number, va, gpa, kind } => {
            format!("{name} {} {va:#x} in {number:#x} is {gpa:#x} {}", reader(cpu), access(kind))
        }
        Record::Stage1PartFlushed { cpu, number, va } => {
            let number = number.map_or_else(|| "every space".to_owned(), |n| format!("space {n:#x}"));
            let va = va.map_or_else(String::new, |va| format!(" {va:#x}"));
            format!("{name} {} {number}{va}", reader(cpu))
        }
        Record::FlushQueued { device, scope, leaf_only, level, exception_level } => {
            format!("{name} {} {}", reader(device), extent(scope, leaf_only, (level, exception_level)))
        }
        Record::QueueCompleted { device } => format!("{name} {}", reader(device)),
        Record::DeviceEntry { device, phys, bytes, word, valid } => {
            format!("{name} {} {phys:#x} {bytes} bytes, valid: {valid:#x} of word {word}", reader(device))
        }
        Record::DeviceEntryWritten { phys, bytes } => format!("{name} {phys:#x} {}", content(bytes)),
        Record::DeviceEntriesFlushed { device, phys } => {
            let which = phys.map_or_else(|| "all".to_owned(), |phys| format!("{phys:#x}"));
            format!("{name} {} {which}", reader(device))
        }
        Record::ReaderBegins { id, root } => format!("{name} {id} {root:#x}"),
        Record::ReaderReads { id, table } => format!("{name} {id} {table:#x}"),
        Record::ReaderEnds { id } => format!("{name} {id}"),
        Record::LockGuards { table, lock, flush_first } => {
            let first = if flush_first { ", flushes first" } else { "" };
            format!("{name} {table:#x} lock {lock:#x}{first}")
        }
        Record::LockTaken { cpu, lock, shared } => {
            format!("{name} {} lock {lock:#x}{}", reader(cpu), if shared { " shared" } else { "" })
        }
        Record::LockReleased { cpu, lock } => format!("{name} {} lock {lock:#x}", reader(cpu)),
        Record::NumberGiven { root, space } => format!("{name} {root:#x} space {space:#x}"),
        Record::NumbersTakenBack => name.to_owned(),
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

/// Describes the extent of an invalidation.
fn extent(
    scope: Scope,
    leaf_only: bool,
    (level, exception_level): (Option<u8>, Option<ExceptionLevel>),
) -> String {
    let level = level.map_or_else(String::new, |level| format!(" level {level}"));
    let of = exception_level.map_or_else(String::new, |level| format!(" of EL{}", level as u8));
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
    format!("{scope}{leaf}{level}{of}")
}

/// Describes bytes: how many, and the first ones.
fn content(bytes: &[u8]) -> String {
    let mut text = format!("{} bytes ", bytes.len());
    bytes.iter().take(SHOWN).for_each(|byte| _ = write!(text, "{byte:02x}"));
    if bytes.len() > SHOWN {
        text.push_str("..");
    }
    text
}

fn access(kind: AccessKind) -> String {
    format!("{kind:?}").to_lowercase()
}
