//! A report as text, at most 80 columns wide.
use super::data::{HashReport, PolicyReport, ReplayReport, TraceReport, TruthReport};
use crate::flushes::{Flushes, LinuxFlushes, compare};
use crate::input::relayout::Relayout;
use ptarmigan_term::text::{Text, TextTable};
use ptarmigan_term::words::several;
use ptarmigan_term::{Bytes, Count, Time};
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
            "{}: {}, {}, {}, {} lost; {} memory",
            t.name,
            several(t.processes, "process"),
            several(t.events, "event"),
            several(t.faults, "fault"),
            Count(t.lost),
            Bytes(self.memory)
        )?;
        if let Some(moved) = &self.relayout {
            let Relayout { format, programs, region_mib, .. } = moved;
            let [most_in_use, most_regions, regions] =
                [moved.most_in_use, moved.most_regions, moved.regions].map(Count);
            writeln!(
                out,
                "moved to {format}, page for page, the areas of {} packed in order:",
                several(*programs, "program")
            )?;
            writeln!(
                out,
                "gaps of {} or more are one such region; at most {most_in_use} regions in use, up to",
                Bytes(region_mib << 20)
            )?;
            writeln!(out, "region {most_regions} of {regions}; Linux's counts of tables are left out")?;
        }
        if let Some(bytes) = self.rounded_to {
            writeln!(out, "areas rounded to pages of {}; Linux's counts are left out", Bytes(bytes))?;
        }
        for run in &self.runs {
            run.write(out, self.clock_ns, t)?;
        }
        writeln!(out)?;
        let mut table = TextTable::new(
            &["", "allocation", "misses", "peak live", "cached", "events/s"],
            &[-10, 10, 9, 10, 10, 10],
        );
        for run in &self.runs {
            table.row(&[
                &run.label(),
                &Time::from_nanos(run.mean_alloc_ns),
                &Count(run.levels.0.iter().map(|l| l.1.misses).sum()),
                &Count(run.peak_live_tables),
                &Bytes(run.peak_cached_bytes),
                &rate(run.events_per_s),
            ]);
        }
        out.table(table);
        writeln!(out)?;
        self.write_flushes(out)?;
        let own = self.runs.first().map_or(0.0, |run| run.stream_own_ns);
        writeln!(out, "allocation, total, mean: allocations back to back, with frees and trimming;")?;
        writeln!(out, "those of a level by themselves. p50, p99, max: single calls; min: of these, or")?;
        writeln!(
            out,
            "the mean if that is less. Subtracted: {} per allocation for the stream",
            Time::from_nanos(own)
        )?;
        writeln!(out, "itself, {} per single call for the clock.", Time::from_nanos(self.clock_ns))?;
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
                    Some(flushes) => flushes.by_size().map(|n| Count(n).to_string()),
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
                Count(for_others.total()),
                Count(*wrong_cpu)
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
            &[-3, 9, 6, 7, 6, 7, 6, 6, 8, 6, 6],
        );
        // Values below the clock's resolution print as `<` and the resolution.
        let single = |ns: f64| match ns {
            ns if ns <= 1.0 => format!("<{}", Time::from_nanos(clock_ns.max(1.0).round())),
            ns => Time::from_nanos(ns).to_string(),
        };
        for (name, l) in &self.levels.0 {
            table.row(&[
                name,
                &Count(l.allocs),
                &Time::from_nanos(l.total_ns),
                &single(l.min_ns),
                &Time::from_nanos(l.mean_ns),
                &single(l.p50_ns),
                &single(l.p99_ns),
                &single(l.max_ns),
                &Count(l.hits),
                &Count(l.refills),
                &Count(l.misses),
            ]);
        }
        out.table(table);
        let [page, range, full] = self.flushes.by_size().map(Count);
        writeln!(
            out,
            "memory   at most {} in tables, {} cached",
            Bytes(self.peak_table_bytes),
            Bytes(self.peak_cached_bytes)
        )?;
        writeln!(out, "flushes  of one page {page}, of a range {range}, full {full}")?;
        if let Some(hash) = &self.hash {
            let HashReport { entries, found, refills, evictions, hashed_at_flushes, .. } = *hash;
            let [entries, found, refills, evictions] = [entries, found, refills, evictions].map(Count);
            let [hashed_at_flushes, removals, missing] =
                [hashed_at_flushes, hash.removals, hash.missing].map(Count);
            let [full, tlbies, left] = [hash.full, hash.tlbies, hash.left].map(Count);
            writeln!(
                out,
                "hash     {refills} refills into {entries} entries, {found} found, {evictions} evicted"
            )?;
            writeln!(
                out,
                "         at flushes {hashed_at_flushes} hashed pages; {removals} looked for, {missing} absent"
            )?;
            writeln!(
                out,
                "         {full} flushes of all entries, {tlbies} tlbie; {left} entries at the end"
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
            let [checked_samples, equal_samples] = [checked, equal].map(Count);
            writeln!(
                out,
                "VmPTE    equal to Linux's own count in {equal_samples} of {checked_samples} samples ({:.2} %)",
                equal as f64 * 100.0 / checked as f64
            )?;
            if tables_from_stops > 0 {
                writeln!(
                    out,
                    "         {} tables are known from pages found at stops only",
                    Count(tables_from_stops)
                )?;
            }
            if ends_unknown > 0 {
                writeln!(
                    out,
                    "         {} mappings of locked files may have tables beyond the file's end",
                    Count(ends_unknown)
                )?;
            }
            for (i, what) in trace.not_recorded.iter().enumerate() {
                let start = if i == 0 { "the recording lacks" } else { "                   " };
                writeln!(out, "         {start} {what}")?;
            }
        }
        if let Some(large) = self.large_pages {
            writeln!(out, "large    {} large pages mapped by faults", Count(large))?;
        }
        for (kib, count) in &self.blocks {
            writeln!(
                out,
                "blocks   {} of {} mapped by faults, as recorded",
                Count(*count),
                Bytes(kib << 10)
            )?;
        }
        self.write_speed(out)?;
        if self.faults_outside + self.odd_calls > 0 {
            writeln!(
                out,
                "outside  {} faults outside all areas, {} calls refused",
                Count(self.faults_outside),
                Count(self.odd_calls)
            )?;
        }
        if self.out_of_memory > 0 {
            writeln!(
                out,
                "memory ran out {} times; {} events were skipped",
                Count(self.out_of_memory),
                Count(self.skipped_events)
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
            let (speed, share) = (rate(w.events_per_s), w.share * 100.0);
            writeln!(
                out,
                "workers  {} on {} processor(s){turns}: {speed} events/s",
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
                "copies   {}: {} events/s, {:.2} x one copy ({:.2} x by processor time)",
                c.copies,
                rate(c.events_per_s),
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

/// Returns events per second, with three digits.
fn rate(events_per_s: f64) -> Count {
    Count(events_per_s.round() as u64).rounded()
}
