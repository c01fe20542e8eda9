//! A recording of a command, from start to end.
//!
//! # The protocol
//!
//! ```text
//!  run       target, method ── keeper::split ──> first: waits
//!  recorder  remove_stale ── Spill, Instance ── fork: the command waits ── begin ── release
//!  follow    events ──> spill ······ the command ends, a signal, --duration
//!  finish    sources stopped ── merged by time ── builder ── trace ── renamed to the target
//! ```
//!
//! 1. All that can fail comes before the command runs: the target, the method, the temporary files,
//!    the instance, the filter.
//! 2. The command is forked and waits until the sources are on, so that its first event is
//!    recorded.
//! 3. It is followed until it ends. If the recording ends earlier, the trace is written while the
//!    command's calls are still answered.
//!
//! # Why
//!
//! A user who waits ten minutes for a command must not learn then that the trace cannot be written.
//! So the target is tried first. Events are written raw and become a trace at the end, because the
//! builder needs them in the order of time, and rings of several CPUs have no common order before.
use super::allowed;
use super::attach;
use super::finish::{Ending, SPILL, finish};
use super::recording::Recording;
use super::sources::Source;
use super::sources::perf::PerfFaults;
use super::sources::spill::{self, Notes, Spill};
use super::sources::tracefs::{self, Instance};
use super::stops::calls;
use super::stops::start::{self, AtCalls, ProgramStart, Started};
use super::stops::supervisor::{self, Missed, Supervisor};
use super::stops::tracer::{self, Ended, Tracer};
use super::system::notify::Listener;
use super::system::stop_cost::StopCost;
use super::system::{proc, signals, sys};
use super::target::{self, Target};
use super::watchdog::{self, Link, Role};
use super::write::FirstProcess;
use crate::args::{MethodChoice, RecordArgs};
use crate::pid;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure, Time};
use ptarmigan_trace::Method;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode, Failure> {
    let target = Target::new(args.output.as_deref())?;
    let attaches = !args.pid.is_empty();
    let method = choose(args.method)?;
    if attaches {
        attach::session::check(args)?
    } else {
        refuse_other_files(args)?
    }
    let recorded = if attaches { "the processes go on" } else { "the command goes on" };
    let role = watchdog::split(recorded, || remove_stale(&target)).context("starting the recorder")?;
    if let Role::Recorder(_) = role {
        remove_stale(&target);
    }
    match role {
        Role::Waited(status) => Ok(status),
        Role::Recorder(_) if attaches => attach::session::record(args, &target, method),
        Role::Recorder(link) => record(args, &target, method, link),
    }
}

/// Removes the files and instances of recorders that are gone.
fn remove_stale(target: &Target) {
    spill::remove_stale(&target.beside());
    tracefs::remove_stale();
}

