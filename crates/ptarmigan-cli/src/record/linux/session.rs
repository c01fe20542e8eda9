//! One recording, from start to end.
use super::allowed;
use super::builder::TraceBuilder;
use super::keeper::{self, Link, Role};
use super::sources::merge::{Finished, Merge, Stream};
use super::sources::perf::PerfFaults;
use super::sources::spill::{self, Notes, Spill};
use super::sources::tracefs::Instance;
use super::stops::calls;
use super::stops::start::{self, AtCalls, Start, Started};
use super::stops::supervisor::{self, Missed, Supervisor};
use super::stops::tracer::{self, Ended, Surroundings, Tracer};
use super::system::notify::Listener;
use super::system::{pagemap, proc, signals, sys};
use crate::record::args::{MethodChoice, RecordArgs};
use indicatif::ProgressBar;
use ptarmigan_replay::terminal::output::Output;
use ptarmigan_replay::terminal::words::several;
use ptarmigan_replay::terminal::{bar, print};
use ptarmigan_replay::{Context, Failure};
use ptarmigan_trace::{FaultFlags, Header, Kind, Method, Sampled, Summary, Unseen, Writer};
use std::fs::{self, File};
use std::io::{BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// The source of the faults and, with tracefs, of all other events.
enum Source {
    Tracefs(Instance),
    Perf(PerfFaults),
}

pub(in crate::record) fn run(args: &RecordArgs) -> Result<ExitCode, Failure> {
    let output = Output::new(&args.output)?;
    let method = choose(args.method)?;
    refuse_32_bit(args)?;
    match keeper::split().context("starting the recorder")? {
        Role::Waited(status) => Ok(status),
        Role::Recorder(link) => record(args, &output, method, link),
    }
}

/// Records, in the process that does it.
fn record(args: &RecordArgs, output: &Output, method: Method, link: Link) -> Result<ExitCode, Failure> {
    let (at_calls, ends): (_, &[i64]) = match method {
        Method::Tracefs => (AtCalls::Ask, &supervisor::CALLS),
        _ => (AtCalls::Stop, &tracer::STOPS),
    };
    let watched = [ends, &calls::LOOKED_AT].concat();
    let start =
        Start::new(&args.command, at_calls, &watched, !allowed::may_filter()).context("the command")?;
    let spill =
        Spill::new(output.file()).context(format_args!("{}: cannot be written", args.output.display()))?;
    let mut notes = Notes::new(&spill).context(SPILL)?;

    let instance = if at_calls == AtCalls::Ask {
        signals::hold();
        Some(Instance::new(&spill)?)
    } else {
        None
    };
    let started = start.fork().context("starting the command")?;
    let begun = begin(&started, instance, &spill, link).inspect_err(|_| {
        // The process holds files of the instance open, and the instance cannot be removed before
        // it is gone.
        sys::end(started.pid);
    });
    let (source, listener) = match begun {
        Err(failure) => return Err(not_started(&started, &args.program()).unwrap_or(failure)),
        Ok(begun) => begun,
    };
    let mut header = Header::new(&name(args), cpus(&source), method);
    header.unseen = unseen(&source);
    header.huge = proc::huge_pages();

    signals::pass_to(started.pid);
    started.release().context("starting the command")?;
    let mut recording =
        Recording { header: &header, progress: recording_progress(), kept: Some((source, spill)) };
    let (ended, missed) = match &listener {
        Some(listener) => Supervisor::new(&mut notes, listener, started.pid, &mut recording).follow()?,
        None => {
            let (ended, narrow) = Tracer::new(&mut notes, started.pid, &mut recording).follow()?;
            (ended, Missed { narrow, ..Missed::default() })
        }
    };
    signals::pass_to(0);
    let Recording { progress, kept, .. } = recording;
    if let Some(progress) = progress {
        progress.finish_and_clear();
    }
    if let Some(failure) = not_started(&started, &args.program()) {
        return Err(failure);
    }
    // Without anybody who waits for it, the recording has been dropped.
    let Some((source, spill)) = kept else { return Ok(status(ended)) };

    let mut finished = match source {
        Source::Tracefs(instance) => instance.finish(&spill)?,
        Source::Perf(faults) => faults.finish(&spill)?,
    };
    let (events, execs, failed) = notes.read().context(SPILL)?;
    finished.streams.push(Stream { events: Box::new(events), cut: failed.is_some() });
    finished.failed = finished.failed.or(failed);
    for (happened, bit) in [
        (missed.other_tracer > 0, Unseen::OTHER_TRACER),
        (missed.narrow > 0, Unseen::PROGRAMS_32),
        (finished.failed.is_some() || spill.room.ended().is_some(), Unseen::END),
    ] {
        header.unseen.0 |= if happened { bit } else { 0 };
    }
    write(args, output, &header, &spill, Deliveries { root: started.pid, finished, execs })?;
    Ok(status(ended))
}

const SPILL: &str = "the temporary files beside the output";

/// A recording in progress.
struct Recording<'a> {
    header: &'a Header,
    progress: Option<ProgressBar>,
    /// Its events, until it is abandoned.
    kept: Option<(Source, Spill)>,
}

