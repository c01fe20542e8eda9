//! Collects warnings: facts that a reader must know before trusting a figure.
use super::RecordingFacts;
use crate::report::words::share;
use ptarmigan_replay::flushes::LinuxFlushes;
use ptarmigan_term::Count;

/// Returns a sentence for each thing that makes figures worth less.
pub(super) fn of(facts: &RecordingFacts, flushes: Option<&LinuxFlushes>) -> Vec<String> {
    let mut warnings = Vec::new();
    if facts.lost > 0 {
        warnings.push(format!(
            "Lossy recording: the kernel dropped {} events for lack of room, {} of all. Tables of these \
             events are missing or stay too long, so every figure is a guess.",
            Count(facts.lost),
            share(facts.lost, facts.events + facts.lost)
        ));
    }
    if let Some(part) = facts.programs.part() {
        warnings.push(format!(
            "Incomplete recording: {part}. The others ended or changed before they were read, ran under \
             another tracer or have 32 bits. No figure contains them."
        ));
    }
    let truth = &facts.truth;
    if truth.equal < truth.checked {
        warnings.push(format!(
            "The replay differs from Linux: {} of {} samples of VmPTE are not equal ({}). Tables are missing \
             or too many in these processes.",
            Count(truth.checked - truth.equal),
            Count(truth.checked),
            share(truth.checked - truth.equal, truth.checked)
        ));
    }
    if truth.checked == 0 {
        warnings.push(
            "Unchecked: the recording has no samples of VmPTE, so nothing says that Linux had as many tables."
                .to_owned(),
        );
    }
    if truth.tables_from_stops > 0 {
        warnings.push(format!(
            "{} tables are known from pages that were found at stops, not from an event that made them.",
            Count(truth.tables_from_stops)
        ));
    }
    if truth.ends_unknown > 0 {
        warnings.push(format!(
            "{} mappings of files were locked by an earlier mlockall. No event tells where the files end, so \
             tables beyond their ends may be too many.",
            Count(truth.ends_unknown)
        ));
    }
    if !facts.unseen.is_empty() {
        warnings.push(format!("The recording does not contain: {}.", facts.unseen.join("; ")));
    }
    if facts.arch != "x86_64" || facts.page_bytes != 4096 {
        warnings.push(format!(
            "Recorded on {} with pages of {} bytes, replayed on x86-64 with pages of 4096 bytes, one for one.",
            facts.arch, facts.page_bytes
        ));
    }
    if facts.odd_calls > 0 {
        warnings.push(format!(
            "{} calls make no sense in the replayed address spaces and were left out.",
            Count(facts.odd_calls)
        ));
    }
    let remarks = flushes.map(LinuxFlushes::remarks).unwrap_or_default();
    warnings.extend(remarks.into_iter().map(|remark| format!("The recording has {remark}.")));
    warnings
}
