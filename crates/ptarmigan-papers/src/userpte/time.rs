//! Measures the cost of high tables: the experiment of 2010 on a recording.
//!
//! # One run
//!
//! A run reads the recording, sets the machine up, and replays. It measures the figures that the
//! mail of 2010 lists for a run of its kernel builds:
//!
//! | here | description |
//! |---|---|
//! | elapsed | the whole run, by the clock on the wall |
//! | user | processor time to read the recording, move it to 3 GiB and plan its replay: no table is touched, so it is the control |
//! | system | processor time of the replay: the library's calls, and the loop that makes them, the same for all |
//! | percent CPU | user and system time, of the elapsed time |
//! | context switches | involuntary switches of this process |
//! | sleeps | voluntary switches of this process |
//!
//! # Order
//!
//! One round is not counted. In each round every placement runs once, in an order that turns.
use super::report::{Part, Row, row};
use crate::usage::Switches;
use crate::welch::{Summary, Welch};
use ptarmigan::params::{AutoParams, UserPte};
use ptarmigan_bench::clock::thread_time;
use ptarmigan_replay::{PlacedMachine, PlacedRun, PlacedTrace};
use ptarmigan_term::Bytes;
use ptarmigan_term::Failure;
use ptarmigan_term::bar;
use ptarmigan_term::text::{Text, TextTable};
use std::fmt::{Result as Written, Write as _};
use std::path::Path;
use std::time::Instant;

/// The placements, as columns.
const PLACEMENTS: [&str; 3] = ["high", "nohigh", "auto"];
/// Which of them is the other side of each comparison.
const NOHIGH: usize = 1;
/// The placements that are compared with it.
const COMPARED: [usize; 2] = [0, 2];

/// One measured quantity.
struct Quantity {
    name: &'static str,
    row: &'static str,
    unit: &'static str,
    /// Digits behind the point.
    digits: usize,
    /// Whether means are compared. Counts of tables do not vary.
    is_compared: bool,
    of: fn(&Sample) -> f64,
}

const QUANTITIES: [Quantity; 8] = [
    Quantity {
        name: "Elapsed, s",
        row: "elapsed",
        unit: "s",
        digits: 4,
        is_compared: true,
        of: |s| s.elapsed,
    },
    Quantity { name: "User, s", row: "user", unit: "s", digits: 4, is_compared: true, of: |s| s.user },
    Quantity { name: "System, s", row: "system", unit: "s", digits: 4, is_compared: true, of: |s| s.system },
    Quantity {
        name: "Percent CPU",
        row: "percent-cpu",
        unit: "%",
        digits: 1,
        is_compared: true,
        of: |s| 100.0 * (s.user + s.system) / s.elapsed,
    },
    Quantity {
        name: "Context switches",
        row: "switches",
        unit: "switches",
        digits: 1,
        is_compared: true,
        of: |s| s.switches.taken as f64,
    },
    Quantity {
        name: "Sleeps",
        row: "sleeps",
        unit: "switches",
        digits: 1,
        is_compared: true,
        of: |s| s.switches.slept as f64,
    },
    Quantity {
        name: "High leaf tables",
        row: "high-tables",
        unit: "tables",
        digits: 0,
        is_compared: false,
        of: |s| s.run.tables.high as f64,
    },
    Quantity {
        name: "Windows opened",
        row: "windows",
        unit: "windows",
        digits: 0,
        is_compared: false,
        of: |s| s.run.tables.opened as f64,
    },
];

/// The measurements of one run.
struct Sample {
    elapsed: f64,
    user: f64,
    system: f64,
    switches: Switches,
    run: PlacedRun,
    /// The recording, as a line.
    trace: String,
}

fn userpte(at: usize) -> UserPte {
    match at {
        0 => UserPte::High,
        NOHIGH => UserPte::NoHigh,
        _ => UserPte::Auto(AutoParams::default()),
    }
}

/// Runs the whole once.
fn sample(from: Option<&Path>, machine: &PlacedMachine, userpte: UserPte) -> Result<Sample, Failure> {
    let counts = || Switches::now().ok_or_else(|| Failure::new("the host does not count switches"));
    let (start, switches, before) = (Instant::now(), counts()?, thread_time());
    let trace = PlacedTrace::read(from)?;
    let user = (thread_time() - before).as_secs_f64();
    let run = trace.run(machine, userpte)?;
    Ok(Sample {
        elapsed: start.elapsed().as_secs_f64(),
        user,
        system: run.calls.as_secs_f64(),
        switches: counts()?.since(switches),
        run,
        trace: trace.describe(),
    })
}

