//! Counts the instructions that a table costs in Holt's program, by format: `holt-formats
//! [--json]`. It runs itself under valgrind, which must be installed.
//!
//! A child of a fork reads [`PAGES`] pages and ends. In the case `far` each page has a leaf table
//! of its own, in `near` all share one. The difference, for each table that `far` has more, is the
//! table part: a table is made, linked, emptied and given back.
use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::{
    Aarch64, Aarch64K16, Aarch64K64, Aarch64Stage2, Ept, Format, I386, Ia64, LoongArch64, Npt, Sparc64, Sv32,
    Sv39, Sv39x4, Sv48, Sv48x4, Sv57, X86_64, X86_64La57, X86Pae,
};
use ptarmigan::machine::Machine;
use ptarmigan::page::Level;
use ptarmigan::quicklist::Policy;
use ptarmigan::space::{Access, AreaFlags, Space};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::process::{Command, ExitCode};

/// Pages that a child reads: the 32 tables of Holt's mail.
const PAGES: u64 = 32;
/// Forks that are counted, after as many that are not.
const FORKS: u64 = 8;
/// Bytes of the machine's memory.
const MEMORY: u64 = 64 << 20;

/// A case of a format on a policy, whose name is in the symbol of the function that is counted.
type Counted = fn(&mut dyn FnMut());

/// Makes [`FORKS`] forks whose children read pages from `start` on, `stride` bytes apart. Returns
/// the tables of a child.
fn forks<F: Format, P: Policy>(
    host: &Host<F>,
    policy: P,
    (start, stride): (u64, u64),
    counted: Counted,
) -> Result<u64, Box<dyn Error>> {
    let machine = HostMachine::<F, _, _>::new(host, policy, NoTlb)?;
    let slots = host.slots();
    let tables = {
        let pin = slots.first().ok_or("no CPU")?.pin();
        let on = machine.on(&pin)?;
        let mut parent = Space::<F>::new(on)?;
        let area = VirtRange::new(start, start + PAGES * stride).unwrap();
        parent.edit(on)?.mmap(area, AreaFlags::READ.with(AreaFlags::WRITE), 0)?;
        let mut tables = Ok(0);
        let mut fork = || {
            tables = (|| -> Result<u64, Box<dyn Error>> {
                let mut child = parent.edit(on)?.fork()?;
                for page in 0..PAGES {
                    child.fault(on, VirtAddr(start + page * stride), Access::Read)?;
                }
                let tables = child.tree().tables_below_root() as u64;
                child.end(on)?;
                Ok(tables)
            })();
        };
        (0..FORKS).for_each(|_| fork());
        (0..FORKS).for_each(|_| counted(&mut fork));
        parent.end(on)?;
        tables?
    };
    machine.drain(&slots);
    host.audit()?;
    Ok(tables)
}

/// Runs both cases of a format on both policies. Prints for each policy how many tables `far` has
/// more.
fn format<F: Format>(name: &str, [plain, lists]: [[Counted; 2]; 2]) -> Result<(), Box<dyn Error>> {
    let page = 1 << F::PAGE_SHIFT;
    let table = 1 << F::shift(Level(1));
    // A table of the level above begins to map here, so that no case has two of them.
    let start = 1 << F::shift(Level(F::LAYOUT.levels - 1)).max(30);
    let mut more = Vec::new();
    for (is_plain, [near, far]) in [(true, plain), (false, lists)] {
        let mut tables = [0; 2];
        for (tables, (stride, counted)) in tables.iter_mut().zip([(page, near), (table, far)]) {
            let host = Host::<F>::new(HostConfig { cpus: 1, bytes: MEMORY, ..HostConfig::default() })?;
            *tables = if is_plain {
                forks(&host, host.plain()?, (start, stride), counted)
            } else {
                forks(&host, host.quicklists()?, (start, stride), counted)
            }?;
        }
        more.push(tables[1] - tables[0]);
    }
    println!("{name} {} {} {}", F::LAYOUT.table_bytes(Level::PTE), more[0], more[1]);
    Ok(())
}

