//! Writes the times of the recorded program's calls and faults.
use super::fact::{Better, Compare, Fact};
use super::html::{HtmlTable, note, panels, said, section};
use crate::report::collect::TraceFigures;
use ptarmigan_replay::account::{Call, CallTime, Family, Times, TimesReport};
use ptarmigan_term::draw::escape;
use ptarmigan_term::{Count, Time};

/// Returns the line that sums up the times, with its remarks. Empty if the recording has no times.
pub(super) fn lead(one: &TraceFigures, line: Option<&str>) -> String {
    let (Some(TimesReport { remarks, .. }), Some(line)) = (&one.times, line) else { return String::new() };
    let remarks: String =
        remarks.iter().map(|remark| format!("<p class=\"note\">{}</p>\n", escape(remark))).collect();
    format!("<p class=\"lead\"><b>{}</b></p>\n{remarks}", escape(line))
}

/// Returns the times as figures, which are empty if the recording does not have them.
pub(super) fn rows(one: &TraceFigures) -> Vec<Fact> {
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
    let time = Time::from_micros(micros as f64);
    times.is_measured().then(|| (time.to_string(), time.as_secs()))
}

/// Returns the part about calls by kind; empty if no trace has times.
pub(super) fn by_call(all: &[TraceFigures]) -> String {
    let made = |one: &TraceFigures| -> Vec<(Call, CallTime)> {
        one.times.as_ref().map(|report| report.all.dearest()).unwrap_or_default()
    };
    if all.iter().all(|one| made(one).is_empty()) {
        return String::new();
    }
    let first = |one: &TraceFigures| match made(one).first() {
        Some((call, time)) => format!("{} {} in {}", Count(time.calls), call.name(), of(time.nanos)),
        None => "not recorded".to_owned(),
    };
    let heading = format!("Calls: {}", said(all, first));
    let caption = "The calls that change address spaces, by kind, the dearest first: the sum of their times and the \
                   longest of them. The CPU time is that in which they ran; by the clock the waits are in it, too.";
    let content = panels(all, |one| {
        let made = made(one);
        if made.is_empty() {
            return note("This recording has no times of calls.");
        }
        let headings = ["call", "calls", "CPU time", "longest", "by the clock", "longest by the clock"];
        let mut table = HtmlTable::new("wrap", &headings);
        for (call, time) in made {
            table.row([
                call.name().to_owned(),
                Count(time.calls).to_string(),
                of(time.nanos),
                of(time.longest),
                of(time.by_clock()),
                of(time.longest_by_clock),
            ]);
        }
        table.finish()
    });
    section(all, "calls", &heading, caption, &content)
}

fn of(nanos: u64) -> String {
    Time::from_nanos(nanos as f64).to_string()
}

fn calls(times: &Times, family: Family) -> Option<(String, f64)> {
    let time = times.family(family);
    let value = || format!("{} in {}", Time::from_secs(time.seconds()), Count(time.calls));
    (time.calls > 0).then(|| (value(), time.seconds()))
}

fn faults(times: &Times) -> Option<(String, f64)> {
    let time = Time::from_micros(times.faults_about()? as f64);
    Some((format!("{time} in {}", Count(times.faults)), time.as_secs()))
}
