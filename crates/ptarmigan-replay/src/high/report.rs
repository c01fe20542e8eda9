//! Reports the frames that were mapped, as text and as JSON.
use ptarmigan_hosted::{HighConfig, Kmap, KmapCounts, SlotKind};
use ptarmigan_term::text::Text;
use ptarmigan_term::{Count, Mean};
use serde::Serialize;
use std::fmt::Write;

/// Frames that were mapped in a replay, and slots that sweeps found.
#[derive(Serialize, Clone, Debug)]
pub struct KmapReport {
    /// The way in which frames were mapped.
    pub kmap: &'static str,
    /// The kind of the slots.
    pub window: &'static str,
    /// Frames mapped to be cleared.
    pub cleared: u64,
    /// Frames mapped to be copied, from and to counted each.
    pub copied: u64,
    /// Frames mapped to write arguments of programs.
    pub arguments: u64,
    /// Of these maps, those that a slot had to be filled for; the others found their frame mapped,
    /// or it was a low one.
    pub filled: u64,
    /// Slots of the machine.
    pub slots: u64,
    /// Slots that have shown a frame.
    pub slots_used: u64,
    /// Sweeps. A sweep of the library's pool looks at one chunk of slots, one of Linux's at all.
    pub sweeps: u64,
    /// Sweeps that found no stale slot.
    pub idle_sweeps: u64,
    /// Means; absent without sweeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_sweep: Option<PerSweep>,
    /// Flushes of the kernel's half on all CPUs. With local maps the count is 0: a CPU forgets each
    /// slot by itself when its frame is unmapped.
    pub flushes: Plans,
}

/// Slots that a sweep looks at, by their state. The sum of the first three is the last.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct PerSweep {
    /// Without users, and forgotten by the sweep.
    pub stale: f64,
    /// With users.
    pub pinned: f64,
    /// Free already, or at hand on a CPU.
    pub free: f64,
    /// All.
    pub slots: f64,
}

/// Flushes by plan.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct Plans {
    /// Page by page.
    pub pages: u64,
    /// Run by run.
    pub runs: u64,
    /// As one range.
    pub window: u64,
    /// With everything else.
    pub full: u64,
}

impl KmapReport {
    /// Creates a report.
    pub fn new(config: &HighConfig, counts: &KmapCounts) -> Self {
        let found = counts.sweeps.total;
        let mean = |n: usize| n as f64 / counts.sweeps.sweeps as f64;
        let plans = counts.plans;
        KmapReport {
            kmap: match config.kmap {
                Kmap::Local => "local",
                Kmap::Pool => "pool",
                Kmap::Linux => "linux",
                Kmap::Linux24 => "linux-2.4",
            },
            window: match config.slots {
                SlotKind::Real => "real",
                SlotKind::Store => "store",
            },
            cleared: counts.cleared as u64,
            copied: counts.copied as u64,
            arguments: counts.arguments as u64,
            filled: counts.installs as u64,
            slots: counts.slots as u64,
            slots_used: counts.used as u64,
            sweeps: counts.sweeps.sweeps as u64,
            idle_sweeps: counts.sweeps.idle_sweeps as u64,
            per_sweep: (counts.sweeps.sweeps > 0).then(|| PerSweep {
                stale: mean(found.stale),
                pinned: mean(found.pinned),
                free: mean(found.free),
                slots: mean(found.slots()),
            }),
            flushes: Plans {
                pages: plans.pages as u64,
                runs: plans.runs as u64,
                window: plans.window as u64,
                full: plans.full as u64,
            },
        }
    }

    /// Writes the report as text, at most 80 columns wide.
    pub fn write(&self, out: &mut Text) -> std::fmt::Result {
        let KmapReport { kmap, window, .. } = self;
        let [cleared, copied, arguments] = [self.cleared, self.copied, self.arguments].map(Count);
        writeln!(
            out,
            "kmap     {kmap}, {window}: cleared {cleared}, copied {copied}, arguments {arguments}"
        )?;
        writeln!(
            out,
            "         slots filled {} times; {} of {} slots used",
            Count(self.filled),
            Count(self.slots_used),
            Count(self.slots)
        )?;
        if *kmap == "local" {
            return writeln!(out, "         each unmap forgets one page on its own CPU");
        }
        if let Some(PerSweep { stale, pinned, free, slots }) = self.per_sweep {
            let [stale, pinned, free, slots] = [stale, pinned, free, slots].map(Mean);
            writeln!(
                out,
                "         {} sweeps, {} of them idle",
                Count(self.sweeps),
                Count(self.idle_sweeps)
            )?;
            writeln!(
                out,
                "         per sweep {stale} stale + {pinned} pinned + {free} free = {slots} slots"
            )?;
        }
        let Plans { pages, runs, window, full } = self.flushes;
        let [pages, runs, window, full] = [pages, runs, window, full].map(Count);
        writeln!(out, "         flushed by page {pages}, run {runs}, window {window}, full {full}")
    }
}