impl Surroundings for Recording<'_> {
    fn begun(&mut self) {
        announce(self.header);
    }

    fn tick(&mut self, alive: Option<usize>) {
        let (Some(progress), Some((source, _))) = (&self.progress, &self.kept) else { return };
        let bytes = match source {
            Source::Tracefs(i) => i.bytes.load(Ordering::Relaxed),
            Source::Perf(f) => f.bytes.load(Ordering::Relaxed),
        };
        let tasks = alive.map(|n| format!("{n} tasks alive, ")).unwrap_or_default();
        progress.set_message(format!("recording: {tasks}{} KiB", bytes >> 10));
    }

    fn alive(&self) -> Vec<i32> {
        match &self.kept {
            Some((Source::Tracefs(instance), _)) => instance.alive(),
            _ => Vec::new(),
        }
    }

    fn abandon(&mut self) {
        self.kept = None;
    }
}

/// Returns the recording method, if it is available.
fn choose(choice: MethodChoice) -> Result<Method, Failure> {
    match choice {
        MethodChoice::Perf => Ok(Method::Perf),
        MethodChoice::Tracefs => match Instance::available() {
            Ok(()) => Ok(Method::Tracefs),
            Err(why) => {
                Err(Failure::new(format!("method tracefs is not available: {why}; use --method perf")))
            }
        },
        MethodChoice::Auto => Ok(match Instance::available() {
            Ok(()) => Method::Tracefs,
            Err(why) => {
                // Others than root do not expect it.
                if rustix::process::geteuid().is_root() {
                    print::error(&format!("method tracefs is not available: {why}"));
                }
                Method::Perf
            }
        }),
    }
}

/// Refuses a command that is a 32-bit program.
fn refuse_32_bit(args: &RecordArgs) -> Result<(), Failure> {
    let (command, shown) = (&args.command[0], args.program());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if command.as_encoded_bytes().contains(&b'/') {
        Some(PathBuf::from(command))
    } else {
        std::env::split_paths(&path).map(|dir| dir.join(command)).find(|file| file.is_file())
    };
    match found {
        Some(file) if proc::is_32_bit_file(&file) => Err(Failure::new(format!(
            "{shown}: a 32-bit program, whose system calls cannot be recorded; record a 64-bit build of it"
        ))),
        _ => Ok(()),
    }
}

/// Starts the events, and the way in which calls are looked at.
fn begin(
    started: &Started,
    instance: Option<Instance>,
    spill: &Spill,
    link: Link,
) -> Result<(Source, Option<Listener>), Failure> {
    let Some(instance) = instance else {
        sys::seize(started.pid).map_err(|e| allowed::untraceable(started.pid, &e))?;
        return Ok((Source::Perf(PerfFaults::start(started.pid, spill)?), None));
    };
    sys::try_to_trace(started.pid).map_err(|e| allowed::untraceable(started.pid, &e))?;
    let listener = started
        .listen()
        .map_err(|e| Failure::new(format!("a listener to system calls: {e}; use --method perf")))?;
    let listener = listener.ok_or_else(|| Failure::new("the filter of system calls was refused"))?;
    link.keep(&listener).context("the process that waits")?;
    instance.start(started.pid)?;
    Ok((Source::Tracefs(instance), Some(listener)))
}

fn cpus(source: &Source) -> u16 {
    match source {
        Source::Tracefs(i) => i.cpus(),
        Source::Perf(_) => PerfFaults::cpus(),
    }
}

fn unseen(source: &Source) -> Unseen {
    let present = if pagemap::works() { 0 } else { Unseen::KERNEL_ACCESS };
    Unseen(
        present
            | match source {
                Source::Tracefs(i) if i.sees_flushes() => 0,
                Source::Tracefs(_) => Unseen::TLB_FLUSHES,
                Source::Perf(_) => {
                    Unseen::KERNEL_FAULTS | Unseen::FAULT_ACCESS | Unseen::TLB_FLUSHES | Unseen::IDLE
                }
            },
    )
}

