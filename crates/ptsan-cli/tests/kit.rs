//! The encoder in C (`crates/ptsan-c/kit`): its logs are those of the encoder in Rust, byte for
//! byte, and are replayed. Skipped where that crate is not there, as in a package of this one.
#![cfg(unix)]
use ptsan_log::{
    AccessKind, Architecture, BarrierKind, Content, Encoder, ExceptionLevel, Header, MAX_BYTES, MAX_ENTRY,
    Record, Scope, Written,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Returns the program that writes the records of a script, or `None` without the kit. It is
/// compiled once for each compiler: no test overwrites a program that another one runs.
fn program(compiler: &'static str) -> Option<PathBuf> {
    static PROGRAMS: Mutex<BTreeMap<&str, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut programs = PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner);
    programs.entry(compiler).or_insert_with(|| compiled(compiler)).clone()
}

fn compiled(compiler: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kit = root.join("../ptsan-c/kit");
    if !kit.exists() {
        eprintln!("skipped: {} is not there", kit.display());
        return None;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{compiler}"));
    let object = program.with_extension("o");
    let warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-std=c99", "-O2"];
    let compile = |arguments: &[&Path], flags: &[&str]| {
        let mut command = Command::new(compiler);
        command.args(warnings).args(flags).arg("-I").arg(&kit).args(arguments);
        let made = command.output().expect("a C compiler runs");
        assert!(made.status.success(), "{compiler}: {}", String::from_utf8_lossy(&made.stderr));
    };
    // As in a kernel: the encoder is on its own.
    compile(&[&kit.join("ptsan_log.c"), Path::new("-o"), &object], &["-ffreestanding", "-c"]);
    compile(&[&root.join("tests/kit/log.c"), &object, Path::new("-o"), &program], &["-Wno-conversion"]);
    Some(program)
}

fn compilers() -> impl Iterator<Item = &'static str> {
    let is_here = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    ["cc", "clang"].into_iter().filter(is_here)
}

fn with_input(mut command: Command, input: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || to.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

/// Pseudo-random numbers of all lengths.
struct Numbers(fastrand::Rng);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0.u64(..) >> self.0.u32(..64)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0.u64(..n)
    }

    fn flag(&mut self) -> bool {
        self.0.bool()
    }

    fn cpu(&mut self) -> u16 {
        self.next() as u16
    }

    /// Returns a number, or none. The greatest stands for none in the functions of C.
    fn maybe(&mut self) -> Option<u64> {
        let value = self.next() >> 1;
        self.flag().then_some(value)
    }
}

const KINDS: u64 = 39;
const TEXT: &str = "Grüße aus dem Kern: 🐧 und noch viel mehr Text, der länger ist als die zweihundert Bytes, \
    die in einen Satz passen; darum wird er an einem Zeichen abgeschnitten, das nicht mehr ganz hineingeht: 🐧🐧🐧🐧🐧🐧";

/// Returns the exception level of a number from 0 on, or none.
fn exception_level(number: u64) -> Option<ExceptionLevel> {
    [None, Some(ExceptionLevel::El1), Some(ExceptionLevel::El2), Some(ExceptionLevel::El3)][number as usize]
}

/// Returns a random scope of an invalidation, whether it spares paging-structure caches, and the
/// level that it names.
fn scope(n: &mut Numbers) -> (Scope, bool, Option<u8>) {
    let scope = match n.below(5) {
        0 => Scope::Page { space: n.next(), va: n.next() },
        1 => Scope::Range { space: n.next(), start: n.next(), end: n.next(), stride: n.next() },
        2 => Scope::EverySpace { start: n.next(), end: n.next(), stride: n.next() },
        3 => Scope::Space(n.next()),
        _ => Scope::All,
    };
    // Whole spaces have no last level of their own.
    let leaf_only = n.flag() && !matches!(scope, Scope::Space(_) | Scope::All);
    let names = matches!(scope, Scope::Range { .. } | Scope::EverySpace { .. }) && !leaf_only;
    let level = (names && n.flag()).then(|| n.below(255) as u8);
    (scope, leaf_only, level)
}

