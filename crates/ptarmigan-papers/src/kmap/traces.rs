//! Stale slots per sweep, on recorded programs.
use super::hashed_slots::HashedSlots;
use super::report::{KmapRow, Part, row};
use ptarmigan::tlb::CostModel;
use ptarmigan_hosted::{HighConfig, Kmap, SlotKind};
use ptarmigan_replay::files::shipped::SHIPPED;
use ptarmigan_replay::{KmapReport, SoloTrace, Trace};
use ptarmigan_term::Failure;
use ptarmigan_term::bar;

/// Slots of the window of 2001.
const SLOTS: usize = 1024;
/// Pools that are compared.
const POOLS: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];
/// The recording of a compile of the kernel.
const COMPILE_NAME: &str = "compile";
/// The figure of the mail of 2001 for its compile.
const MAIL: f64 = 1023.9;

fn config(kmap: Kmap, pool_slots: usize) -> HighConfig {
    HighConfig { kmap, slots: SlotKind::Store, pool_slots }
}

fn rows(case: &str, contender: &str, report: &KmapReport) -> Vec<KmapRow> {
    let mut rows = Vec::new();
    let mut add =
        |what: &str, value: f64, unit| rows.push(row(format!("{what}/{case}"), contender, value, unit));
    add("maps", (report.cleared + report.copied + report.arguments) as f64, "maps");
    add("sweeps", report.sweeps as f64, "sweeps");
    if let Some(found) = report.per_sweep {
        add("stale", found.stale, "slots/sweep");
        add("pinned", found.pinned, "slots/sweep");
        add("free", found.free, "slots/sweep");
        add("slots", found.slots, "slots/sweep");
    }
    rows
}

fn sorted(mut rows: Vec<KmapRow>) -> Vec<KmapRow> {
    let mut cases: Vec<String> = Vec::new();
    for row in &rows {
        if !cases.contains(&row.case) {
            cases.push(row.case.clone());
        }
    }
    rows.sort_by_key(|row| cases.iter().position(|case| *case == row.case));
    rows
}

/// Counts as [`SoloTrace::map`] does. Returns also the mean number of slots that a sweep's flush
/// finds in a hash table, if there was a sweep.
fn on_hashed_slots(
    trace: &SoloTrace,
    config: &HighConfig,
    costs: CostModel,
) -> Result<(KmapReport, Option<f64>), Failure> {
    let slots = HashedSlots::default();
    let report = trace.map_on(config, costs, &slots)?;
    let found = slots.found();
    // Flushes after the last sweep are of the machine's end.
    let found = found.get(..report.sweeps as usize).unwrap_or(&found);
    let mean = found.iter().sum::<usize>() as f64 / found.len() as f64;
    Ok((report, (!found.is_empty()).then_some(mean)))
}

/// Replays every shipped recording on 512 + 512 MiB with Linux's pool and the library's.
///
/// # Errors
///
/// If a recording does not fit.
pub(super) fn shipped(costs: CostModel) -> Result<Part, Failure> {
    let bar = bar::bar(2 * SHIPPED.len() as u64, "recordings");
    let mut all = Vec::new();
    let mut notes = Vec::new();
    for (name, bytes) in SHIPPED {
        let trace = SoloTrace::new(Trace::from_bytes(bytes, name)?);
        for (contender, kmap, costs) in
            [("linux", Kmap::Linux, CostModel::LINUX), ("ptarmigan", Kmap::Pool, costs)]
        {
            let report = match kmap {
                Kmap::Linux => {
                    let (report, hashed) = on_hashed_slots(&trace, &config(kmap, SLOTS), costs)?;
                    let hashed =
                        hashed.map(|mean| row(format!("hashed/{name}"), contender, mean, "slots/sweep"));
                    all.extend(hashed);
                    report
                }
                _ => trace.map(&config(kmap, SLOTS), costs)?,
            };
            all.extend(rows(name, contender, &report));
            // The mail's figure is of a compile of the kernel.
            if kmap == Kmap::Linux && name == COMPILE_NAME {
                all.push(row(format!("stale/{name}"), "2001", MAIL, "slots/sweep"));
            }
            let (plans, used) = (report.flushes, report.slots_used);
            notes.push(format!(
                "{name}, {contender}: {used} slots used; flushed by page {}, run {}, window {}, full {}",
                plans.pages, plans.runs, plans.window, plans.full
            ));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let title = "Slots per sweep, 512 + 512 MiB, 1,024 slots (counts, no times)".to_owned();
    Ok(Part { title, rows: sorted(all), notes })
}

/// Replays the compile with pools of other sizes.
///
/// # Errors
///
/// If it does not fit.
pub(super) fn sizes(costs: CostModel) -> Result<Part, Failure> {
    let Some((name, bytes)) = SHIPPED.iter().find(|(name, _)| *name == COMPILE_NAME) else {
        return Err(Failure::new(format!("no recording {COMPILE_NAME} is shipped")));
    };
    let trace = SoloTrace::new(Trace::from_bytes(bytes, name)?);
    let bar = bar::bar(2 * POOLS.len() as u64, "pool sizes");
    let mut all = Vec::new();
    for slots in POOLS {
        for (contender, kmap, costs) in
            [("linux", Kmap::Linux, CostModel::LINUX), ("ptarmigan", Kmap::Pool, costs)]
        {
            let report = trace.map(&config(kmap, slots), costs)?;
            let case = format!("{name}-{slots}");
            all.push(row(format!("filled/{case}"), contender, report.filled as f64, "slots"));
            all.extend(rows(&case, contender, &report).into_iter().skip(1));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let title = format!("Pools of 64 to 4,096 slots on {name} (counts, no times)");
    Ok(Part { title, rows: sorted(all), notes: Vec::new() })
}
