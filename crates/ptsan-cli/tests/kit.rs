//! The encoder in C (`crates/ptsan-c/kit`): its logs are those of the encoder in Rust, byte for
//! byte, and are replayed. Skipped where that crate is not there, as in a package of this one.
#![cfg(unix)]
use ptsan_log::{
    AccessKind, Architecture, BarrierKind, Content, Encoder, Header, MAX_BYTES, Record, Scope, Written,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// Returns the program that writes the records of a script, or `None` without the kit. It is compiled
/// once for each compiler: no test overwrites a program that another one runs.
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
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> (self.0 % 64)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next().wrapping_mul(0x9e37_79b9_7f4a_7c15) % n
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    fn cpu(&mut self) -> u16 {
        self.next() as u16
    }
}

const KINDS: u64 = 24;
const TEXT: &str = "Grüße aus dem Kern: 🐧 und noch viel mehr Text, der länger ist als die zweihundert Bytes, \
    die in einen Satz passen; darum wird er an einem Zeichen abgeschnitten, das nicht mehr ganz hineingeht: 🐧🐧🐧🐧🐧🐧";

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
            let scope = match n.below(5) {
                0 => Scope::Page { space: n.next(), va: n.next() },
                1 => Scope::Range { space: n.next(), start: n.next(), end: n.next(), stride: n.next() },
                2 => Scope::EverySpace { start: n.next(), end: n.next(), stride: n.next() },
                3 => Scope::Space(n.next()),
                _ => Scope::All,
            };
            // Whole spaces have no last level of their own.
            let leaf_only = n.flag() && !matches!(scope, Scope::Space(_) | Scope::All);
            Record::Invalidate { cpu: n.flag().then(|| n.cpu()), scope, leaf_only }
        }
        11 => Record::SpaceCreated { space: value },
        12 => Record::SpaceDestroyed { space: value },
        13 => Record::DataMapped { space: value, va: n.next() },
        14 => Record::DataFreed { phys, size: n.next() },
        15 => Record::DataReused { phys, size: n.next() },
        16 => {
            let kinds = [BarrierKind::Data, BarrierKind::Instruction, BarrierKind::Fence];
            Record::Barrier { cpu: n.cpu(), kind: kinds[n.below(3) as usize] }
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
        Record::Invalidate { cpu, scope, leaf_only } => {
            let (cpu, leaf) = (cpu.map_or(-1, i32::from), u8::from(leaf_only));
            match scope {
                Scope::Page { space, va } => format!("page {cpu} {space} {va} {leaf}"),
                Scope::Range { space, start, end, stride } => {
                    format!("range {cpu} {space} {start} {end} {stride} {leaf}")
                }
                Scope::EverySpace { start, end, stride } => {
                    format!("every-space {cpu} {start} {end} {stride} {leaf}")
                }
                Scope::Space(space) => format!("space {cpu} {space}"),
                Scope::All => format!("all {cpu}"),
            }
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

fn header_line(header: &Header) -> String {
    let flags = [header.asids, header.upper, header.barriers, header.accessed_dirty, header.two_stages];
    let flags: u8 = flags.iter().enumerate().map(|(bit, set)| u8::from(*set) << bit).sum();
    let Header { architecture, cpus, table_bytes, va_bits, start_level, .. } = *header;
    format!("{} {flags} {cpus} {table_bytes} {va_bits} {start_level}\n", architecture as u8)
}

#[test]
fn each_record_has_the_bytes_of_the_other_encoder() {
    for compiler in compilers() {
        let Some(program) = program(compiler) else { return };
        let mut n = Numbers(0x5eed);
        for round in 0..200 {
            let header = Header {
                asids: n.flag(),
                upper: n.flag(),
                barriers: n.flag(),
                accessed_dirty: n.flag(),
                two_stages: n.flag(),
                table_bytes: n.next() as u32,
                va_bits: n.next() as u8,
                start_level: n.next() as u8,
                ..Header::new(Architecture::ALL[round % Architecture::ALL.len()], n.cpu() | 1)
            };
            let mut script = header_line(&header);
            let mut log = Encoder::new(Written(Vec::new()), &header).unwrap();
            for kind in 0..KINDS {
                let (made, bytes) = record(kind, &mut n);
                let made = match made {
                    Record::Memory { phys, .. } => Record::Memory { phys, bytes: &bytes },
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
