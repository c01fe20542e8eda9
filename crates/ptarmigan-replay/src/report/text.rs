//! A report as text, at most 80 columns wide.
use super::data::{HashReport, PolicyReport, ReplayReport, TraceReport, TruthReport};
use crate::flushes::{Flushes, LinuxFlushes, compare};
use crate::input::relayout::Relayout;
use crate::terminal::words::{count, several};
use ptarmigan_bench::text::{Text, TextTable};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

impl ReplayReport {
    /// Returns the report as text, at most 80 columns wide, without the sanitizer's findings.
    pub fn text(&self) -> Text {
        let mut out = Text::default();
        // Writing to a text cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Text) -> std::fmt::Result {
        let t = &self.trace;
        writeln!(
            out,
            "{}: {} processes, {} events, {} faults, {} lost; {} MiB memory",
            t.name,
            t.processes,
            t.events,
            t.faults,
            t.lost,
            self.memory >> 20
        )?;
        if let Some(moved) = &self.relayout {
            let Relayout { format, programs, region_mib, most_in_use, most_regions, regions } = moved;
            writeln!(
                out,
                "moved to {format}, page for page, the areas of {programs} programs packed in order:"
            )?;
            writeln!(
                out,
                "gaps of {region_mib} MiB or more are one such region; at most {most_in_use} regions in use, up to"
            )?;
            writeln!(out, "region {most_regions} of {regions}; Linux's counts of tables are left out")?;
        }
        if let Some(bytes) = self.rounded_to {
            writeln!(out, "areas rounded to pages of {} KiB; Linux's counts are left out", bytes >> 10)?;
        }
        for run in &self.runs {
            run.write(out, self.clock_ns, t)?;
        }
        writeln!(out)?;
        let mut table = TextTable::new(
            &["", "ns/alloc", "misses", "peak live", "cached", "Mevent/s"],
            &[-10, 10, 9, 10, 10, 9],
        );
        for run in &self.runs {
            table.row(&[
                &run.label(),
                &format_args!("{:.1}", run.mean_alloc_ns),
                &run.levels.0.iter().map(|l| l.1.misses).sum::<u64>(),
                &run.peak_live_tables,
                &bytes(run.peak_cached_bytes),
                &format_args!("{:.2}", run.events_per_s / 1e6),
            ]);
        }
        out.table(table);
        writeln!(out)?;
        self.write_flushes(out)?;
        let own = self.runs.first().map_or(0.0, |run| run.stream_own_ns);
        writeln!(out, "ns/alloc, total, mean: allocations back to back with their frees and trimming;")?;
        writeln!(out, "those of a level by themselves. p50, p99, max: single calls; min: of these, or")?;
        writeln!(out, "the mean if that is less. Subtracted: {own:.1} ns per allocation for the stream")?;
        writeln!(out, "itself, {:.0} ns per single call for the clock.", self.clock_ns)?;
        if self.runs.iter().any(|run| run.historic_lists.is_some()) {
            writeln!(out, "In brackets: the number of lists of a historic policy.")?;
        }
        Ok(())
    }

    /// Writes Linux's flushes beside the library's, by cause.
    fn write_flushes(&self, out: &mut Text) -> std::fmt::Result {
        let linux = self.trace.flushes.as_ref();
        // All policies flush alike.
        let library = self.runs.first().and_then(|run| run.flushes_by_cause.as_ref());
        let rows = compare(linux, library);
        if !rows.is_empty() {
            let name = |side: &str, known: bool| if known { side.to_owned() } else { format!("{side}: –") };
            writeln!(
                out,
                "{:<20}{:<29} {}",
                "flushes by cause",
                name("Linux, while recording", linux.is_some()),
                name("the library", library.is_some())
            )?;
            let mut table = TextTable::new(
                &["", "one page", "range", "full", "one page", "range", "full"],
                &[-19, 9, 8, 8, 11, 8, 8],
            );
            for row in rows {
                let sizes = |flushes: Option<Flushes>| match flushes {
                    Some(flushes) => flushes.by_size().map(count),
                    None => ["–"; 3].map(str::to_owned),
                };
                let of = format!("{}{}", if row.part { "  " } else { "" }, row.of);
                table.texts([of].into_iter().chain(sizes(row.linux)).chain(sizes(row.library)));
            }
            out.table(table);
        }
        let Some(linux) = linux else { return Ok(()) };
        let LinuxFlushes { requested, for_others, wrong_cpu, .. } = linux;
        if requested.total() + for_others.total() + wrong_cpu > 0 {
            writeln!(
                out,
                "between CPUs: {} sent; {} flushed for others; {} met wrong CPUs",
                several(requested.total(), "request"),
                count(for_others.total()),
                count(*wrong_cpu)
            )?;
        }
        linux.remarks().iter().try_for_each(|remark| writeln!(out, "{remark}"))
    }