macro_rules! formats {
    // The name in the code keeps functions that are otherwise the same from becoming one, and the
    // second call keeps the first from becoming a jump.
    (@counted $format:ident $($name:ident)*) => { $(
        #[inline(never)]
        pub fn $name(run: &mut dyn FnMut()) {
            black_box(concat!(stringify!($format), stringify!($name)));
            run();
            black_box(());
        }
    )* };
    ($($name:ident $format:ty;)*) => {
        $( mod $name {
            use super::black_box;

            formats!(@counted $name plain_near plain_far lists_near lists_far);
        } )*

        /// Runs all formats; called under valgrind.
        fn counted() -> Result<(), Box<dyn Error>> {
            $( format::<$format>(stringify!($name), [
                [$name::plain_near, $name::plain_far],
                [$name::lists_near, $name::lists_far],
            ])?; )*
            Ok(())
        }
    };
}

formats! {
    i386 I386;
    i386_pae X86Pae;
    x86_64 X86_64;
    x86_64_5 X86_64La57;
    sv32 Sv32;
    sv39 Sv39;
    sv48 Sv48;
    sv57 Sv57;
    aarch64_4k Aarch64;
    aarch64_16k Aarch64K16;
    aarch64_64k Aarch64K64;
    loongarch64 LoongArch64;
    sparc64 Sparc64;
    ia64 Ia64;
    aarch64_s2 Aarch64Stage2;
    ept Ept;
    npt Npt;
    sv39x4 Sv39x4;
    sv48x4 Sv48x4;
}

/// Reads the instructions of each counted function, with those that it calls, from the output of
/// callgrind.
fn inclusive(profile: &str) -> HashMap<String, u64> {
    let mut found = HashMap::new();
    let mut called = None;
    let mut calls = false;
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            called = name.split_once("holt_formats::").map(|(_, name)| name.to_owned());
        } else if line.starts_with("calls=") {
            calls = true;
        } else if std::mem::take(&mut calls)
            && let Some(name) = called.take()
        {
            let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok());
            *found.entry(name).or_default() += cost.unwrap_or(0);
        }
    }
    found
}

/// Runs this program under callgrind; the rows.
fn rows() -> Result<Vec<Value>, Box<dyn Error>> {
    let profile = std::env::temp_dir().join(format!("holt-formats.{}", std::process::id()));
    // valgrind counts each byte of a string store as an instruction. Stores of 32 bytes clear a
    // table in fewer than any kernel's loop.
    let run = Command::new("valgrind")
        .env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_stosb_threshold=1000000000")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .arg("--counted")
        .output()
        .map_err(|e| format!("valgrind cannot be run, which counts instructions: {e}; install valgrind"))?;
    if !run.status.success() {
        return Err(
            format!("under valgrind: {}: {}", run.status, String::from_utf8_lossy(&run.stderr)).into()
        );
    }
    let text = std::fs::read_to_string(&profile);
    std::fs::remove_file(&profile)?;
    let costs = inclusive(&text?);
    let mut rows = Vec::new();
    for line in String::from_utf8(run.stdout)?.lines() {
        let mut words = line.split_whitespace();
        let mut word = || words.next().ok_or_else(|| format!("odd line: {line}"));
        let name = word()?.to_owned();
        let bytes: u64 = word()?.parse()?;
        let mut of = |policy: &str| -> Result<f64, Box<dyn Error>> {
            let more: u64 = word()?.parse()?;
            let cost = |case: &str| {
                let function = format!("{name}::{policy}_{case}");
                costs.get(&function).copied().ok_or_else(|| format!("nothing was counted in {function}"))
            };
            Ok((cost("far")? as f64 - cost("near")? as f64) / (FORKS * more) as f64)
        };
        let (plain, lists) = (of("plain")?, of("lists")?);
        rows.push(json!({
            "format": name.replace('_', "-"),
            "table_bytes": bytes,
            "plain": plain,
            "ptarmigan": lists,
            "ratio": plain / lists,
        }));
    }
    Ok(rows)
}

fn print(json: bool) -> Result<(), Box<dyn Error>> {
    let rows = rows()?;
    if json {
        println!("{}", json!({ "rows": rows }));
        return Ok(());
    }
    println!("{:<12} {:>7} {:>8} {:>10} {:>6}", "format", "table", "plain", "ptarmigan", "times");
    for row in &rows {
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        println!(
            "{:<12} {:>7} {:>8.0} {:>10.0} {:>6.1}",
            row["format"].as_str().unwrap_or_default(),
            row["table_bytes"],
            number("plain"),
            number("ptarmigan"),
            number("ratio")
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--counted"] => counted(),
        [] => print(false),
        ["--json"] => print(true),
        _ => Err("usage: holt-formats [--json]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("holt-formats: {e}");
            ExitCode::FAILURE
        }
    }
}