/// Records, in the process that does it.
fn record(args: &RecordArgs, target: &Target, method: Method, link: Link) -> Result<ExitCode, Failure> {
    let (at_calls, ends): (_, &[i64]) = match method {
        Method::Tracefs => (AtCalls::Ask, &supervisor::CALLS),
        _ => (AtCalls::Stop, &tracer::STOPS),
    };
    let watched = [ends, &calls::LOOKED_AT].concat();
    let start = ProgramStart::new(&args.command, at_calls, &watched, !allowed::may_filter())
        .context("the command")?;
    let spill = Spill::new(&target.beside()).context(target.problem())?;
    let notes = Notes::new(&spill).context(SPILL)?;

    let instance = if at_calls == AtCalls::Ask {
        signals::hold();
        Some(Instance::new(&spill)?)
    } else {
        None
    };
    let stops = at_calls == AtCalls::Stop;
    let cost = if stops { StopCost::measure(Some(&start.filter)) } else { StopCost::default() };
    let started = start.fork().context("starting the command")?;
    let begun = begin(&started, instance, &spill, link, args.symbols).inspect_err(|_| {
        // The process holds files of the instance open, and the instance cannot be removed before
        // it is gone.
        sys::end(started.pid);
    });
    let (source, listener) = match begun {
        Err(failure) => return Err(not_started(&started, &args.program()).unwrap_or(failure)),
        Ok(begun) => begun,
    };
    signals::pass_to(started.pid);
    let mut recording = Recording::new(method, source, spill, 0).with_mappings(args.symbols);
    recording.samples(&[started.pid]);
    started.release().context("starting the command")?;
    let until = args.duration.and_then(|duration| Instant::now().checked_add(duration));
    let mut follower = match &listener {
        Some(listener) => {
            Follower::Supervisor(Box::new(Supervisor::new(notes, listener, started.pid, &mut recording)))
        }
        None => Follower::Tracer(Box::new(
            Tracer::new(notes, started.pid, cost, &mut recording).with_callers(args.symbols),
        )),
    };
    let ended = follower.follow(until)?;
    let (notes, missed) = follower.take();
    let recording = follower.recording().take();
    // The answer comes at the program's start or at its end.
    if ended.is_some()
        && let Some(failure) = not_started(&started, &args.program())
    {
        return Err(failure);
    }
    let early = match (ended, args.duration) {
        (None, Some(time)) => Some(format!("after {}", Time::from(time))),
        _ => None,
    };
    let ending = Ending {
        first: FirstProcess::Command(started.pid),
        name: file_name(&args.command[0]),
        shown: args.program().into_owned(),
        missed,
        early,
    };
    // Without anybody who waits for it, the recording has been dropped.
    let write = || match notes {
        Some(notes) => finish(args, target, recording, notes, ending),
        None => Ok(()),
    };
    let Some(ended) = ended else {
        // The command goes on and has to be answered meanwhile.
        return std::thread::scope(|scope| {
            let written = scope.spawn(write);
            let ended = follower.follow(None);
            let written = written.join().unwrap_or_else(|_| Err(Failure::new("writing the trace failed")));
            written.and(ended).map(|ended| ended.map_or(ExitCode::SUCCESS, status))
        });
    };
    signals::pass_to(0);
    write()?;
    Ok(status(ended))
}

/// The way in which the tasks of a command are followed.
enum Follower<'a> {
    Supervisor(Box<Supervisor<'a, Recording>>),
    Tracer(Box<Tracer<'a, Recording>>),
}

impl Follower<'_> {
    /// Follows all tasks until the last one has ended, or until a time: `None` then.
    fn follow(&mut self, until: Option<Instant>) -> Result<Option<Ended>, Failure> {
        match self {
            Self::Supervisor(supervisor) => supervisor.follow(until),
            Self::Tracer(tracer) => tracer.follow(until),
        }
    }

    /// Takes out the events, and how many programs are not among them.
    fn take(&mut self) -> (Option<Notes>, Missed) {
        match self {
            Self::Supervisor(supervisor) => supervisor.take(),
            Self::Tracer(tracer) => {
                let (notes, narrow) = tracer.take();
                (notes, Missed { narrow, ..Missed::default() })
            }
        }
    }

    fn recording(&mut self) -> &mut Recording {
        match self {
            Self::Supervisor(supervisor) => supervisor.surroundings,
            Self::Tracer(tracer) => tracer.surroundings,
        }
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
    if found.is_none()
        && let Some(option) = pid::instead_of(&args.command)
    {
        let all = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        return Err(Failure::new(format!(
            "{all}: a running process, not a program; attach to it with: ptarmigan record {option}"
        )));
    }
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
    callers: bool,
) -> Result<(Source, Option<Listener>), Failure> {
    let Some(instance) = instance else {
        sys::seize(started.pid).map_err(|e| allowed::untraceable(started.pid, &e))?;
        return Ok((Source::Perf(PerfFaults::start(&[started.pid], spill, callers)?), None));
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

/// Returns the last part of a path.
fn file_name(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
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
