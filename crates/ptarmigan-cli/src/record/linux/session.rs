//! One recording, from start to end.
use super::allowed;
use super::keeper::{self, Link, Role};
use super::sources::merge::Stream;
use super::sources::perf::PerfFaults;
use super::sources::spill::{Notes, NotesRead, Spill};
use super::sources::tracefs::Instance;
use super::stops::calls;
use super::stops::start::{self, AtCalls, Start, Started};
use super::stops::supervisor::{self, Missed, Supervisor};
use super::stops::tracer::{self, Ended, Surroundings, Tracer};
use super::system::notify::Listener;
use super::system::{pagemap, proc, signals, sys};
use super::target::{self, Target};
use super::write::{Deliveries, write};
use crate::record::args::{MethodChoice, RecordArgs};
use indicatif::ProgressBar;
use ptarmigan_replay::terminal::{bar, print};
use ptarmigan_replay::{Context, Failure};
use ptarmigan_trace::{Header, Method, Unseen};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// The source of the faults and, with tracefs, of all other events.
enum Source {
    Tracefs(Instance),
    Perf(PerfFaults),
}

pub(in crate::record) fn run(args: &RecordArgs) -> Result<ExitCode, Failure> {
    let target = Target::new(args.output.as_deref())?;
    let method = choose(args.method)?;
    refuse_other_files(args)?;
    match keeper::split().context("starting the recorder")? {
        Role::Waited(status) => Ok(status),
        Role::Recorder(link) => record(args, &target, method, link),
    }
}

/// Records, in the process that does it.
fn record(args: &RecordArgs, target: &Target, method: Method, link: Link) -> Result<ExitCode, Failure> {
    let (at_calls, ends): (_, &[i64]) = match method {
        Method::Tracefs => (AtCalls::Ask, &supervisor::CALLS),
        _ => (AtCalls::Stop, &tracer::STOPS),
    };
    let watched = [ends, &calls::LOOKED_AT].concat();
    let start =
        Start::new(&args.command, at_calls, &watched, !allowed::may_filter()).context("the command")?;
    let spill = Spill::new(&target.beside()).context(target.problem())?;
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
    let cpus = cpus(&source);
    let mut unseen = unseen(&source);

    signals::pass_to(started.pid);
    started.release().context("starting the command")?;
    let mut recording =
        Recording { method, unseen, progress: recording_progress(), kept: Some((source, spill)) };
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
    let NotesRead { events, execs, largest, failed } = notes.read().context(SPILL)?;
    finished.streams.push(Stream { events: Box::new(events), cut: failed.is_some() });
    finished.failed = finished.failed.or(failed);
    for (happened, bit) in [
        (missed.other_tracer > 0, Unseen::OTHER_TRACER),
        (missed.narrow > 0, Unseen::PROGRAMS_32),
        (finished.failed.is_some() || spill.room.ended().is_some(), Unseen::END),
    ] {
        unseen.0 |= if happened { bit } else { 0 };
    }
    let name = args.name.clone().unwrap_or_else(|| largest.name(&file_name(&args.command[0])));
    let mut header = Header::new(&name, cpus, method);
    (header.unseen, header.huge) = (unseen, proc::huge_pages());
    let deliveries = Deliveries { root: started.pid, finished, execs };
    write(target, args.level, &header, &spill, deliveries, &args.program())?;
    Ok(status(ended))
}

const SPILL: &str = "the temporary files beside the output";

/// A recording in progress.
struct Recording {
    method: Method,
    unseen: Unseen,
    progress: Option<ProgressBar>,
    /// Its events, until it is abandoned.
    kept: Option<(Source, Spill)>,
}

impl Surroundings for Recording {
    fn begun(&mut self) {
        announce(self.method, self.unseen);
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

/// Refuses a command that is a trace or a 32-bit program.
fn refuse_other_files(args: &RecordArgs) -> Result<(), Failure> {
    let (command, shown) = (&args.command[0], args.program());
    if target::is_trace(Path::new(command)) {
        return Err(Failure::new(format!(
            "{shown}: a trace, not a program; print it with: ptarmigan inspect {shown}"
        )));
    }
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

/// Returns the last part of a path.
fn file_name(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn announce(method: Method, unseen: Unseen) {
    let (method, unseen) = (method.name(), unseen.names());
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

fn status(ended: Ended) -> ExitCode {
    match ended {
        Ended::Exited(status) => ExitCode::from(status as u8),
        Ended::Killed(signal) => {
            print::error(&format!("the recorded command was ended by signal {signal}"));
            ExitCode::from((128 + signal) as u8)
        }
    }
}