    /// Returns the sanitizer's findings as text, at most 80 columns wide; an empty one if it did
    /// not run.
    pub fn sanitizer_text(&self) -> Text {
        let mut out = Text::default();
        if self.runs.iter().any(|run| run.sanitizer.ran) {
            // As above.
            let _ = self.write_sanitizer(&mut out);
        }
        out
    }

    fn write_sanitizer(&self, out: &mut Text) -> std::fmt::Result {
        writeln!(out)?;
        let mut table = TextTable::new(&["sanitizer", "passes", "findings"], &[-10, 6, 10]);
        for run in &self.runs {
            table.row(&[&run.label(), &run.sanitizer.passes, &run.sanitizer.findings]);
        }
        out.table(table);
        for run in self.runs.iter().filter(|run| run.sanitizer.findings > 0) {
            writeln!(out, "{:<10} {}", run.label(), listed(&run.sanitizer.kinds))?;
            let levels = listed(&run.sanitizer.by_level);
            if !levels.is_empty() {
                writeln!(out, "{:<10} as tables came back: {levels}", "")?;
            }
        }
        Ok(())
    }
}

impl PolicyReport {
    fn write(&self, out: &mut Text, clock_ns: f64, trace: &TraceReport) -> std::fmt::Result {
        let plural = |n: usize| if n == 1 { "" } else { "s" };
        writeln!(out)?;
        out.heading(format_args!(
            "policy {}{}, {} CPU{}, {} node{}",
            self.policy,
            self.historic_lists.map_or(String::new(), |n| format!(", {n} list{}", plural(n.into()))),
            self.cpus,
            plural(self.cpus),
            self.nodes,
            plural(self.nodes)
        ));
        let mut table = TextTable::new(
            &["", "count", "total", "min", "mean", "p50", "p99", "max", "hits", "refill", "miss"],
            &[-4, 8, 8, 5, 6, 6, 6, 7, 8, 6, 6],
        );
        // Values below the clock's resolution print as `<` and the resolution.
        let single = |ns: f64, time: fn(f64) -> String| {
            if ns <= 1.0 { format!("<{:.0}", clock_ns.max(1.0)) } else { time(ns) }
        };
        for (name, l) in &self.levels.0 {
            table.row(&[
                name,
                &l.allocs,
                &time(l.total_ns),
                &single(l.min_ns, short_time),
                &time(l.mean_ns),
                &single(l.p50_ns, time),
                &single(l.p99_ns, time),
                &single(l.max_ns, time),
                &l.hits,
                &l.refills,
                &l.misses,
            ]);
        }
        out.table(table);
        let Flushes { page, range, full } = self.flushes;
        writeln!(
            out,
            "memory   at most {} in tables, {} cached",
            bytes(self.peak_table_bytes),
            bytes(self.peak_cached_bytes)
        )?;
        writeln!(out, "flushes  of one page {page}, of a range {range}, full {full}")?;
        if let Some(hash) = &self.hash {
            let HashReport { entries, found, refills, evictions, hashed_at_flushes, .. } = hash;
            writeln!(
                out,
                "hash     {refills} refills into {entries} entries, {found} found, {evictions} evicted"
            )?;
            writeln!(
                out,
                "         at flushes {hashed_at_flushes} hashed pages; {} looked for, {} absent",
                hash.removals, hash.missing
            )?;
            writeln!(
                out,
                "         {} flushes of all entries, {} tlbie; {} entries at the end",
                hash.full, hash.tlbies, hash.left
            )?;
        }
        if let Some(kmap) = &self.kmap {
            kmap.write(out)?;
        }
        if let Some(userpte) = &self.userpte {
            userpte.write(out, trace.faults)?;
        }
        if let Some(zero) = &self.zero {
            zero.write(out)?;
        }
        let TruthReport { checked, equal, tables_from_stops, ends_unknown, .. } = self.truth;
        if checked > 0 {
            writeln!(
                out,
                "VmPTE    equal to Linux's own count in {equal} of {checked} samples ({:.2} %)",
                equal as f64 * 100.0 / checked as f64
            )?;
            if tables_from_stops > 0 {
                writeln!(
                    out,
                    "         {tables_from_stops} tables are known from pages found at stops only"
                )?;
            }
            if ends_unknown > 0 {
                writeln!(
                    out,
                    "         {ends_unknown} mappings of locked files may have tables beyond the file's end"
                )?;
            }
            for (i, what) in trace.not_recorded.iter().enumerate() {
                let start = if i == 0 { "the recording lacks" } else { "                   " };
                writeln!(out, "         {start} {what}")?;
            }
        }
        if let Some(large) = self.large_pages {
            writeln!(out, "large    {large} large pages mapped by faults")?;
        }
        self.write_speed(out)?;
        if self.faults_outside + self.odd_calls > 0 {
            writeln!(
                out,
                "outside  {} faults outside all areas, {} calls refused",
                self.faults_outside, self.odd_calls
            )?;
        }
        if self.out_of_memory > 0 {
            writeln!(
                out,
                "memory ran out {} times; {} events were skipped",
                self.out_of_memory, self.skipped_events
            )?;
        }
        self.counters.as_ref().map_or(Ok(()), |counters| counters.write(out))
    }
}

