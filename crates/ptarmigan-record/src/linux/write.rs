//! Writes the trace: merges the raw events of all sources, and puts the file in place.
use super::builder::{CallersFound, SideCounts, TraceBuilder};
use super::callers::{Callers, Files};
use super::sources::merge::{Finished, Merge};
use super::sources::spill::{NotedExecs, NotedReads, Spill};
use super::target::Target;
use ptarmigan_term::words::{several, several_were};
use ptarmigan_term::{Bytes, Context, Count, Failure};
use ptarmigan_term::{bar, print};
use ptarmigan_trace::{FaultFlags, Header, Kind, OpeningCounts, Sampled, Settings, Summary, Writer};
use std::fs::{self, File};
use std::io::BufWriter;

/// The first process of a recording.
#[derive(Clone, Debug)]
pub(super) enum FirstProcess {
    /// The command, by its number.
    Command(i32),
    /// The process that is read first, of a recording of these.
    Attached(Vec<i32>),
}

/// The raw events of all sources, before they are merged.
pub(super) struct Deliveries {
    pub(super) first: FirstProcess,
    pub(super) finished: Finished,
    pub(super) execs: NotedExecs,
    pub(super) reads: NotedReads,
    /// The settings of this machine.
    pub(super) settings: Settings,
    /// Whether the names of mapped files are written.
    pub(super) names: bool,
    /// Whether callers are found for the samples.
    pub(super) symbols: bool,
    /// The recorded command or processes, in messages.
    pub(super) shown: String,
    /// Why the recording ended early.
    pub(super) cut: Option<String>,
}

/// Merges the raw events into the trace, puts it in place when it is complete, and says so.
pub(super) fn write(
    target: &Target,
    level: i32,
    header: &Header,
    spill: &Spill,
    deliveries: Deliveries,
) -> Result<(), Failure> {
    let Deliveries {
        first,
        finished: Finished { streams, lost, failed },
        mut execs,
        reads,
        settings,
        names,
        symbols,
        shown,
        cut,
    } = deliveries;
    let problem = target.problem();
    let partial = spill.path("trace");
    let out = BufWriter::new(File::create(&partial).context(&problem)?);
    let mut writer = Writer::new(out, header, level).context(&problem)?;
    settings.iter().try_for_each(|(name, value)| writer.setting(name, value)).context(&problem)?;
    let progress = bar::spinner();
    let mut lookup = |pid, time| execs.after(pid, time);
    let model = match &first {
        FirstProcess::Command(pid) => TraceBuilder::new(writer, *pid, &mut lookup),
        FirstProcess::Attached(named) => TraceBuilder::attached(writer, named, &mut lookup),
    };
    let files = Files::new();
    let callers = symbols.then(|| Callers::new(&files));
    let mut model = model.with_names(names).with_callers(callers).with_reads(reads);
    for (n, raw) in Merge::new(streams, spill.room.ended()).enumerate() {
        if n % (1 << 16) == 0 {
            progress.set_message(format!("writing: {} events", Count(n as u64)));
        }
        model.feed(raw).context(&problem)?;
    }
    progress.finish_and_clear();
    let strange = spill.strange.count();
    let lost = lost + strange;
    if let Some((pid, why)) = model.unread_named() {
        return Err(Failure::new(format!("process {pid} is not in the recording: {why}")));
    }
    if !model.started() {
        let why = failed.map(|e| format!(": {e}")).unwrap_or_default();
        return Err(Failure::new(format!("nothing of {shown} was recorded; {lost} events were lost{why}")));
    }
    let callers = model.callers_found();
    let (mut writer, seen) = model.finish().context(&problem)?;
    writer.set_unrecorded(u32::try_from(seen.unrecorded()).unwrap_or(u32::MAX));
    let (_, summary) = writer.finish(lost + seen.refused).context(&problem)?;
    let file = target.install(&partial, header.name())?;
    let bytes = fs::metadata(&file).map(|m| m.len()).unwrap_or(0);
    print::error(&format!("{}: {}", file.display(), written(&summary, &seen.openings, bytes)));
    if strange > 0 {
        print::error(&format!(
            "{} of the kernel not of the known length or kind; each is counted as lost",
            several_were(strange, "record")
        ));
    }
    gaps(&seen);
    if symbols {
        unknown_callers(&callers);
    }
    if let Some(why) = cut {
        let of = match first {
            FirstProcess::Command(_) => "the command",
            FirstProcess::Attached(_) => "the processes",
        };
        print::error(&format!("the recording ended before {of} did: {why}"));
    }
    Ok(())
}

/// Says of how many samples the caller is not known, and why.
fn unknown_callers(found: &CallersFound) {
    let (all, unknown) = found.samples;
    print::error(&format!("callers of {}, {unknown} of them unknown", several(all, "sample")));
    for (why, files) in &found.unknown {
        let shown = files.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = files.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        print::error(&format!("functions are unknown in {shown}{more}: the file {}", why.why()));
    }
}

/// Says which parts of the command are missing.
fn gaps(seen: &SideCounts) {
    if seen.found > 0 {
        print::error(&format!(
            "{} appeared without a recorded fault (see `ptarmigan docs recording-reference`, *Pages found at \
             stops*); counts are corrected",
            several(seen.found, "page table")
        ));
    }
    if seen.backwards > 0 {
        print::error(&format!(
            "the machine's clock went backwards: {} left out",
            several_were(seen.backwards, "time")
        ));
    }
    for (n, what) in [
        (seen.other_tracer, "under another tracer"),
        (seen.narrow, "32-bit"),
        (seen.blank, "ended at their start"),
        (seen.unread, "ended or changed before they were read"),
    ] {
        if n > 0 {
            print::error(&format!("programs that were not recorded ({what}): {n}"));
        }
    }
}

/// Summarizes the trace, in the numbers that `inspect` counts.
fn written(summary: &Summary, openings: &OpeningCounts, bytes: u64) -> String {
    let faults = summary.count(&Kind::Fault { page: 0, flags: FaultFlags(0) });
    let execs = summary.count(&Kind::Exec { stack_end: 0, arg_pages: 1 });
    let execs = execs - openings.processes - openings.programs;
    let running = openings.processes;
    let running = match running {
        0 => String::new(),
        n => format!(" ({} running already)", several_were(n, "process")),
    };
    let samples = summary.count(&Kind::Truth { tables: 0, at: Sampled::Exit });
    format!(
        "{} ({}), {}{running}, {}, {} of VmPTE, {} lost, {}",
        several(summary.events, "event"),
        several(faults, "fault"),
        several(summary.tasks.into(), "task"),
        several(execs, "exec"),
        several(samples, "sample"),
        Count(summary.lost),
        Bytes(bytes),
    )
}