/// Returns the name of the workload, never a path.
fn name(args: &RecordArgs) -> String {
    args.name.clone().unwrap_or_else(|| {
        Path::new(&args.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned()
    })
}

fn announce(header: &Header) {
    let unseen = header.unseen.names();
    let method = header.method.name();
    if unseen.is_empty() {
        print::error(&format!("recording with {method}"));
    } else {
        print::error(&format!("recording with {method}, which does not record {}", unseen.join(", ")));
    }
}

/// Returns a spinner on the terminal, unless the command writes there too.
fn recording_progress() -> Option<ProgressBar> {
    (!std::io::stdout().is_terminal() && std::io::stderr().is_terminal()).then(bar::spinner)
}

/// Returns why the command could not be started, if it could not.
fn not_started(started: &Started, command: &str) -> Option<Failure> {
    let (step, e) = started.why_failed()?;
    Some(match step {
        start::STEP_EXEC => {
            let status = if e.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 };
            Failure::new(format!("{command}: {e}")).with_status(status)
        }
        _ if e.raw_os_error() == Some(libc::EBUSY) => Failure::new(
            "another program listens to the system calls already (a recorder, a container's manager); \
             use --method perf",
        ),
        _ => Failure::new(format!("the command cannot be started with a system-call filter: {e}")),
    })
}

/// The raw events of all sources, before they are merged.
struct Deliveries {
    /// The first process.
    root: i32,
    finished: Finished,
    execs: spill::NotedExecs,
}

/// Merges the raw events into the trace, and puts it in place when it is complete.
fn write(
    args: &RecordArgs,
    output: &Output,
    header: &Header,
    spill: &Spill,
    deliveries: Deliveries,
) -> Result<(), Failure> {
    let Deliveries { root, finished: Finished { streams, lost, failed }, mut execs } = deliveries;
    let problem = format!("{}: cannot be written", args.output.display());
    let partial = spill.path("trace");
    let out = BufWriter::new(File::create(&partial).context(&problem)?);
    let writer = Writer::new(out, header, args.level).context(&problem)?;
    let progress = bar::spinner();
    let mut lookup = |pid, time| execs.after(pid, time);
    let mut model = TraceBuilder::new(writer, root, &mut lookup);
    for (n, raw) in Merge::new(streams, spill.room.ended()).enumerate() {
        if n % (1 << 16) == 0 {
            progress.set_message(format!("writing: {n} events"));
        }
        model.feed(raw).context(&problem)?;
    }
    progress.finish_and_clear();
    if !model.started() {
        let why = failed.map(|e| format!(": {e}")).unwrap_or_default();
        return Err(Failure::new(format!(
            "nothing of {} was recorded; {lost} events were lost{why}",
            args.program()
        )));
    }
    let (writer, seen) = model.finish().context(&problem)?;
    let (_, summary) = writer.finish(lost + seen.refused).context(&problem)?;
    output.install(&partial)?;
    let bytes = fs::metadata(&args.output).map(|m| m.len()).unwrap_or(0);
    print::error(&format!("{}: {}", args.output.display(), written(&summary, bytes)));
    if seen.found > 0 {
        print::error(&found(seen.found));
    }
    if header.unseen.has(Unseen::END) {
        let why = failed.map_or("no room on the disk".to_owned(), |e| e.to_string());
        print::error(&format!("the recording ended before the command did: {why}"));
    }
    for (n, what) in [
        (seen.other_tracer, "under another tracer"),
        (seen.narrow, "32-bit"),
        (seen.blank, "ended at their start"),
    ] {
        if n > 0 {
            print::error(&format!("programs that were not recorded ({what}): {n}"));
        }
    }
    Ok(())
}

/// Summarizes the trace, in the numbers that `inspect` counts.
fn written(summary: &Summary, bytes: u64) -> String {
    let faults = summary.count(&Kind::Fault { page: 0, flags: FaultFlags(0) });
    let execs = summary.count(&Kind::Exec { stack_end: 0, arg_pages: 0 });
    let samples = summary.count(&Kind::Truth { tables: 0, at: Sampled::Exit });
    format!(
        "{} ({}), {}, {}, {} of VmPTE, {} lost, {}",
        several(summary.events, "event"),
        several(faults, "fault"),
        several(summary.tasks.into(), "task"),
        several(execs, "exec"),
        several(samples, "sample"),
        summary.lost,
        several(bytes, "byte"),
    )
}

/// Says that page tables came without a fault that was recorded.
fn found(tables: u64) -> String {
    format!(
        "{} appeared without a recorded fault (see docs/recording.md#what-is-found-at-stops); counts are \
         corrected",
        several(tables, "page table")
    )
}

fn status(ended: Ended) -> ExitCode {
    match ended {
        Ended::Exited(status) => ExitCode::from(status as u8),
        Ended::Killed(signal) => {
            print::error(&format!("the recorded command was ended by signal {signal}"));
            ExitCode::from((128 + signal) as u8)
        }
    }
}