/// Returns a random record of a kind of version 2, and content of an entry.
fn second(kind: u64, n: &mut Numbers) -> (Record<'static>, Vec<u8>) {
    let record = match kind {
        0 => {
            let (scope, leaf_only, level) = scope(n);
            // The kit has no function for this one.
            let level = level.filter(|_| matches!(scope, Scope::Range { .. }));
            Record::FlushQueued {
                device: n.cpu(),
                scope,
                leaf_only,
                level,
                exception_level: exception_level(n.below(4)),
            }
        }
        1 => Record::QueueCompleted { device: n.cpu() },
        2 => {
            let shift = n.below(4) as u32;
            let phys = n.next() >> (shift + 3) << (shift + 3);
            let (word, valid) = (n.below(1 << shift) as u8, n.next() | 1);
            Record::DeviceEntry { device: n.cpu(), phys, bytes: 8 << shift, word, valid }
        }
        3 => {
            let shift = n.below(7);
            let content = (0..1 << shift).map(|_| n.next() as u8).collect();
            return (Record::DeviceEntryWritten { phys: n.next() >> shift << shift, bytes: &[] }, content);
        }
        4 => Record::DeviceEntriesFlushed { device: n.cpu(), phys: n.maybe() },
        5 => Record::ReaderBegins { id: n.next(), root: n.next() },
        6 => Record::ReaderReads { id: n.next(), table: n.next() },
        7 => Record::ReaderEnds { id: n.next() },
        8 => Record::LockGuards { table: n.next(), lock: n.next(), flush_first: n.flag() },
        9 => Record::LockTaken { cpu: n.cpu(), lock: n.next(), shared: n.flag() },
        10 => Record::LockReleased { cpu: n.cpu(), lock: n.next() },
        11 => Record::NumberGiven { root: n.next(), space: n.next() },
        12 => Record::NumbersTakenBack,
        13 => Record::Stage1PartFlushed { cpu: n.cpu(), number: n.maybe(), va: n.maybe() },
        _ => {
            let kinds = [AccessKind::Read, AccessKind::Write, AccessKind::Exec];
            let (number, va, gpa) = (n.next(), n.next(), n.next());
            Record::AccessCombined { cpu: n.cpu(), number, va, gpa, kind: kinds[n.below(3) as usize] }
        }
    };
    (record, Vec::new())
}

/// Returns a random record of a kind, and content of memory.
fn record(kind: u64, n: &mut Numbers) -> (Record<'static>, Vec<u8>) {
    let shift = n.below(4) as u8;
    let (phys, value, bytes) = (n.next() >> shift << shift, n.next(), 1 << shift);
    let record = match kind {
        0 => Record::TableAllocated {
            phys,
            size: n.next(),
            level: n.flag().then(|| n.below(255) as u8),
            content: [Content::Zero, Content::Unknown, Content::Unchecked][n.below(3) as usize],
        },
        1 => Record::TableFreed { phys, size: n.next() },
        2 => Record::Store { phys, value, bytes },
        3 => Record::Exchange { phys, value, bytes },
        4 => Record::Fill { phys: phys >> 4 << 3, bytes: n.below(8192) * 8, value },
        5 => {
            let bytes = (0..n.below(MAX_BYTES as u64)).map(|_| n.next() as u8).collect();
            return (Record::Memory { phys: phys >> 8, bytes: &[] }, bytes);
        }
        6 => Record::RootLoaded { cpu: n.cpu(), root: phys, space: value, flushes: n.flag() },
        7 => Record::Lazy { cpu: n.cpu() },
        8 => Record::Resume { cpu: n.cpu() },
        9 => Record::Leave { cpu: n.cpu() },
        10 => {
            let (scope, leaf_only, level) = scope(n);
            Record::Invalidate {
                cpu: n.flag().then(|| n.cpu()),
                scope,
                leaf_only,
                level,
                exception_level: exception_level(n.below(4)),
            }
        }
        11 => Record::SpaceCreated { space: value },
        12 => Record::SpaceDestroyed { space: value },
        13 => Record::DataMapped { space: value, va: n.next() },
        14 => Record::DataFreed { phys, size: n.next() },
        15 => Record::DataReused { phys, size: n.next() },
        16 => {
            let kinds =
                [BarrierKind::Data, BarrierKind::Instruction, BarrierKind::Fence, BarrierKind::Stores];
            Record::Barrier { cpu: n.cpu(), kind: kinds[n.below(4) as usize] }
        }
        17 => Record::FlushesDone,
        18 => Record::Running { cpu: n.cpu() },
        19 => Record::Stage1Flushed { cpu: n.cpu() },
        20 => Record::OperationBegins { id: value },
        21 => Record::OperationEnds { id: value },
        22 => {
            let kinds = [AccessKind::Read, AccessKind::Write, AccessKind::Exec];
            Record::Access { cpu: n.cpu(), va: n.next(), kind: kinds[n.below(3) as usize], user: n.flag() }
        }
        24.. => return second(kind - 24, n),
        _ => {
            let cut = TEXT.char_indices().nth(n.below(TEXT.chars().count() as u64) as usize).unwrap().0;
            Record::Mark { text: &TEXT[cut..] }
        }
    };
    (record, Vec::new())
}

