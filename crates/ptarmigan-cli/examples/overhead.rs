//! Measures what a recording costs the recorded program, by case and method, and prints a table.
//!
//! `cargo run --release -p ptarmigan-cli --example overhead [ROUNDS]`, with the command built in
//! the same profile. Rounds go in turns, so that all columns meet the same noise. A case waits for
//! a line before its work, and its time is from there to its end: the recorder's own start and end
//! are not in it.
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The cases: a name, and a shell's commands.
const CASES: [(&str, &str); 4] = [
    (
        "100 pipelines `echo \\| cat \\| wc`",
        "i=0; while [ $i -lt 100 ]; do echo a | cat | wc -l >/dev/null; i=$((i+1)); done",
    ),
    ("1,000 forks of a shell", "i=0; while [ $i -lt 1000 ]; do (:); i=$((i+1)); done"),
    (
        "`dd` with a buffer of 512 MiB, written once",
        "dd if=/dev/zero of=/dev/null bs=512M count=1 2>/dev/null",
    ),
    ("`make -j2` of 20 C files", "make -s -j2 -B"),
];

/// The files of the case that builds.
const FILES: u32 = 20;

/// The ways to run a case: a name, and the recorder's arguments; `-p` attaches.
const WAYS: [(&str, Option<&[&str]>); 7] = [
    ("alone", None),
    ("tracefs", Some(&["--method", "tracefs"])),
    ("perf", Some(&["--method", "perf"])),
    ("tracefs --symbols", Some(&["--method", "tracefs", "--symbols"])),
    ("perf --symbols", Some(&["--method", "perf", "--symbols"])),
    ("tracefs, attached", Some(&["--method", "tracefs", "-p"])),
    ("perf, attached", Some(&["--method", "perf", "-p"])),
];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(5), |n| n.parse())?;
    let dir = std::env::temp_dir().join(format!("ptarmigan-overhead-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let done = measure(&dir, rounds);
    std::fs::remove_dir_all(&dir)?;
    done
}

fn measure(dir: &Path, rounds: usize) -> Result<()> {
    write_program(dir)?;
    let own = std::env::current_exe()?;
    let ptarmigan = own.parent().and_then(Path::parent).map(|dir| dir.join("ptarmigan"));
    let ptarmigan =
        ptarmigan.filter(|file| file.exists()).ok_or("build the command in this profile first")?;
    println!("| case | alone | {} |", WAYS[1..].iter().map(|way| way.0).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(WAYS.len()));
    for (name, script) in CASES {
        let mut times = vec![Vec::new(); WAYS.len()];
        for _ in 0..rounds {
            for (way, times) in WAYS.iter().zip(&mut times) {
                times.push(run(&ptarmigan, dir, script, way.1).ok());
            }
        }
        let medians: Vec<Option<f64>> = times.into_iter().map(median).collect();
        let alone = medians[0].ok_or("a case does not run")?;
        let cell = |m: &Option<f64>| m.map_or("–".to_owned(), |m| format!("{:.2}", m / alone));
        let cells: Vec<String> = medians[1..].iter().map(cell).collect();
        println!("| {name} | {alone:.2} s | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Returns the median of the times, in seconds, if none is missing.
fn median(times: Vec<Option<Duration>>) -> Option<f64> {
    let mut times: Vec<f64> = times.into_iter().map(|t| t.map(|t| t.as_secs_f64())).collect::<Option<_>>()?;
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// Writes the sources of the case that builds.
fn write_program(dir: &Path) -> Result<()> {
    let mut makefile = "all:".to_owned();
    for n in 0..FILES {
        makefile += &format!(" {n}.o");
        let source = format!(
            "#include <stdio.h>\n#include <stdlib.h>\nint f{n}(int x) {{ return printf(\"%d\", x); }}\n"
        );
        std::fs::write(dir.join(format!("{n}.c")), source)?;
    }
    std::fs::write(dir.join("Makefile"), makefile + "\n%.o: %.c\n\tcc -O2 -c $< -o $@\n")?;
    Ok(())
}

/// A process that is killed if the measurement fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a case in one way, and returns the time of its work.
fn run(ptarmigan: &Path, dir: &Path, script: &str, way: Option<&[&str]>) -> Result<Duration> {
    let script = format!("echo on; read x; {script}; echo off");
    let trace: PathBuf = dir.join("out.ptrace");
    let recorder = |args: &[&str]| {
        let mut command = Command::new(ptarmigan);
        command.args(["record", "--level", "1", "-o"]).arg(&trace).args(args).current_dir(dir);
        command.stderr(Stdio::piped());
        command
    };
    let attaches = way.is_some_and(|args| args.ends_with(&["-p"]));
    let mut command = match way {
        Some(args) if !attaches => {
            let mut command = recorder(args);
            command.args(["sh", "-c", &script]);
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command.args(["-c", &script]).current_dir(dir);
            command
        }
    };
    let mut case = Ended(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
    let mut out = BufReader::new(case.0.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    if out.read_line(&mut line)? == 0 {
        return Err("it does not run".into());
    }
    let attached = match way {
        Some(args) if attaches => {
            let pid = case.0.id().to_string();
            let mut attached = Ended(recorder(&[args, &[pid.as_str()]].concat()).spawn()?);
            let mut said = BufReader::new(attached.0.stderr.take().ok_or("no output")?);
            line.clear();
            while !line.contains("recording with") {
                if said.read_line(&mut line)? == 0 {
                    return Err("it does not attach".into());
                }
            }
            Some((attached, said))
        }
        _ => None,
    };
    let start = Instant::now();
    writeln!(case.0.stdin.as_mut().ok_or("no input")?)?;
    line.clear();
    out.read_line(&mut line)?;
    let time = start.elapsed();
    drop(case.0.stdin.take());
    let whole = case.0.wait()?.success() && line == "off\n";
    if let Some((mut attached, mut said)) = attached {
        std::io::copy(&mut said, &mut std::io::sink())?;
        attached.0.wait()?;
    }
    if whole { Ok(time) } else { Err("the case failed".into()) }
}
