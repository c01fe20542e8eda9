//! Counts the cache lines that an allocation, a free and the first use of a table page touch:
//! `table-lines [--json]`. It runs itself under valgrind, which must be installed.
//!
//! valgrind's tool lackey names every load and store. Stores to [`MARKS`] say where an operation
//! begins and ends. Between them, distinct lines count once, by their owner: pages of the machine,
//! records of frames, and all others (lists, counters). Lines of the stack are left out, and so are
//! code and constants, tables of functions among them: they are warm, whatever the policy.
use ptarmigan::addr::{Pfn, VirtAddr, VirtRange};
use ptarmigan::format::X86_64;
use ptarmigan::frames::AllocFlags;
use ptarmigan::machine::Machine;
use ptarmigan::page::{Clean, Level};
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
use ptarmigan_linux::Rules;
use std::collections::BTreeSet;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// Bytes of the machine's memory.
const MEMORY: u64 = 8 << 20;
/// Bytes of a table, and of a region that one leaf table maps.
const TABLE: u64 = 4096;
const SPAN: u64 = 2 << 20;

const POLICIES: [&str; 3] = ["plain", "v5", "ptarmigan"];
const OPERATIONS: [&str; 5] = ["alloc-hit", "alloc-miss", "first-entry", "free", "fault-new-table"];

/// A mark is a store to the byte of an operation; the second half is for ends.
#[repr(align(4096))]
struct Marks([AtomicU8; 2 * OPERATIONS.len()]);

static MARKS: Marks = Marks([const { AtomicU8::new(0) }; 2 * OPERATIONS.len()]);

fn between<R>(operation: usize, run: impl FnOnce() -> R) -> R {
    let mark = |at: usize| {
        compiler_fence(Ordering::SeqCst);
        MARKS.0[at].store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    };
    mark(operation);
    let result = black_box(run());
    mark(operation + OPERATIONS.len());
    result
}

/// Says where something is, for the process that reads the trace.
fn range(what: &str, start: usize, bytes: usize) {
    println!("{what} {start:x} {:x}", start + bytes);
}

