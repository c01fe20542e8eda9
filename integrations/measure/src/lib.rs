//! Measures the contenders of the examples of this workspace. They take turns in every round, each
//! row is the median of all rounds, and the output gives the distance between rounds.
//!
//! Processor time is the time of a call on a processor, in the program and in the kernel.
//! Neighbours hardly disturb it. They disturb wall time, which includes the waits for locks.
#![warn(missing_docs)]
use std::fmt::Write;
use std::sync::Barrier;
use std::time::Instant;

/// The options of the command line.
pub struct Options {
    /// Rounds of all contenders.
    pub rounds: usize,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether an example's own option was given.
    pub extra: bool,
}

impl Options {
    /// Reads the command line. `extra` is the example's own option and its effect; `about` its
    /// first line of help.
    ///
    /// # Errors
    ///
    /// One line that names the error, or the help that was asked for.
    pub fn read(about: &str, extra: Option<(&str, &str)>) -> Result<Self, String> {
        let mut options = Options { rounds: 11, json: false, extra: false };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" => options.json = true,
                "--rounds" => {
                    let n = args.next().and_then(|n| n.parse().ok()).filter(|n| (1..=1000).contains(n));
                    options.rounds = n.ok_or("--rounds needs a number from 1 to 1000")?;
                }
                other if extra.is_some_and(|(name, _)| name == other) => options.extra = true,
                other => {
                    let own = extra.map_or_else(String::new, |(name, what)| format!("  {name:12} {what}\n"));
                    return Err(format!(
                        "{other}: the options are\n  --rounds N   rounds of all contenders (11)\n  --json       figures for machines\n{own}{about}"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Nanoseconds for a call.
#[derive(Clone, Copy)]
pub struct Time {
    /// Of a processor.
    pub cpu: f64,
    /// On the wall.
    pub wall: f64,
}

/// Processor time of the calling thread, in nanoseconds.
fn cpu_now() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

/// Has `work` make `calls` calls on each of `threads` threads at once, twice; the second time
/// counts.
///
/// # Errors
///
/// That of the first thread that failed.
pub fn measure<E: Send>(
    threads: usize,
    calls: usize,
    work: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<Time, E> {
    let start = Barrier::new(threads);
    let one = || {
        // A thread has no page cached when it begins.
        let warm = work(calls);
        start.wait();
        warm?;
        let (cpu, wall) = (cpu_now(), Instant::now());
        work(calls)?;
        Ok(Time { cpu: cpu_now() - cpu, wall: wall.elapsed().as_nanos() as f64 })
    };
    let all: Vec<Result<Time, E>> = std::thread::scope(|s| {
        let all: Vec<_> = (0..threads).map(|_| s.spawn(one)).collect();
        all.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let all: Vec<Time> = all.into_iter().collect::<Result<_, E>>()?;
    let each = (threads * calls) as f64;
    Ok(Time {
        cpu: all.iter().map(|t| t.cpu).sum::<f64>() / each,
        wall: all.iter().map(|t| t.wall).sum::<f64>() / each,
    })
}

/// Figures of one contender in one case.
pub struct Row {
    /// Threads at once.
    pub threads: usize,
    /// Stacks that each has at a time.
    pub live: usize,
    /// Where its stacks come from.
    pub name: &'static str,
    /// By round.
    pub times: Vec<Time>,
}

fn sorted(times: &[Time], of: impl Fn(&Time) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = times.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all
}

impl Row {
    /// Median processor time.
    fn cpu(&self) -> f64 {
        let all = sorted(&self.times, |t| t.cpu);
        all[all.len() / 2]
    }
}

/// The rows as text: medians, the least and the most processor time, and how many times as long as
/// with the contender `ours` in the same case.
pub fn table(rows: &[Row], ours: &str) -> String {
    let mut text =
        String::from("threads live  stacks from            CPU ns   least    most  wall ns  times ours\n");
    for row in rows {
        let (cpu, wall) = (sorted(&row.times, |t| t.cpu), sorted(&row.times, |t| t.wall));
        let same = |other: &&Row| (other.threads, other.live, other.name) == (row.threads, row.live, ours);
        let times = rows.iter().find(same).map_or(f64::NAN, |ours| row.cpu() / ours.cpu());
        let _ = writeln!(
            text,
            "{:7} {:4}  {:20} {:8.0} {:7.0} {:7.0} {:8.0} {:11.2}",
            row.threads,
            row.live,
            row.name,
            row.cpu(),
            cpu[0],
            cpu[cpu.len() - 1],
            wall[wall.len() / 2],
            times,
        );
    }
    text
}

/// The rows as JSON: an array of objects, times in nanoseconds by round.
pub fn json(rows: &[Row]) -> String {
    let list = |times: Vec<f64>| times.iter().map(|t| format!("{t:.1}")).collect::<Vec<_>>().join(",");
    let objects: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{{\"threads\":{},\"live\":{},\"stacks\":\"{}\",\"cpu_ns\":[{}],\"wall_ns\":[{}]}}",
                row.threads,
                row.live,
                row.name,
                list(row.times.iter().map(|t| t.cpu).collect()),
                list(row.times.iter().map(|t| t.wall).collect()),
            )
        })
        .collect();
    format!("[{}]\n", objects.join(",\n "))
}
