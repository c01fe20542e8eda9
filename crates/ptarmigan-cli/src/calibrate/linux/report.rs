//! The report: table, picture and JSON.
use ptarmigan_term::Time;
use std::fmt::Write as _;

use serde::Serialize;

use super::case::{Call, Grid, Setting};
use super::ceiling::Ceiling;
use super::costs::{CostsNs, FoundAgainNs, RESIDENT};
use super::estimate::{BreakEven, Estimate, TooFew};
use super::picture::Picture;
use super::sample::CaseTime;
use ptarmigan_bench::stats::median;
use ptarmigan_replay::model::HostName;
use ptarmigan_replay::model::page_prices::{PagePrices, PriceSet};
use ptarmigan_term::text::{Text, TextTable};

/// The samples of the processes, by the number of their CPUs.
pub(super) struct Processes {
    pub grid: Grid,
    pub processes: Vec<Vec<CaseTime>>,
}

/// The time of a case: the median over the processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CurvePoint {
    #[serde(flatten)]
    setting: Setting,
    call: Call,
    pages: usize,
    ns: f64,
}

/// A calibration of this host. As JSON it is one document.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Calibration {
    pub host: HostName,
    pub ceiling: Ceiling,
    /// Processes for each number of CPUs.
    pub rounds: u32,
    /// On one CPU without a working set.
    pub break_even_pages: f64,
    pub break_even: Vec<BreakEven>,
    pub costs_ns: CostsNs,
    pub found_again_ns: FoundAgainNs,
    /// Another calibration may come to another result.
    pub noisy: bool,
    pub curve: Vec<CurvePoint>,
    /// The prices of work on pages, where the kernel gives huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_prices: Option<PagePrices>,
}

impl Calibration {
    /// Estimates everything. The first of `measured` is one CPU's.
    ///
    /// # Errors
    ///
    /// If times do not make sense in too many processes.
    pub(super) fn of(
        host: HostName,
        ceiling: Ceiling,
        rounds: u32,
        measured: &[Processes],
    ) -> Result<Self, TooFew> {
        let mut estimates: Vec<Estimate> = Vec::new();
        let mut curve = Vec::new();
        for Processes { grid, processes } in measured {
            for setting in grid.settings() {
                estimates.push(Estimate::of(processes, setting, *grid)?);
            }
            curve.extend(grid.cases().enumerate().map(|(i, case)| CurvePoint {
                setting: case.setting,
                call: case.call,
                pages: case.pages,
                ns: median(processes.iter().filter_map(|samples| samples.get(i)).map(|s| s.ns)),
            }));
        }
        let of = |cpus, working_set| {
            let setting = Setting { cpus, working_set };
            estimates.iter().find(|e| e.break_even.setting == setting).ok_or(TooFew { setting, usable: 0 })
        };
        let (none, resident) = (of(1, 0)?, of(1, RESIDENT)?);
        Ok(Calibration {
            host,
            ceiling,
            rounds,
            break_even_pages: none.break_even.pages,
            costs_ns: CostsNs::of(none, resident, of(2, 0).ok()),
            found_again_ns: FoundAgainNs::of(none, resident),
            noisy: none.break_even.is_noisy() || resident.break_even.is_noisy(),
            break_even: estimates.into_iter().map(|estimate| estimate.break_even).collect(),
            curve,
            page_prices: None,
        })
    }

    /// Returns the report as text of at most 80 columns; `plain` draws with ASCII marks.
    pub(super) fn text(&self, plain: bool) -> Text {
        let mut text = Text::default();
        // Writing to a text cannot fail.
        let _ = self.write(&mut text, plain);
        text
    }

