//! Writes what the recorded program's calls and faults took.
use super::fact::{Better, Compare, Fact};
use crate::report::collect::Figures;
use crate::report::draw::escape;
use crate::report::words::count;
use ptarmigan_replay::account::{Family, Times, TimesReport, seconds_of};

/// Returns the line that sums up the times, with its remarks. Empty if the recording has no times.
pub(super) fn lead(one: &Figures, line: Option<&str>) -> String {
    let (Some(TimesReport { remarks, .. }), Some(line)) = (&one.times, line) else { return String::new() };
    let remarks: String =
        remarks.iter().map(|remark| format!("<p class=\"note\">{}</p>\n", escape(remark))).collect();
    format!("<p class=\"lead\"><b>{}</b></p>\n{remarks}", escape(line))
}

/// Returns the times as figures, which are empty if the recording does not have them.
pub(super) fn rows(one: &Figures) -> Vec<Fact> {
    let times = one.times.as_ref().map(|report| &report.all);
    let row = |what, time: Option<(String, f64)>| {
        let (value, number) =
            time.map_or((String::new(), Compare::No), |(value, seconds)| (value, Compare::Ratio(seconds)));
        Fact { what, value, number, better: Better::Less, absent: "not recorded" }
    };
    // A recording with times has all calls of the families.
    let none = |fact: Fact, absent| if times.is_some() { Fact { absent, ..fact } } else { fact };
    let mut rows = vec![
        row("CPU time", times.and_then(|times| cpu(times, times.cpu()))),
        row("CPU time in the kernel", times.and_then(|times| cpu(times, times.kernel))),
    ];
    for (what, family) in [
        ("forks", Family::Forks),
        ("vforks, with the child up to its exec", Family::Vforks),
        ("execs", Family::Execs),
        ("exits", Family::Exits),
        ("mmap and the like", Family::Mappings),
    ] {
        rows.push(none(row(what, times.and_then(|times| calls(times, family))), "none"));
    }
    rows.push(none(row("faults (about)", times.and_then(faults)), "too little CPU time"));
    rows
}

fn cpu(times: &Times, micros: u64) -> Option<(String, f64)> {
    let seconds = micros as f64 / 1e6;
    (times.ended > 0).then(|| (seconds_of(seconds), seconds))
}

fn calls(times: &Times, family: Family) -> Option<(String, f64)> {
    let time = times.family(family);
    let value = || format!("{} in {}", seconds_of(time.seconds()), count(time.calls));
    (time.calls > 0).then(|| (value(), time.seconds()))
}

fn faults(times: &Times) -> Option<(String, f64)> {
    let seconds = times.faults_about()? as f64 / 1e6;
    Some((format!("{} in {}", seconds_of(seconds), count(times.faults)), seconds))
}
