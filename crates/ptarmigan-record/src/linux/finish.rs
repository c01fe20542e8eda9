//! The end of a recording: from the temporary files to the trace.
use super::recording::Recording;
use super::settings;
use super::sources::merge::Stream;
use super::sources::spill::{Notes, NotesRead};
use super::stops::supervisor::Missed;
use super::system::proc;
use super::target::Target;
use super::write::{Deliveries, FirstProcess, write};
use crate::args::RecordArgs;
use ptarmigan_term::{Context, Failure};
use ptarmigan_trace::{Header, Unseen};

/// What a message calls the temporary files.
pub(super) const SPILL: &str = "the temporary files beside the output";

/// How a recording ended, and of what.
pub(super) struct Ending {
    pub(super) first: FirstProcess,
    /// The name of the workload if no program has more tables than the first.
    pub(super) name: String,
    /// The recorded command or processes, in messages.
    pub(super) shown: String,
    pub(super) missed: Missed,
    /// Why the recording ended before the command or the processes did.
    pub(super) early: Option<String>,
}

/// Ends the recording and writes the trace. A recording that was abandoned leaves no file.
pub(super) fn finish(
    args: &RecordArgs,
    target: &Target,
    recording: Recording,
    notes: Notes,
    ending: Ending,
) -> Result<(), Failure> {
    let Recording { method, mut unseen, cpus, kept, mappings, .. } = recording;
    let Some((source, spill)) = kept else { return Ok(()) };
    let mut finished = source.finish(&spill)?;
    if let Some(mappings) = mappings {
        finished.streams.extend(mappings.finish(&spill)?);
    }
    let NotesRead { events, execs, reads, largest, failed } = notes.read().context(SPILL)?;
    finished.streams.push(Stream { events: Box::new(events), cut: failed.is_some() });
    finished.failed = finished.failed.or(failed);
    let Ending { first, name, shown, missed, early } = ending;
    let cut = finished.failed.as_ref().map(ToString::to_string);
    let cut = cut.or_else(|| spill.room.ended().map(|_| "no room on the disk".to_owned())).or(early);
    for (happened, bit) in [
        (missed.other_tracer > 0, Unseen::OTHER_TRACER),
        (missed.narrow > 0, Unseen::PROGRAMS_32),
        (cut.is_some(), Unseen::END),
    ] {
        unseen.0 |= if happened { bit } else { 0 };
    }
    let name = args.name.clone().unwrap_or_else(|| largest.name(&name));
    let mut header = Header::new(&name, cpus, method);
    (header.unseen, header.huge) = (unseen, proc::huge_pages());
    // A process that ran already has an environment of its own.
    let tunables = match first {
        FirstProcess::Command(_) => std::env::var("GLIBC_TUNABLES").ok(),
        FirstProcess::Attached(_) => None,
    };
    let deliveries = Deliveries {
        first,
        finished,
        execs,
        reads,
        settings: settings::read(tunables.as_deref()),
        names: args.names,
        symbols: args.symbols,
        shown,
        cut,
    };
    write(target, args.level, &header, &spill, deliveries)
}
