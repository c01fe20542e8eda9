//! Prints the contents of a trace as text.
use super::count::Inspection;
use super::machine;
use ptarmigan_replay::account::Times;
use ptarmigan_replay::flushes::LinuxFlushes;
use ptarmigan_term::words::{several, several_were};
use ptarmigan_term::wrap::{self, STAYS};
use ptarmigan_term::{Bytes, Count, Mean, Time};
use std::fmt::Write;

/// The width of the text where the terminal has room for it.
pub(super) const COLUMNS: usize = 80;
/// The column that values begin in, behind their names.
const VALUES: usize = 13;
/// On a terminal of fewer columns a value stands below its name.
const BESIDE: usize = 36;

/// The columns that the table of calls takes.
const TABLE: usize = VALUES + 63;

/// Lines of names and values. Each value is broken between words.
struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    /// Adds a value, or one that continues the last if the name is empty.
    fn add(&mut self, name: &str, value: &str) {
        let beside = self.width >= BESIDE;
        let indent = if beside { VALUES } else { 2 };
        let rest = " ".repeat(indent);
        let first = if beside { format!("{name:<VALUES$}") } else { rest.clone() };
        if !beside && !name.is_empty() {
            let _ = writeln!(self.text, "{name}");
        }
        for line in wrap::lines(value, self.width, &first, &rest) {
            let _ = writeln!(self.text, "{line}");
        }
    }

    /// Adds the times of calls by kind, the dearest first.
    fn calls(&mut self, times: &Times) {
        let table = self.width >= TABLE;
        let of = |nanos: u64| Time::from_nanos(nanos as f64).to_string();
        for (n, (call, time)) in times.dearest().into_iter().enumerate() {
            let (calls, name) = (Count(time.calls).to_string(), call.name());
            let [cpu, longest, clock, longest_by_clock] =
                [time.nanos, time.longest, time.by_clock(), time.longest_by_clock].map(of);
            if !table {
                let text = format!(
                    "{calls} {name} in {cpu}, longest {longest}; by the clock {clock}, longest \
                     {longest_by_clock}"
                );
                self.add(if n == 0 { "calls" } else { "" }, &text);
                continue;
            }
            let row = |cells: [&str; 6]| {
                let [calls, name, cpu, longest, clock, longest_by_clock] = cells;
                format!("{calls:>10} {name:<9}{cpu:>9}{longest:>10}{clock:>14}{longest_by_clock:>10}")
                    .replace(' ', &STAYS.to_string())
            };
            if n == 0 {
                self.add("calls", &row(["", "", "CPU time", "longest", "by the clock", "longest"]));
            }
            self.add("", &row([&calls, name, &cpu, &longest, &clock, &longest_by_clock]));
        }
    }

    /// Adds cells, as many on a line as fit.
    fn cells(&mut self, cells: &[String]) {
        let room = self.width.saturating_sub(if self.width >= BESIDE { VALUES } else { 2 });
        let widest = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0).max(20);
        for row in cells.chunks(((room + 1) / (widest + 1)).clamp(1, 3)) {
            self.add("", &row.iter().map(|cell| format!("{cell:<widest$} ")).collect::<String>());
        }
    }
}