/// Returns the line of a script for a record. Each kind is named here: one that is new does not
/// compile without its line.
fn line(record: &Record<'_>) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            _ = write!(text, " {byte:02x}");
            text
        })
    };
    let name = record.name();
    match *record {
        Record::TableAllocated { phys, size, level, content } => {
            format!("{name} {phys} {size} {} {}", level.map_or(-1, i32::from), content as u8)
        }
        Record::TableFreed { phys, size }
        | Record::DataFreed { phys, size }
        | Record::DataReused { phys, size } => format!("{name} {phys} {size}"),
        Record::Store { phys, value, bytes } | Record::Exchange { phys, value, bytes } => {
            format!("{name} {phys} {bytes} {value}")
        }
        Record::Fill { phys, bytes, value } => format!("{name} {phys} {bytes} {value}"),
        Record::Memory { phys, bytes } => format!("{name} {phys}{}", hex(bytes)),
        Record::RootLoaded { cpu, root, space, flushes } => {
            format!("{name} {cpu} {root} {space} {}", u8::from(flushes))
        }
        Record::Lazy { cpu }
        | Record::Resume { cpu }
        | Record::Leave { cpu }
        | Record::Running { cpu }
        | Record::Stage1Flushed { cpu } => format!("{name} {cpu}"),
        Record::Invalidate { cpu, scope, leaf_only, level, exception_level } => {
            of(exception_level) + &extent(cpu.map_or(-1, i32::from), scope, (leaf_only, level))
        }
        Record::FlushQueued { device, scope, leaf_only, level, exception_level } => {
            format!("{}queue-{}", of(exception_level), extent(device.into(), scope, (leaf_only, level)))
        }
        Record::QueueCompleted { device } => format!("{name} {device}"),
        Record::DeviceEntry { device, phys, bytes, word, valid } => {
            format!("{name} {device} {phys} {bytes} {word} {valid}")
        }
        Record::DeviceEntryWritten { phys, bytes } => format!("{name} {phys}{}", hex(bytes)),
        Record::DeviceEntriesFlushed { device, phys } => {
            format!("{name} {device} {}", phys.unwrap_or(u64::MAX))
        }
        Record::ReaderBegins { id, root: table } | Record::ReaderReads { id, table } => {
            format!("{name} {id} {table}")
        }
        Record::ReaderEnds { id } => format!("{name} {id}"),
        Record::LockGuards { table, lock, flush_first } => {
            format!("{name} {table} {lock} {}", u8::from(flush_first))
        }
        Record::LockTaken { cpu, lock, shared } => format!("{name} {cpu} {lock} {}", u8::from(shared)),
        Record::LockReleased { cpu, lock } => format!("{name} {cpu} {lock}"),
        Record::NumberGiven { root, space } => format!("{name} {root} {space}"),
        Record::NumbersTakenBack => name.to_owned(),
        Record::Stage1PartFlushed { cpu, number, va } => {
            format!("{name} {cpu} {} {}", number.unwrap_or(u64::MAX), va.unwrap_or(u64::MAX))
        }
        Record::AccessCombined { cpu, number, va, gpa, kind } => {
            format!("{name} {cpu} {number} {va} {gpa} {}", kind as u8)
        }
        Record::SpaceCreated { space } | Record::SpaceDestroyed { space } => format!("{name} {space}"),
        Record::DataMapped { space, va } => format!("{name} {space} {va}"),
        Record::Barrier { cpu, kind } => format!("{name} {cpu} {}", kind as u8),
        Record::FlushesDone => name.to_owned(),
        Record::OperationBegins { id } | Record::OperationEnds { id } => format!("{name} {id}"),
        Record::Access { cpu, va, kind, user } => {
            format!("{name} {cpu} {va} {} {}", kind as u8, u8::from(user))
        }
        Record::Mark { text } => format!("{name}{}", hex(text.as_bytes())),
        Record::End { all_freed } => format!("{name} {}", u8::from(all_freed)),
    }
}