/// Runs `runs` rounds, and one more before them.
///
/// # Errors
/// If the recording cannot be read or does not fit, memory runs out, or placements make different
/// numbers of tables.
pub(super) fn part(from: Option<&Path>, machine: &PlacedMachine, runs: u32) -> Result<Part, Failure> {
    let mut samples: [Vec<Sample>; PLACEMENTS.len()] = Default::default();
    let bar = bar::bar(u64::from(runs + 1) * PLACEMENTS.len() as u64, "runs");
    for round in 0..=runs as usize {
        for turn in 0..PLACEMENTS.len() {
            let at = (turn + round) % PLACEMENTS.len();
            let one = sample(from, machine, userpte(at))
                .map_err(|e| Failure::new(format!("userpte={}: {}", PLACEMENTS[at], e.message())))?;
            if round > 0 {
                samples[at].push(one);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let made = |of: &Vec<Sample>| of.iter().map(|one| one.run.all_tables).collect::<Vec<_>>();
    if samples.iter().any(|of| made(of) != made(&samples[NOHIGH])) {
        return Err(Failure::new("placements made different numbers of tables: times mean nothing"));
    }
    let mut text = Text::default();
    // Writing to a text cannot fail.
    let _ = write(&mut text, &samples, machine, runs);
    Ok(Part { text, rows: rows(&samples) })
}

fn summary(of: &[Sample], quantity: &Quantity) -> Summary {
    Summary::of(of.iter().map(quantity.of))
}

fn welch(samples: &[Vec<Sample>], at: usize, quantity: &Quantity) -> Option<Welch> {
    summary(&samples[at], quantity).welch(&summary(&samples[NOHIGH], quantity))
}

/// Returns by how many percent the mean of `at` is above that without high tables.
fn change(samples: &[Vec<Sample>], at: usize, quantity: &Quantity) -> f64 {
    100.0 * (summary(&samples[at], quantity).mean / summary(&samples[NOHIGH], quantity).mean - 1.0)
}

fn rows(samples: &[Vec<Sample>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for quantity in &QUANTITIES {
        for (name, of) in PLACEMENTS.iter().zip(samples) {
            let Summary { mean, deviation, .. } = summary(of, quantity);
            let one = row(format!("time/{}", quantity.row), *name, mean, quantity.unit);
            rows.push(Row { deviation: Some(deviation), ..one });
        }
    }
    for at in COMPARED {
        let contender = format!("{}-nohigh", PLACEMENTS[at]);
        for quantity in QUANTITIES.iter().filter(|quantity| quantity.is_compared) {
            let Some(Welch { t, df, p }) = welch(samples, at, quantity) else { continue };
            let change = change(samples, at, quantity);
            for (what, value, unit) in [("change", change, "%"), ("t", t, ""), ("df", df, ""), ("p", p, "")] {
                rows.push(row(format!("welch/{}/{what}", quantity.row), contender.clone(), value, unit));
            }
        }
    }
    rows
}

fn write(text: &mut Text, samples: &[Vec<Sample>], machine: &PlacedMachine, runs: u32) -> Written {
    let PlacedMachine { memory, low, touch_data, copies } = machine;
    writeln!(text, "The experiment of 2010 on i386-pae: {runs} runs of each, means (deviations)")?;
    if let Some(one) = samples[NOHIGH].first() {
        writeln!(text, "{}", one.trace)?;
        let tables = one.run.tables.tables;
        writeln!(text, "{tables} leaf tables of {} tables made, wherever they are", one.run.all_tables)?;
    }
    let data = if *touch_data { "cleared and copied" } else { "not backed" };
    let copies = if *copies > 1 { format!(", {copies} copies at once") } else { String::new() };
    writeln!(text, "{}, {} of them low; data frames {data}{copies}\n", Bytes(*memory), Bytes(*low))?;
    let mut table = TextTable::new(&[&[""], &PLACEMENTS[..]].concat(), &[-17, 20, 20, 20]);
    for quantity in &QUANTITIES {
        let values = samples.iter().map(|of| {
            let Summary { mean, deviation, .. } = summary(of, quantity);
            let digits = quantity.digits;
            format!("{mean:.digits$} ({deviation:.digits$})")
        });
        table.texts(std::iter::once(quantity.name.to_owned()).chain(values));
    }
    text.table(table);
    for at in COMPARED {
        let name = format!("{} against nohigh", PLACEMENTS[at]);
        let mut table = TextTable::new(&[&name, "change", "t", "df", "p"], &[-23, 9, 9, 7, 11]);
        for quantity in QUANTITIES.iter().filter(|quantity| quantity.is_compared) {
            let change = format!("{:+.2}%", change(samples, at, quantity));
            match welch(samples, at, quantity) {
                Some(Welch { t, df, p }) => {
                    let [t, df, p] = [format!("{t:.2}"), format!("{df:.2}"), format!("{p:.2e}")];
                    table.row(&[&quantity.name, &change, &t, &df, &p]);
                }
                None => table.row(&[&quantity.name, &change, &"  no spread on either side"]),
            }
        }
        writeln!(text)?;
        text.table(table);
    }
    writeln!(text, "\nuser: reading, moving and planning the recording; it touches no table.")?;
    writeln!(text, "system: the replay, by processor time: the calls and the loop that makes them.")?;
    writeln!(text, "A window is a store here: no entry is written, and no TLB forgets a page.")
}