/// Runs the operations on a policy, each after some of its kind.
fn operations<P: Policy>(host: &Host<X86_64>, policy: P) -> Result<(), Box<dyn Error>> {
    let here = 0u8;
    range("stack", (&raw const here as usize).saturating_sub(1 << 20), 2 << 20);
    let frames = host.frames();
    let all = (0..2 * (MEMORY / TABLE) as u32).map(Pfn);
    let known: Vec<_> = all.filter_map(|pfn| Some((pfn, frames.record(pfn)?))).collect();
    let (Some(first), Some(last)) = (known.first(), known.last()) else {
        return Err("the machine has no frames".into());
    };
    let [record, end] = [first, last].map(|(_, record)| std::ptr::from_ref(*record) as usize);
    range("record", record, end - record + size_of_val(last.1));
    let [page, end] = [first, last].map(|(pfn, _)| host.window().open(pfn.addr()).base() as usize);
    range("page", page, end - page + TABLE as usize);

    let slots = host.slots();
    let machine = HostMachine::new(host, policy, NoTlb)?;
    {
        let pin = slots[0].pin();
        let here = machine.on(&pin)?.policy();
        let alloc = || here.alloc(Level::PTE, AllocFlags::NORMAL);
        // SAFETY: 1. the page came from this policy.
        let free = |page: Clean| unsafe { here.free_unlinked(page) };
        let first_entry = |page: &Clean| {
            let entry = host.window().open(page.addr()).base().cast::<u64>();
            // SAFETY: the page is this function's alone, and reached by the host's map.
            unsafe { entry.write_volatile(1) };
            entry
        };
        let turn = |miss: bool| -> Result<(), Box<dyn Error>> {
            let operation = usize::from(miss);
            let page = between(operation, alloc)?;
            let entry = between(2, || first_entry(&page));
            // SAFETY: as above. The page is known zero again.
            unsafe { entry.write_volatile(0) };
            between(3, || free(page));
            Ok(())
        };
        // The first touches memory that is new to the machine; the last of each kind counts.
        turn(true)?;
        machine.drain(&slots);
        turn(true)?;
        (0..4).try_for_each(|_| turn(false))?;
    }
    let pin = slots[0].pin();
    let on = machine.on(&pin)?;
    let mut space = Space::<X86_64>::new(on)?;
    let area = VirtRange::new(SPAN, 16 * SPAN).unwrap();
    // The second time, tables are those that the first has given back.
    for _ in 0..2 {
        space.edit(on)?.mmap(area, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
        for table in 1..8 {
            let at = VirtAddr(table * SPAN);
            between(4, || space.fault(on, at, Access::Write))?;
        }
        space.edit(on)?.munmap(area)?;
    }
    space.end(on)?;
    Ok(())
}

fn traced(policy: &str) -> Result<(), Box<dyn Error>> {
    range("marks", &raw const MARKS as usize, size_of::<Marks>());
    let host = Host::<X86_64>::new(HostConfig { cpus: 1, bytes: MEMORY, ..HostConfig::default() })?;
    match policy {
        "plain" => operations(&host, host.plain()?),
        // SAFETY: 1. nobody walks the tables but the operations below, one after the other.
        "v5" => operations(&host, unsafe { host.historic(Rules::V5, 2) }?),
        _ => operations(&host, host.quicklists()?),
    }?;
    // Last: what this allocates is not to move what was measured.
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    maps.lines().filter_map(constants).for_each(|(start, end)| range("constants", start, end - start));
    Ok(())
}

/// The addresses of a line of `/proc/self/maps`, if it is of a file and cannot be written.
fn constants(line: &str) -> Option<(usize, usize)> {
    let (addresses, rest) = line.split_once(' ')?;
    let (start, end) = addresses.split_once('-')?;
    let [start, end] = [start, end].map(|at| usize::from_str_radix(at, 16).ok());
    let is_constant = rest.as_bytes().get(1) == Some(&b'-') && rest.contains('/');
    if is_constant { Some((start?, end?)) } else { None }
}

/// The lines that one operation touched, by their size and owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    page: usize,
    record: usize,
    other: usize,
}

/// The last access of each operation: addresses and bytes.
type Accesses = Vec<Vec<(u64, u64)>>;

/// The accesses of a traced run, and the ranges of memory that it named: name, start and end.
type Traced = (Accesses, Vec<(String, u64, u64)>);

/// Runs the operations of a policy under valgrind.
fn trace(policy: &str) -> Result<Traced, Box<dyn Error>> {
    let this = std::env::current_exe()?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(this)
        .args(["--traced", policy])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("valgrind cannot be run, which names the accesses: {e}; install valgrind"))?;
    let (Some(said), Some(trace)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("valgrind has no output".into());
    };
    let (found, marks) = std::sync::mpsc::channel();
    let text = std::thread::spawn(move || -> std::io::Result<Vec<_>> {
        let mut ranges = Vec::new();
        for line in BufReader::new(said).lines() {
            let Some(range) = parse_range(&line?) else { continue };
            if range.0 == "marks" {
                // The other side has ended if it does not hear it.
                let _ = found.send(range.1);
            }
            ranges.push(range);
        }
        Ok(ranges)
    });
    // The program says where its marks are before it sets its machine up. Measuring starts when
    // that is read here.
    let mut first = None;
    let mut last: Accesses = vec![Vec::new(); OPERATIONS.len()];
    let mut now = None;
    for line in BufReader::with_capacity(1 << 20, trace).split(b'\n') {
        let line = line?;
        // " L 1ffeffe7e0,8": a load; S is a store, M both.
        let [b' ', b'L' | b'S' | b'M', b' ', rest @ ..] = line.as_slice() else { continue };
        first = first.or_else(|| marks.try_recv().ok());
        let Some(first) = first else { continue };
        let Some((at, bytes)) = std::str::from_utf8(rest)?.split_once(',') else { continue };
        let (at, bytes) = (u64::from_str_radix(at, 16)?, bytes.trim().parse::<u64>()?);
        match at.checked_sub(first).map(|mark| mark as usize) {
            Some(mark) if mark < OPERATIONS.len() => {
                last[mark].clear();
                now = Some(mark);
            }
            Some(mark) if mark < 2 * OPERATIONS.len() => now = None,
            _ => now.into_iter().for_each(|operation: usize| last[operation].push((at, bytes))),
        }
    }
    let status = child.wait()?;
    let ranges = text.join().map_err(|_| "the output cannot be read")??;
    if !status.success() {
        return Err(format!("{policy} under valgrind: {status}").into());
    }
    Ok((last, ranges))
}

