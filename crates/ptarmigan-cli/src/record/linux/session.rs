//! One recording, from start to end.
use super::builder::TraceBuilder;
use super::merge::Merge;
use super::output::Output;
use super::perf::PerfFaults;
use super::raw::Raw;
use super::spill::{Notes, Spill};
use super::sys::{self, Start, Started};
use super::tracefs::Instance;
use super::tracer::{self, Ended, Tracer};
use super::{proc, signals, spill};
use crate::error::{Context, Failure};
use crate::record::args::{MethodChoice, RecordArgs};
use crate::{bar, print};
use indicatif::ProgressBar;
use ptarmigan_trace::{Header, Method, Unseen, Writer};
use std::fs::{self, File};
use std::io::{BufWriter, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// The source of the faults and, with tracefs, of all other events.
enum Source {
    Tracefs(Instance),
    Perf(PerfFaults),
}

type Streams = Vec<Box<dyn Iterator<Item = Raw>>>;

pub(in crate::record) fn run(args: &RecordArgs) -> Result<ExitCode, Failure> {
    let output = Output::new(&args.output)?;
    let method = choose(args.method)?;
    let full = method == Method::Perf;
    let mut stops = tracer::STOPS.to_vec();
    if full {
        stops.extend(tracer::MM_STOPS);
    }
    let root = rustix::process::geteuid().is_root();
    let start = Start::new(&args.command, &stops, !root).context("the command")?;
    let spill =
        Spill::new(output.file()).context(format_args!("{}: cannot be written", args.output.display()))?;
    let mut notes = Notes::new(&spill).context("the temporary files beside the output")?;

    signals::catch();
    let instance = if full { None } else { Some(Instance::new(&spill)?) };
    let mut started = start.fork().context("starting the command")?;
    let source = begin(&started, instance, &spill)?;
    let mut header = Header::new(&name(args), cpus(&source), method);
    header.unseen = unseen(&source);
    header.huge = proc::huge_pages();

    signals::pass_to(started.pid);
    started.release().context("starting the command")?;
    let ended = {
        let progress = recording_progress();
        let bytes = match &source {
            Source::Tracefs(i) => i.bytes.clone(),
            Source::Perf(f) => f.bytes.clone(),
        };
        let mut tick = |alive: usize| {
            if let Some(p) = &progress {
                p.set_message(format!(
                    "recording: {alive} tasks alive, {} KiB",
                    bytes.load(Ordering::Relaxed) >> 10
                ));
            }
        };
        let ended = Tracer::new(&mut notes, started.pid, full, &mut tick, || announce(&header)).follow();
        if let Some(p) = progress {
            p.finish_and_clear();
        }
        ended?
    };
    signals::pass_to(0);
    if let Some(failure) = not_started(&mut started, &args.command[0]) {
        return Err(failure);
    }

    let (mut streams, lost): (Streams, u64) = match source {
        Source::Tracefs(i) => {
            let (cpus, lost) = i.finish(&spill)?;
            (cpus.into_iter().map(|c| Box::new(c) as _).collect(), lost)
        }
        Source::Perf(f) => {
            let (cpus, lost) = f.finish(&spill)?;
            (cpus.into_iter().map(|c| Box::new(c) as _).collect(), lost)
        }
    };
    let (events, execs) = notes.read().context("the temporary files beside the output")?;
    streams.push(Box::new(events));
    write(args, &output, &header, &spill, Deliveries { root: started.pid, streams, execs, lost })?;
    Ok(status(ended))
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
        MethodChoice::Auto if Instance::available().is_ok() => Ok(Method::Tracefs),
        MethodChoice::Auto => Ok(Method::Perf),
    }
}

/// Seizes the process that waits to become the command, and starts the events.
fn begin(started: &Started, instance: Option<Instance>, spill: &Spill) -> Result<Source, Failure> {
    let recording = sys::seize(started.pid).context("ptrace is refused").and_then(|()| match &instance {
        Some(instance) => instance.start(started.pid).map(|()| None),
        None => PerfFaults::start(started.pid, spill).map(Some),
    });
    if recording.is_err() {
        // The process holds files of the instance open, and the instance cannot be removed before
        // it is gone.
        sys::kill(started.pid, libc::SIGKILL);
        let _ = sys::wait();
    }
    Ok(match (recording?, instance) {
        (Some(faults), _) => Source::Perf(faults),
        (None, Some(instance)) => Source::Tracefs(instance),
        (None, None) => return Err(Failure::new("no source of events")),
    })
}

fn cpus(source: &Source) -> u16 {
    match source {
        Source::Tracefs(i) => i.cpus(),
        Source::Perf(_) => PerfFaults::cpus(),
    }
}

fn unseen(source: &Source) -> Unseen {
    Unseen(match source {
        Source::Tracefs(i) if i.sees_flushes() => 0,
        Source::Tracefs(_) => Unseen::TLB_FLUSHES,
        Source::Perf(_) => Unseen::KERNEL_FAULTS | Unseen::FAULT_ACCESS | Unseen::TLB_FLUSHES | Unseen::IDLE,
    })
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
fn not_started(started: &mut Started, command: &str) -> Option<Failure> {
    let (step, e) = started.why_failed()?;
    Some(match step {
        sys::STEP_EXEC => {
            let status = if e.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 };
            Failure::new(format!("{command}: {e}")).with_status(status)
        }
        _ => Failure::new(format!("the command cannot be started with a system-call filter: {e}")),
    })
}

/// The raw events of all sources, before they are merged.
struct Deliveries {
    /// The first process.
    root: i32,
    streams: Streams,
    execs: spill::NotedExecs,
    lost: u64,
}

/// Merges the raw events into the trace, and puts it in place when it is complete.
fn write(
    args: &RecordArgs,
    output: &Output,
    header: &Header,
    spill: &Spill,
    deliveries: Deliveries,
) -> Result<(), Failure> {
    let Deliveries { root, streams, mut execs, lost } = deliveries;
    let problem = format!("{}: cannot be written", args.output.display());
    let partial = spill.path("trace");
    let out = BufWriter::new(File::create(&partial).context(&problem)?);
    let writer = Writer::new(out, header, args.level).context(&problem)?;
    let progress = bar::spinner();
    let mut lookup = |pid, time| execs.after(pid, time);
    let mut model = TraceBuilder::new(writer, root, &mut lookup);
    for (n, raw) in Merge::new(streams).enumerate() {
        if n % (1 << 16) == 0 {
            progress.set_message(format!("writing: {n} events"));
        }
        model.feed(raw).context(&problem)?;
    }
    progress.finish_and_clear();
    if !model.started() {
        return Err(Failure::new(format!(
            "nothing of {} was recorded; {lost} events were lost",
            args.command[0]
        )));
    }
    let tasks = model.tasks();
    let (writer, seen) = model.finish().context(&problem)?;
    let (_, summary) = writer.finish(lost + seen.refused).context(&problem)?;
    output.install(&partial)?;
    let bytes = fs::metadata(&args.output).map(|m| m.len()).unwrap_or(0);
    print::error(&format!(
        "{}: {} events ({} faults), {tasks} tasks, {} execs, {} samples of VmPTE, {} lost, {bytes} bytes",
        args.output.display(),
        summary.events,
        seen.faults,
        seen.execs,
        seen.samples,
        summary.lost,
    ));
    if seen.blank_execs > 0 {
        print::error(&format!("the areas of {} execs are unknown", seen.blank_execs));
    }
    Ok(())
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