/// Formats the report as text with lines of at most `width` columns, except for words that are
/// longer.
pub(super) fn table(r: &Inspection, width: usize) -> String {
    let mut t = Lines { text: String::new(), width };
    let n = several;
    if let Some(times) = &r.times {
        t.add("time", times.line.as_deref().unwrap_or_default());
        times.remarks.iter().for_each(|remark| t.add("", remark));
        t.calls(&times.all);
    }
    t.add("name", &r.name);
    let cpus = n(r.cpus.into(), "CPU");
    t.add("recorded", &format!("with {} on {}, {cpus}, pages of {}", r.method, r.arch, Bytes(r.page_bytes)));
    if let Some(machine) = machine::line(&r.settings) {
        t.add("machine", &machine);
    }
    for (i, what) in r.unseen.iter().enumerate() {
        t.add(if i == 0 { "not seen" } else { "" }, what);
    }
    let threads = n(r.threads, "thread");
    t.add("tasks", &format!("{} ({}, {threads})", Count(r.tasks.into()), n(r.processes, "process")));
    t.add("", &format!("{}, {}, {}", n(r.forks, "fork"), n(r.vforks, "vfork"), n(r.execs, "exec")));
    let running = &r.running;
    if running.processes > 0 {
        let threads = match running.threads {
            0 => String::new(),
            threads => format!(" with {}", n(threads, "further thread")),
        };
        let were = several_were(running.processes, "process");
        t.add("attached", &format!("{were} running already{threads};"));
        t.add("", &format!("{} their state, and are counted nowhere else", give(running.events)));
    }
    if let Some(part) = r.programs.part() {
        t.add("programs", &format!("{part} recorded; the others ended or changed before they were read,"));
        t.add("", "ran under another tracer or have 32 bits");
        if let Some(named) = machine::named(&r.unread) {
            t.add("", &named);
        }
    }
    let f = &r.faults;
    let (user, kernel) = (Count(f.user), Count(f.kernel));
    t.add("faults", &format!("{} ({user} user, {kernel} kernel)", Count(f.user + f.kernel)));
    if r.access_seen {
        let [read, write, fetch, present] = [f.read, f.write, f.exec, f.present].map(Count);
        t.add("", &format!("{read} read, {write} write, {fetch} fetch; {present} on present pages"));
    }
    if let Some(s) = &r.touched {
        let spaces = if r.spaces == 1 {
            "in one address space:".to_owned()
        } else {
            format!("in each of {}, mean:", n(r.spaces, "address space"))
        };
        t.add("touched", &spaces);
        t.add(
            "",
            &format!(
                "{} pages, {:.2} x 2 MiB, {:.2} x 1 GiB, {:.2} x 512 GiB",
                Mean(s.pages),
                Mean(s.pte_regions),
                Mean(s.pmd_regions),
                Mean(s.pud_regions)
            ),
        );
    } else {
        t.add("touched", "not counted: too many pages");
    }
    if r.at_stops.runs > 0 {
        t.add(
            "at stops",
            &format!("{} found in {} that", n(r.at_stops.pages, "page"), n(r.at_stops.runs, "run")),
        );
        t.add("", "no event explains, or that a call may have freed");
    }
    let s = &r.samples;
    t.add("VmPTE", &format!("{} at exit, {} before exec", n(s.exit, "sample"), Count(s.exec)));
    if running.samples > 0 {
        t.add("", &format!("{} of processes that were running already", Count(running.samples)));
    }
    t.add("", &format!("mean {:.2} tables, max {}", Mean(s.mean), Count(s.max.into())));
    if let Some(equal) = s.equal_to_regions {
        t.add("", &format!("{} equal to the number of regions touched", Count(equal)));
    }
    t.add("events", &format!("{}, lost {}", Count(r.events), Count(r.lost)));
    let kinds = r.by_kind.iter().filter(|(_, n)| **n > 0);
    t.cells(&kinds.map(|(name, n)| format!("{name:<11} {}", Count(*n))).collect::<Vec<_>>());
    if let Some(flushes) = &r.flushes {
        add_flushes(&mut t, flushes);
    }
    if !r.advice.is_empty() {
        let advice: Vec<String> =
            r.advice.iter().map(|(a, n)| format!("{}{STAYS}{}", advice_name(*a), Count(*n))).collect();
        t.add("madvise", &advice.join(", "));
    }
    t.add(
        "file",
        &format!(
            "{}, {:.3} bytes per event ({:.2} before compression)",
            Bytes(r.bytes),
            r.bytes_per_event,
            r.row_bytes_per_event
        ),
    );
    t.text
}

/// Adds Linux's flushes, and the requests between CPUs.
fn add_flushes(t: &mut Lines, flushes: &LinuxFlushes) {
    let LinuxFlushes { carried_out, requested, for_others, wrong_cpu, at_switches, .. } = flushes;
    if carried_out.total() + requested.total() + for_others.total() + wrong_cpu + at_switches > 0 {
        let [page, range, full] = carried_out.by_size().map(Count);
        let carried_out = Count(carried_out.total());
        t.add("flushes", &format!("{carried_out} ({page} of one page, {range} of a range, {full} full)"));
        let (for_others, wrong_cpu) = (Count(for_others.total()), Count(*wrong_cpu));
        let requested = several(requested.total(), "request");
        t.add(
            "",
            &format!("{requested} to other CPUs, {for_others} for others, {wrong_cpu} to the wrong CPU"),
        );
    }
    flushes.remarks().iter().for_each(|remark| t.add("", remark));
}

fn give(events: u64) -> String {
    format!("{} {}", several(events, "event"), if events == 1 { "gives" } else { "give" })
}

fn advice_name(advice: u16) -> String {
    let names = [
        (0, "normal"),
        (1, "random"),
        (2, "sequential"),
        (3, "willneed"),
        (4, "dontneed"),
        (8, "free"),
        (14, "hugepage"),
        (15, "nohugepage"),
        (16, "dontdump"),
        (18, "wipeonfork"),
        (20, "cold"),
        (21, "pageout"),
        (22, "populate"),
        (23, "populate-write"),
        (25, "collapse"),
    ];
    names
        .iter()
        .find(|(a, _)| *a == advice)
        .map_or_else(|| format!("advice-{advice}"), |(_, n)| (*n).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(width: usize, fill: impl FnOnce(&mut Lines)) -> String {
        let mut lines = Lines { text: String::new(), width };
        fill(&mut lines);
        lines.text
    }

    #[test]
    fn a_sentence_wraps_between_words_with_aligned_lines() {
        let sentence =
            |t: &mut Lines| t.add("recorded", "with tracefs on x86_64, 2 CPUs, pages of 4096 bytes");
        assert_eq!(
            lines(40, sentence),
            "recorded     with tracefs on x86_64, 2\n             CPUs, pages of 4096 bytes\n"
        );
        assert_eq!(
            lines(20, sentence),
            "recorded\n  with tracefs on\n  x86_64, 2 CPUs,\n  pages of 4096\n  bytes\n"
        );
    }

    #[test]
    fn cells_stand_in_columns_as_far_as_they_fit() {
        let cells = ["brk 1", "fault 2", "mmap 3", "truth 4"].map(str::to_owned);
        let rows = |width| lines(width, |t| t.cells(&cells)).lines().count();
        assert_eq!([80, 60, 40, 20].map(rows), [2, 2, 4, 4]);
        let wide = ["fault       1,040,444", "idle        1"].map(str::to_owned);
        assert!(lines(80, |t| t.cells(&wide)).contains("1,040,444 idle"), "a full cell ends, too");
    }
}
