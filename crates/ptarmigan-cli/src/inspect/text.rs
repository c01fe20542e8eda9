//! What a trace contains, as text.
use super::count::Inspection;
use std::fmt::Write;

/// Formats the report as text, at most 80 columns wide.
pub(super) fn table(r: &Inspection) -> String {
    let mut t = String::new();
    let mut line = |key: &str, value: String| {
        let _ = writeln!(t, "{key:<12} {value}");
    };
    line("name", r.name.clone());
    line(
        "recorded",
        format!("with {} on {}, {} CPUs, pages of {} bytes", r.method, r.arch, r.cpus, r.page_bytes),
    );
    for (i, what) in r.unseen.iter().enumerate() {
        line(if i == 0 { "not seen" } else { "" }, (*what).to_owned());
    }
    line("tasks", format!("{} ({} processes, {} threads)", r.tasks, r.processes, r.threads));
    line("", format!("{} forks, {} vforks, {} execs", r.forks, r.vforks, r.execs));
    let f = &r.faults;
    line("faults", format!("{} ({} user, {} kernel)", f.user + f.kernel, f.user, f.kernel));
    if r.access_seen {
        line(
            "",
            format!("{} read, {} write, {} fetch; {} on present pages", f.read, f.write, f.exec, f.present),
        );
    }
    if let Some(s) = &r.touched {
        line("touched", format!("in each of {} address spaces, mean:", r.spaces));
        line(
            "",
            format!(
                "{:.1} pages, {:.2} x 2 MiB, {:.2} x 1 GiB, {:.2} x 512 GiB",
                s.pages, s.pte_regions, s.pmd_regions, s.pud_regions
            ),
        );
    } else {
        line("touched", "not counted: too many pages".to_owned());
    }
    if r.at_stops.runs > 0 {
        line("at stops", format!("{} pages found in {} runs that", r.at_stops.pages, r.at_stops.runs));
        line("", "no event explains, or that a call may have freed".to_owned());
    }
    let s = &r.samples;
    line("VmPTE", format!("{} samples at exit, {} before exec", s.exit, s.exec));
    line("", format!("mean {:.2} tables, max {}", s.mean, s.max));
    if let Some(equal) = s.equal_to_regions {
        line("", format!("{equal} equal to the number of regions touched"));
    }
    line("events", format!("{}, lost {}", r.events, r.lost));
    let kinds: Vec<_> = r.by_kind.iter().filter(|(_, n)| **n > 0).collect();
    for row in kinds.chunks(3) {
        let cells: Vec<String> = row.iter().map(|(name, n)| format!("{name:<11} {n}")).collect();
        line("", cells.iter().map(|c| format!("{c:<21}")).collect::<String>().trim_end().to_owned());
    }
    if !r.advice.is_empty() {
        let advice = r.advice.iter().map(|(a, n)| format!("{} {n}", advice_name(*a)));
        for (i, advices) in wrapped(advice).into_iter().enumerate() {
            line(if i == 0 { "madvise" } else { "" }, advices);
        }
    }
    line(
        "file",
        format!(
            "{} bytes, {:.3} per event ({:.2} before compression)",
            r.bytes, r.bytes_per_event, r.row_bytes_per_event
        ),
    );
    t
}

/// Joins words with commas to lines of at most 66 columns.
fn wrapped(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + word.len() <= 66 => {
                line.push_str(", ");
                line.push_str(&word);
            }
            last => {
                if let Some(line) = last {
                    line.push(',');
                }
                lines.push(word);
            }
        }
    }
    lines
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