/// Returns the line before that of an invalidation which names an exception level.
fn of(exception_level: Option<ExceptionLevel>) -> String {
    exception_level.map_or_else(String::new, |level| format!("of {}\n", level as u8))
}

/// Returns the line of an invalidation of this extent.
fn extent(reader: i32, scope: Scope, (leaf_only, level): (bool, Option<u8>)) -> String {
    let leaf = u8::from(leaf_only);
    match (scope, level) {
        (Scope::Range { space, start, end, stride }, Some(level)) => {
            return format!("level {reader} {space} {start} {end} {stride} {level}");
        }
        (Scope::EverySpace { start, end, stride }, Some(level)) => {
            return format!("every-space-level {reader} {start} {end} {stride} {level}");
        }
        _ => {}
    }
    match scope {
        Scope::Page { space, va } => format!("page {reader} {space} {va} {leaf}"),
        Scope::Range { space, start, end, stride } => {
            format!("range {reader} {space} {start} {end} {stride} {leaf}")
        }
        Scope::EverySpace { start, end, stride } => {
            format!("every-space {reader} {start} {end} {stride} {leaf}")
        }
        Scope::Space(space) => format!("space {reader} {space}"),
        Scope::All => format!("all {reader}"),
    }
}

fn header_line(header: &Header) -> String {
    let Header { asids, upper, barriers, accessed_dirty, two_stages, common_numbers, .. } = *header;
    let Header { locks, keeps_invalid, .. } = *header;
    let flags = [asids, upper, barriers, accessed_dirty, two_stages, common_numbers, locks, keeps_invalid];
    let flags: u8 = flags.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit).sum();
    let Header { architecture, cpus, devices, table_bytes, va_bits, start_level, .. } = *header;
    let level = header.exception_level as u8;
    format!("{} {flags} {cpus} {table_bytes} {va_bits} {start_level} {devices} {level}\n", architecture as u8)
}

#[test]
fn each_record_has_the_bytes_of_the_other_encoder() {
    for compiler in compilers() {
        let Some(program) = program(compiler) else { return };
        let mut n = Numbers(fastrand::Rng::with_seed(0x5eed));
        for round in 0..200 {
            let header = Header {
                asids: n.flag(),
                upper: n.flag(),
                barriers: n.flag(),
                accessed_dirty: n.flag(),
                two_stages: n.flag(),
                common_numbers: n.flag(),
                locks: n.flag(),
                keeps_invalid: n.flag(),
                devices: n.cpu(),
                table_bytes: n.next() as u32,
                va_bits: n.next() as u8,
                start_level: n.next() as u8,
                exception_level: exception_level(n.below(4)).unwrap_or_default(),
                ..Header::new(Architecture::ALL[round % Architecture::ALL.len()], n.cpu() | 1)
            };
            let mut script = header_line(&header);
            let mut log = Encoder::new(Written(Vec::new()), &header).unwrap();
            for kind in 0..KINDS {
                let (made, bytes) = record(kind, &mut n);
                let made = match made {
                    Record::Memory { phys, .. } => Record::Memory { phys, bytes: &bytes },
                    Record::DeviceEntryWritten { phys, .. } => {
                        Record::DeviceEntryWritten { phys, bytes: &bytes[..bytes.len().min(MAX_ENTRY)] }
                    }
                    other => other,
                };
                if n.flag() && !matches!(made, Record::Memory { bytes: [], .. }) {
                    let pc = n.next();
                    _ = writeln!(script, "at {pc}");
                    log.record_at(pc, &made).unwrap();
                    _ = writeln!(script, "{}", line(&made));
                } else if !matches!(made, Record::Memory { bytes: [], .. }) {
                    log.record(&made).unwrap();
                    _ = writeln!(script, "{}", line(&made));
                }
            }
            // Content that takes several records.
            let content: Vec<u8> = (0..n.below(700)).map(|_| n.next() as u8).collect();
            log.memory(0x1_0000, &content).unwrap();
            _ = writeln!(script, "{}", line(&Record::Memory { phys: 0x1_0000, bytes: &content }));
            let all_freed = n.flag();
            log.end(all_freed).unwrap();
            _ = writeln!(script, "{}", line(&Record::End { all_freed }));
            let output = with_input(Command::new(&program), script.as_bytes());
            assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.stdout, log.into_sink().0, "{compiler}:\n{script}");
        }
    }
}

