//! A recording of processes that run already, from start to end.
use super::seize::{self, seize};
use super::tree;
use super::watch::Watch;
use crate::args::RecordArgs;
use crate::linux::finish::{Ending, SPILL, finish};
use crate::linux::raw::{NO_CPU, Raw, RawKind};
use crate::linux::recording::Recording;
use crate::linux::sources::Source;
use crate::linux::sources::perf::PerfFaults;
use crate::linux::sources::spill::{Notes, Spill};
use crate::linux::sources::tracefs::Instance;
use crate::linux::stops::supervisor::Missed;
use crate::linux::stops::tracer::Tracer;
use crate::linux::system::stop_cost::StopCost;
use crate::linux::system::{pagemap, signals, sys};
use crate::linux::target::Target;
use crate::linux::write::FirstProcess;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure, Time};
use ptarmigan_trace::{Method, Unseen};
use std::process::ExitCode;
use std::time::Instant;

/// Events of programs that start without a stop.
const WITHOUT_STOPS: u16 = Unseen::EXEC_AREAS | Unseen::ARG_PAGES | Unseen::TRUTH;

/// The price of attaching without tracepoints, which is said before it is paid.
const STOPS: &str = "the processes stop at each system call: while they are recorded, expect a fraction of \
                     their speed (see `ptarmigan docs recording`, *Cost*); --method tracefs, as root, does not stop them";

/// Checks that a recording can attach, before it begins.
///
/// # Errors
/// If a process cannot be attached to, or the kernel does not tell which of its pages are present.
pub(crate) fn check(args: &RecordArgs) -> Result<(), Failure> {
    tree::check(&args.pid)?;
    if pagemap::works() {
        return Ok(());
    }
    Err(Failure::new("attaching needs Linux 6.7 or later (PAGEMAP_SCAN), or access to /proc/PID/pagemap"))
}

/// Records, in the process that does it.
pub(crate) fn record(args: &RecordArgs, target: &Target, method: Method) -> Result<ExitCode, Failure> {
    let spill = Spill::new(&target.beside()).context(target.problem())?;
    let notes = Notes::new(&spill).context(SPILL)?;
    let name = args.pid.first().and_then(|&pid| tree::name(pid)).unwrap_or_else(|| "trace".to_owned());
    let (recording, notes, all_ended, missed) = match method {
        Method::Tracefs => by_tracepoints(args, spill, notes)?,
        _ => by_stops(args, spill, notes)?,
    };
    // Nobody waits for the recording.
    let Some(notes) = notes else { return Ok(ExitCode::FAILURE) };
    let early = match (all_ended, args.duration.filter(|_| signals::count() == 0)) {
        (true, _) => None,
        (false, Some(time)) => Some(format!("after {}", Time::from(time))),
        (false, None) => Some("a signal asked for it".to_owned()),
    };
    let numbers: Vec<String> = args.pid.iter().map(i32::to_string).collect();
    let shown = format!("process {}", numbers.join(", "));
    let ending = Ending { first: FirstProcess::Attached(args.pid.clone()), name, shown, missed, early };
    finish(args, target, recording, notes, ending)?;
    Ok(ExitCode::SUCCESS)
}

/// The recording, its events unless it was abandoned, and whether all processes have ended.
type Followed = (Recording, Option<Notes>, bool, Missed);

fn by_tracepoints(args: &RecordArgs, spill: Spill, mut notes: Notes) -> Result<Followed, Failure> {
    signals::hold();
    let instance = Instance::new(&spill)?;
    let mut recording = Recording::new(Method::Tracefs, Source::Tracefs(instance), spill, WITHOUT_STOPS)
        .with_mappings(args.symbols)
        .attached(args.duration);
    let (all_ended, missed) = Watch::new(&args.pid, &mut notes, &mut recording).follow(args.duration)?;
    let recording = recording.take();
    let notes = (!signals::orphaned()).then_some(notes);
    Ok((recording, notes, all_ended, missed))
}

fn by_stops(args: &RecordArgs, spill: Spill, mut notes: Notes) -> Result<Followed, Failure> {
    let cost = StopCost::measure(None);
    let seized = seize(&args.pid)?;
    print::error(STOPS);
    let faults = PerfFaults::start(&seized.tasks(), &spill, args.symbols).inspect_err(|_| seized.free())?;
    let mut recording = Recording::new(Method::Perf, Source::Perf(faults), spill, 0).attached(args.duration);
    seized.read(&args.pid, &mut notes, &recording)?;
    let first = args.pid.first().copied().unwrap_or_default();
    notes.event(&Raw { time: sys::now(), cpu: NO_CPU, pid: first, what: RawKind::StopCost(cost) });
    let until = args.duration.and_then(|duration| Instant::now().checked_add(duration));
    let (stopped, waiting) = (seized.stopped, seized.waiting);
    let tracer = Tracer::attached(notes, stopped, &waiting, cost, &mut recording);
    let mut tracer = tracer.with_callers(args.symbols);
    let ended = tracer.follow(until)?;
    tracer.detach(seize::last_look);
    let (notes, narrow) = tracer.take();
    drop(tracer);
    let missed = Missed { narrow, other_tracer: seized.refused };
    Ok((recording.take(), notes, ended.is_some(), missed))
}
