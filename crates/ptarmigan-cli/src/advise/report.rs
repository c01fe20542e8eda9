//! The result. Serialised, it is the JSON document.
use super::advice::{Advice, Rejected, To, Verdict};
use super::causes::{Causes, WorkCause};
use super::check::Check;
use super::figures::Figures;
use super::rank;
use ptarmigan_replay::Trace;
use ptarmigan_replay::account::{Programs, TimesReport};
use ptarmigan_trace::{Arch, Method, Unseen};
use serde::Serialize;

/// The number of the schema.
const SCHEMA: u32 = 1;

/// The document.
#[derive(Serialize)]
pub struct AdviceDocument {
    /// The number of the schema.
    pub schema: u32,
    /// Each trace.
    pub traces: Vec<TraceReport>,
}

impl Default for AdviceDocument {
    fn default() -> Self {
        AdviceDocument { schema: SCHEMA, traces: Vec::new() }
    }
}

/// One trace.
#[derive(Serialize)]
pub struct TraceReport {
    /// Name of the workload.
    pub name: String,
    /// Recording method.
    pub method: &'static str,
    /// Number of tasks that are processes, not threads.
    pub processes: u64,
    /// Those of them that ran before the recording.
    pub running: u64,
    /// Number of events.
    pub events: u64,
    /// Events that the recorder lost.
    pub lost: u64,
    /// How many of the programs that ran are in the recording.
    pub programs: Programs,
    /// The times of calls and processes, if they were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesReport>,
    /// Reasons to trust the advice less, as sentences.
    pub notes: Vec<String>,
    /// The replay as recorded.
    pub whole: Figures,
    /// The advice, ordered by the time that it saves.
    pub advice: Vec<Advice>,
    /// Advice that was considered and rejected.
    pub rejected: Vec<Rejected>,
    /// The largest causes of page-table work.
    pub causes: Vec<WorkCause>,
    /// Whether a cause without advice takes more time than the advice saves.
    #[serde(skip)]
    pub leaves_more: bool,
    /// Whether page tables take hardly any of the CPU time.
    #[serde(skip)]
    pub hardly_any: bool,
    /// The comparison with a second recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

impl TraceReport {
    /// Puts the result for a trace together. `samples` are the counts of Linux that the replay was
    /// compared with, and those that were equal.
    pub fn new(
        trace: &Trace,
        whole: Figures,
        samples: (u64, u64),
        verdicts: Vec<Verdict>,
        causes: Causes,
    ) -> Self {
        let (mut advice, mut rejected) = (Vec::new(), Vec::new());
        for verdict in verdicts {
            match verdict {
                Verdict::Advised(one) => advice.push(*one),
                Verdict::Not(one) => rejected.push(one),
            }
        }
        if causes.hardly_any {
            advice.retain(|one| one.to != To::Machine);
        }
        rank::rank(&mut advice, &mut rejected, &causes);
        TraceReport {
            name: trace.name.clone(),
            method: trace.header.method.name(),
            processes: trace.processes,
            running: trace.account.running(),
            events: trace.events,
            lost: trace.lost,
            programs: trace.coverage(),
            times: trace.account.report(),
            notes: notes(trace, samples),
            whole,
            leaves_more: rank::leaves_more(&advice, &causes),
            hardly_any: causes.hardly_any,
            advice,
            rejected,
            causes: causes.told(),
            check: None,
        }
    }
}

/// Returns the reasons to trust the advice less.
fn notes(trace: &Trace, (checked, equal): (u64, u64)) -> Vec<String> {
    let header = &trace.header;
    let mut notes = Vec::new();
    if trace.lost > 0 {
        notes.push(format!("{} events were lost: the figures are too small.", trace.lost));
    }
    if let Some(part) = trace.coverage().part() {
        notes.push(format!("{part} recorded: nothing is known of the others."));
    }
    if header.unseen.has(Unseen::END) {
        notes.push("The recording ended before the command did.".to_owned());
    }
    if header.arch != Arch::X86_64 || header.page_shift != 12 {
        notes.push(format!(
            "Recorded on {} with pages of {} bytes, and replayed on x86-64 with pages of 4096 bytes, one for \
             one.",
            header.arch.name(),
            1_u64 << header.page_shift
        ));
    }
    match header.method {
        Method::Tracefs => {
            let missing = Unseen(header.unseen.0 & (Unseen::OTHER_TRACER | Unseen::PROGRAMS_32));
            if missing.0 != 0 {
                notes.push(format!("Not recorded: {}.", missing.names().join(", ")));
            }
        }
        Method::Synthetic => notes.push("This trace was made, not recorded.".to_owned()),
        _ => notes.push(format!(
            "Recorded with {}, which does not see {}.",
            header.method.name(),
            header.unseen.names().join(", ")
        )),
    }
    if checked == 0 {
        notes.push("Linux's own count of tables is not in the trace to compare with.".to_owned());
    } else if equal < checked {
        notes.push(format!("The replay has as many tables as Linux in {equal} of {checked} samples only."));
    }
    notes
}