    fn write(&self, text: &mut Text, plain: bool) -> std::fmt::Result {
        let Calibration { host, ceiling, rounds, costs_ns: costs, .. } = self;
        let known = if ceiling.known { "" } else { " (assumed; debugfs has it)" };
        let guest = if host.hypervisor { ", under a hypervisor" } else { "" };
        writeln!(text, "{}, {} CPUs{guest}\n{}", host.cpu, host.cpus, host.kernel)?;
        writeln!(text, "flushes by name up to {} pages{known}\n", ceiling.pages)?;
        writeln!(text, "pages above which a flush of everything is cheaper\n")?;
        let mut table = TextTable::new(
            &["CPUs", "working set", "pages", "95 % range", "fitted", "mprotect", "mremap", ""],
            &[4, 12, 9, 15, 9, 9, 9, -1],
        );
        for b in &self.break_even {
            table.row(&[
                &b.setting.cpus,
                &b.setting.working_set,
                &format_args!("{:.1}", b.pages),
                &format_args!("{:.1} to {:.1}", b.low, b.high),
                &format_args!("{:.1}", b.fitted),
                &format_args!("{:.1}", b.mprotect),
                &format_args!("{:.1}", b.mremap),
                &if b.extrapolated { "*" } else { "" },
            ]);
        }
        text.table(table);
        writeln!(text, "\nmedians over {rounds} processes for each number of CPUs")?;
        if self.break_even.iter().any(|b| b.extrapolated) {
            writeln!(
                text,
                "* extrapolated: the kernel flushes at most {} pages by name; the line goes on",
                ceiling.pages
            )?;
        }
        if self.break_even.iter().any(|b| b.pages == 0.0) {
            writeln!(text, "0.0: everything is cheaper from the first page on")?;
        }
        let FoundAgainNs { by_name, everything } = self.found_again_ns;
        writeln!(
            text,
            "finding a page again: {} after a flush by name, {} after everything",
            Time::from_nanos(by_name),
            Time::from_nanos(everything)
        )?;
        if self.found_again_ns.names_forget_all() {
            writeln!(text, "so here a flush by name forgets more than the pages that it names")?;
        }
        writeln!(text, "\ncosts\n")?;
        let rows = [
            ("page", Some(costs.page), "one page by name"),
            ("run", costs.run, "beginning a flush of several pages by name"),
            ("ranged_page", Some(costs.ranged_page), "each page of it"),
            ("full", Some(costs.full), "everything"),
            ("refill", costs.refill, "each page found again, more than after a flush by name"),
            ("ask", costs.ask, "asking another CPU"),
        ];
        for (name, ns, what) in rows {
            let ns = ns.map_or("none".to_owned(), |ns| format!("{:.4}", Time::from_nanos(ns)));
            writeln!(text, "{name:<12} {ns:>9}  {what}")?;
        }
        if let Some(PagePrices { middle: PriceSet { small, huge, copied, .. }, .. }) = &self.page_prices {
            let time = |ns: f64| format!("{:.3}", Time::from_nanos(ns));
            writeln!(text, "\npages\n")?;
            let mut table = TextTable::new(&["", "4 KiB", "2 MiB"], &[-16, 9, 9]);
            let rows = [
                ("first write", small.fresh, huge.fresh),
                ("in a fork", small.forked, huge.forked),
                ("freed", small.freed, huge.freed),
                ("in mprotect", small.protected, huge.protected),
            ];
            for (what, small, huge) in rows {
                table.row(&[&what, &time(small), &time(huge)]);
            }
            table.row(&[&"copy on write", &time(*copied), &""]);
            text.table(table);
        }
        writeln!(text, "\na flush by its size, 1 CPU, no working set\n")?;
        write!(text, "{}", self.picture().draw(plain))
    }

    fn picture(&self) -> Picture {
        let setting = Setting { cpus: 1, working_set: 0 };
        let of = |call| self.curve.iter().filter(move |p| p.setting == setting && p.call == call);
        let points = of(Call::Revoke).zip(of(Call::Allow)).map(|(r, a)| (r.pages, r.ns - a.ns)).collect();
        let CostsNs { run, ranged_page, full, .. } = self.costs_ns;
        Picture { points, named: (run.unwrap_or(0.0), ranged_page), full, break_even: self.break_even_pages }
    }

    /// Returns the reason why a calibration is too noisy.
    pub(super) fn noise(&self) -> String {
        let noisy = self.break_even.iter().find(|b| b.setting.cpus == 1 && b.is_noisy());
        let range = noisy.map_or(String::new(), |b| {
            let BreakEven { setting, low, high, .. } = b;
            format!(": {low:.1} to {high:.1} pages for a working set of {}", setting.working_set)
        });
        format!("too noisy{range}; stop what else runs, or give more --rounds than {}", self.rounds)
    }
}