impl PolicyReport {
    /// Returns the policy's name and lists in at most nine characters.
    fn label(&self) -> String {
        self.historic_lists.map_or(self.policy.to_owned(), |n| format!("{} ({n})", self.policy))
    }

    fn write_speed(&self, out: &mut Text) -> std::fmt::Result {
        if let Some(w) = &self.workers {
            let turns = if w.workers > w.processors { ", which they share" } else { "" };
            let (speed, share) = (w.events_per_s / 1e6, w.share * 100.0);
            writeln!(
                out,
                "workers  {} on {} processor(s){turns}: {speed:.2} Mevent/s",
                w.workers, w.processors
            )?;
            writeln!(
                out,
                "         {:.2} x one worker; the order allows {:.2} x; {share:.0} % of that",
                w.speed_up, w.ceiling
            )?;
        }
        if let Some(c) = &self.copies {
            writeln!(
                out,
                "copies   {}: {:.2} Mevent/s, {:.2} x one copy ({:.2} x by processor time)",
                c.copies,
                c.events_per_s / 1e6,
                c.ratio,
                c.ratio_by_processor_time
            )?;
        }
        Ok(())
    }
}

/// Lists the counts that are not 0, by name.
fn listed<K: Display>(counts: &BTreeMap<K, u64>) -> String {
    let counts: Vec<_> = counts.iter().filter(|(_, n)| **n > 0).map(|(of, n)| format!("{of} {n}")).collect();
    counts.join(", ")
}

/// Formats nanoseconds in at most five characters, below a second.
fn short_time(ns: f64) -> String {
    match ns {
        n if n < 9.95 => format!("{n:.1}ns"),
        n if n < 999.5 => format!("{n:.0}ns"),
        n if n < 9_950.0 => format!("{:.1}us", n / 1e3),
        n if n < 999_500.0 => format!("{:.0}us", n / 1e3),
        n => format!("{:.0}ms", n / 1e6),
    }
}

/// Formats nanoseconds in at most six characters.
fn time(ns: f64) -> String {
    match ns {
        n if n < 9.95 => format!("{n:.1}ns"),
        n if n < 9_999.5 => format!("{n:.0}ns"),
        n if n < 9_999_500.0 => format!("{:.0}us", n / 1e3),
        n => format!("{:.0}ms", n / 1e6),
    }
}

fn bytes(n: u64) -> String {
    if n < 10 << 20 { format!("{} KiB", n >> 10) } else { format!("{} MiB", n >> 20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fit_their_columns() {
        let mut ns = 0.5;
        while ns < 9e8 {
            assert!(short_time(ns).len() <= 5, "{}", short_time(ns));
            assert!(time(ns).len() <= 6, "{}", time(ns));
            ns *= 1.001;
        }
    }
}