fn parse_range(line: &str) -> Option<(String, u64, u64)> {
    let mut words = line.split_whitespace();
    let what = words.next()?.to_owned();
    let [start, end] = [words.next()?, words.next()?].map(|word| u64::from_str_radix(word, 16).ok());
    Some((what, start?, end?))
}

fn lines(accesses: &[(u64, u64)], ranges: &[(String, u64, u64)], line: u64) -> Lines {
    let touched: BTreeSet<u64> =
        accesses.iter().flat_map(|(at, bytes)| at / line..=(at + bytes - 1) / line).collect();
    let mut lines = Lines::default();
    for at in touched.into_iter().map(|n| n * line) {
        let what = ranges.iter().find(|(_, start, end)| (start / line * line..*end).contains(&at));
        match what.map(|(what, ..)| what.as_str()) {
            Some("stack" | "constants") => {}
            Some("page") => lines.page += 1,
            Some("record") => lines.record += 1,
            _ => lines.other += 1,
        }
    }
    lines
}

fn report(json: bool) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    if !json {
        println!("distinct lines (of the page, of records of frames, others), without stack and code");
        println!("{:<18} {:<10} {:>22} {:>22}", "", "policy", "lines of 64 bytes", "lines of 128 bytes");
    }
    let traces = POLICIES.iter().map(|policy| trace(policy)).collect::<Result<Vec<_>, _>>()?;
    for (operation, name) in OPERATIONS.iter().enumerate() {
        for (policy, (accesses, ranges)) in POLICIES.iter().zip(&traces) {
            if accesses[operation].is_empty() {
                return Err(format!("{name} on {policy}: no access was seen").into());
            }
            // Without lists every allocation is a miss, the clearing of a page that was just freed.
            if *policy == "plain" && operation == 0 {
                continue;
            }
            let [narrow, wide] = [64, 128].map(|line| lines(&accesses[operation], ranges, line));
            let sum = |l: &Lines| l.page + l.record + l.other;
            for (line, l) in [(64, narrow), (128, wide)] {
                rows.push(format!(
                    "{{\"case\":\"{name}\",\"contender\":\"{policy}\",\"line\":{line},\"value\":{},\"page\":{},\
                     \"record\":{},\"other\":{},\"unit\":\"lines\"}}",
                    sum(&l),
                    l.page,
                    l.record,
                    l.other
                ));
            }
            let text = |l: &Lines| format!("{} ({}, {}, {})", sum(l), l.page, l.record, l.other);
            if !json {
                println!("{name:<18} {policy:<10} {:>22} {:>22}", text(&narrow), text(&wide));
            }
        }
    }
    if json {
        println!(
            "{{\"schema\":1,\"bench\":\"lines\",\"table_bytes\":{TABLE},\"rows\":[{}]}}",
            rows.join(",")
        );
    } else {
        println!("the patch of 2007, for an allocation: 32 lines of 128 bytes become 2");
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--traced", policy] if POLICIES.contains(&policy) => traced(policy),
        [] => report(false),
        ["--json"] => report(true),
        _ => Err("usage: table-lines [--json]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("table-lines: {e}");
            ExitCode::FAILURE
        }
    }
}