#[test]
fn a_log_that_loses_a_record_writes_no_further_one() {
    for compiler in compilers() {
        let Some(program) = program(compiler) else { return };
        assert!(Command::new(program).arg("lost").status().unwrap().success(), "{compiler}");
    }
}

/// A space of four tables, one of which is freed before the flush or after it.
#[test]
fn a_log_of_the_kit_is_replayed() {
    let Some(program) = compilers().next().and_then(program) else { return };
    for late in [false, true] {
        let mut script = header_line(&Header::new(Architecture::X86_64, 2));
        for table in 1..=4 {
            let phys = table * 4096;
            _ = writeln!(script, "table-allocated {phys} 0 {} 1\nfill {phys} 4096 0", 4 - table);
        }
        for table in (1..=4).rev() {
            _ = writeln!(
                script,
                "at {}\nstore {} 8 {}",
                0xffff_8000u64,
                table * 4096,
                ((table + 1) * 4096) | 7
            );
        }
        script += "root-loaded 0 4096 1 0\naccess 0 0x123 0 1\nstore 0x3000 8 0\n";
        let (free, flush) = ("table-freed 0x4000 0\n", "page 0 1 0 0\n");
        script += &if late { [free, flush].concat() } else { [flush, free].concat() };
        script += "leave 0\ntable-freed 0x3000 0\ntable-freed 0x2000 0\ntable-freed 0x1000 0\nend 1\n";
        let log = with_input(Command::new(&program), script.as_bytes());
        assert!(log.status.success(), "{}", String::from_utf8_lossy(&log.stderr));
        let mut replay = Command::new(env!("CARGO_BIN_EXE_ptsan"));
        replay.args(["replay", "-", "--no-seed"]);
        let output = with_input(replay, &log.stdout);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(i32::from(late)), "{text}");
        assert_eq!(text.contains("free-before-flush"), late, "{text}");
    }
}

/// A device that waits for its queue, or does not: records of version 2 from the kit.
#[test]
fn a_log_of_the_kit_with_a_device_is_replayed() {
    let Some(program) = compilers().next().and_then(program) else { return };
    for waits in [true, false] {
        let header = Header { devices: 1, ..Header::new(Architecture::X86TwoLevel, 2) };
        let completed = if waits { "queue-completed 2\n" } else { "" };
        let script = header_line(&header)
            + "table-allocated 0x1000 0 1 1\nfill 0x1000 4096 0\n"
            + "table-allocated 0x2000 0 0 1\nfill 0x2000 4096 0\n"
            + "store 0x2000 4 0x9007\nstore 0x1000 4 0x2007\n"
            + "root-loaded 2 0x1000 0x100000000 0\naccess 2 0x10 1 1\nstore 0x1000 4 0\n"
            + "queue-space 2 0x100000000\n"
            + completed
            + "table-freed 0x2000 0\nend 0\n";
        let log = with_input(Command::new(&program), script.as_bytes());
        assert!(log.status.success(), "{}", String::from_utf8_lossy(&log.stderr));
        let mut replay = Command::new(env!("CARGO_BIN_EXE_ptsan"));
        replay.args(["replay", "-", "--no-seed"]);
        let output = with_input(replay, &log.stdout);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(i32::from(!waits)), "{text}");
        assert!(waits || text.contains("device 0 is active"), "{text}");
    }
}
