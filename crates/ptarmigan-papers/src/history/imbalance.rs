//! Fork on CPU 0, exit elsewhere: how much memory the lists of the other CPUs cache.
//!
//! The lists of CPU 0 never fill. Those of the CPUs on which children exit fill up to their cap. At
//! the fixed point, the pages that a historic policy caches follow a closed form (`expected`). The
//! benchmark simulates this with the real policies, child by child, until the counts are stable.
//! The same load also runs on the library's lists, which must never exceed their node's budget; the
//! benchmark checks this twice per child.
use std::fmt::Write as _;

use ptarmigan::cpu::NodeId;
use ptarmigan::frames::{Dirty, Frame};
use ptarmigan::quicklist::Policy;
use ptarmigan::table::KernelMap;
use ptarmigan::window::DirectMap;
use ptarmigan_hosted::{Host, HostConfig, HostError};
use ptarmigan_linux::{Historic, Rules};
use serde::Serialize;

use ptarmigan_cli::bench::historic::historic;
use ptarmigan_term::text::{Text, TextTable};

use super::family::{F, Family, occupy};

/// Pages that a child reads. It has 7 tables, so an exit adds less to each list than a trim may
/// remove.
const PAGES: u32 = 4;
/// The fixed point is reached when this many children per CPU change at most [`JITTER`] pages per
/// CPU. Rounding keeps lists moving by a page: when one list loses a page, the next one can grow by
/// one.
const STILL: u64 = 64;
const JITTER: usize = 3;
/// Pages that a trim leaves on each list.
const FLOOR: f64 = 25.0;
/// Kilobytes per frame.
const KIB: u64 = 4;
/// Memory of the machines with one node.
const BYTES: u64 = 1 << 30;
const CPUS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Memory and CPUs before the load begins.
#[derive(Clone, Copy)]
struct MachineShape {
    cpus: usize,
    nodes: usize,
    bytes: u64,
    /// Free frames on each node; `None` for all of the machine's memory.
    free: Option<u32>,
}

/// The machine of the report of 2008: 8 GB on two nodes with four CPUs each. Memory that was free
/// or cached is spread evenly over the nodes, as the report does not say where it was.
const REPORT: MachineShape = MachineShape {
    cpus: 8,
    nodes: 2,
    bytes: 8 << 30,
    free: Some(((REPORT_FREE + REPORT_KEPT) / KIB / 2) as u32),
};
/// `MemFree` and `Quicklists` in the report, in kB.
const REPORT_FREE: u64 = 4_724_672;
const REPORT_KEPT: u64 = 844_800;

/// Returns how many frames a historic policy caches when every list that ever fills is full, on
/// `shape` with `free` frames free or cached on each node.
///
/// Each of the `lists` lists of each caching CPU then has `F / 16` pages (`F / 16 / C` since 2008),
/// at least 25, where `F` is the number of free pages on that CPU's node. All pages belong to the
/// node of CPU 0, so only there does caching lower `F`. With Q cached pages and C' caching CPUs
/// there, `Q = N C' (F0 - Q) / 16`, or `Q / (F + Q) = N C' / (16 + N C')`. CPUs of other nodes keep
/// a share of free memory that does not shrink, unless the policy tests for the node. A root is
/// listed after the trim: where lists are at their floor, each caching CPU holds one page more.
fn expected(rules: Rules, lists: u32, shape: MachineShape, free: f64) -> f64 {
    let on_node = (shape.cpus / shape.nodes) as f64;
    let parts = if rules.divides_by_cpus { 16.0 * on_node } else { 16.0 };
    let home = f64::from(lists) * (on_node - 1.0);
    let away = f64::from(lists) * if rules.node_test { 0.0 } else { shape.cpus as f64 - on_node };
    let away = away * (free / parts).max(FLOOR);
    let kept = (home * free / parts + away) / (1.0 + home / parts);
    let roots = (shape.cpus - 1) as f64;
    if (free - kept) / parts < FLOOR { home * FLOOR + away + roots } else { kept }
}

/// Pages that a policy caches in the end.
#[derive(Clone, Debug, Serialize)]
pub struct ImbalanceRow {
    /// `one-node`, or `report-of-2008`.
    pub case: &'static str,
    /// CPUs of the machine.
    pub cpus: usize,
    /// The policy.
    pub policy: &'static str,
    /// Children until the counts were stable.
    pub children: u64,
    /// Kilobytes cached.
    pub kept_kib: u64,
    /// Kilobytes free.
    pub free_kib: u64,
    /// The prediction of the closed form, for the historic policies.
    pub expected_kib: Option<f64>,
    /// The most ever cached, as a share of the node's budget at that moment, for the library's own
    /// policy.
    pub most_of_budget: Option<f64>,
}

impl ImbalanceRow {
    /// Returns `kib` as a percentage of the free and cached memory.
    fn percent(&self, kib: f64) -> f64 {
        100.0 * kib / (self.kept_kib + self.free_kib).max(1) as f64
    }
}

/// The moment at which as much was cached as the report says.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Moment {
    /// Children until then.
    pub children: u64,
    /// Kilobytes cached.
    pub kept_kib: u64,
    /// Kilobytes free.
    pub free_kib: u64,
}

/// The report. As JSON: `{"schema": 1, "bench": "imbalance", "lists": …, "rows": […], "moment":
/// …}`.
#[derive(Clone, Debug, Serialize)]
pub struct ImbalanceReport {
    bench: &'static str,
    /// Number of lists of the historic policies.
    pub lists: u8,
    /// The rows, by machine and policy.
    pub rows: Vec<ImbalanceRow>,
    /// The moment at which the policy of 2.6.24 cached as much as the report says.
    pub moment: Option<Moment>,
}

/// Runs the load until the counts are stable. Calls `after` with the kilobytes cached and free
/// after each child.
fn settle(
    host: &Host<F>,
    policy: &dyn Policy,
    look: &mut dyn FnMut() -> Result<(), String>,
    after: &mut dyn FnMut(u64, &Family<'_>),
) -> Result<(u64, u64, u64), String> {
    let cpus = host.config().cpus;
    let mut family = Family::new(host, policy, PAGES)?;
    let (mut children, mut last) = (0, 0);
    loop {
        for _ in 0..STILL * cpus as u64 {
            // CPU 0 ends children only if it is the only one.
            let exit = if cpus > 1 { 1 + children as usize % (cpus - 1) } else { 0 };
            family.child(0, exit, look)?;
            children += 1;
            after(children, &family);
        }
        let kept = family.kept();
        if kept.abs_diff(last) <= JITTER * cpus {
            break;
        }
        last = kept;
    }
    let (kept, free) = (family.kept() as u64 * KIB, family.free() as u64 * KIB);
    family.finish()?;
    Ok((children, kept, free))
}

struct Forker {
    host: Host<F>,
    held: Vec<Frame<Dirty>>,
    /// Free frames on each node before the load.
    free: f64,
}

impl Forker {
    fn new(shape: MachineShape) -> Result<Self, String> {
        let MachineShape { cpus, nodes, bytes, free } = shape;
        let host = Host::new(HostConfig { cpus, nodes, bytes, prefault: 0, ..HostConfig::default() })
            .map_err(|e| e.to_string())?;
        let mut held = Vec::new();
        if let Some(leave) = free {
            for node in 0..nodes {
                held.extend(occupy(host.frames(), NodeId(node as u8), leave)?);
            }
        }
        let free = f64::from(host.frames().counts().free) / nodes as f64;
        Ok(Forker { host, held, free })
    }

    fn historic(
        &self,
        shape: MachineShape,
        case: &'static str,
        (policy, rules): (&'static str, Rules),
        lists: u8,
        after: &mut dyn FnMut(u64, u64, u64),
    ) -> Result<ImbalanceRow, String> {
        let made = historic(&self.host, rules, usize::from(lists)).map_err(|e| e.to_string())?;
        let (children, kept_kib, free_kib) =
            settle(&self.host, &made, &mut || Ok(()), &mut |children, family| {
                after(children, family.kept() as u64 * KIB, family.free() as u64 * KIB);
            })?;
        let expected_kib = Some(expected(rules, lists.into(), shape, self.free) * KIB as f64);
        let cpus = shape.cpus;
        Ok(ImbalanceRow {
            case,
            cpus,
            policy,
            children,
            kept_kib,
            free_kib,
            expected_kib,
            most_of_budget: None,
        })
    }

    /// Runs a policy of 2.4 or 2004, which lists `listed` of the tables of a child. Its lists are
    /// cut to the low watermark each time that they reach the high one, so the row has the most
    /// that was cached. Returns `None` if the watermarks of all CPUs exceed the memory of the
    /// machine: the lists would take all of it.
    fn watermarks(
        &self,
        shape: MachineShape,
        case: &'static str,
        (policy, made, listed): (&'static str, HostHistoric<'_>, u32),
    ) -> Result<Option<ImbalanceRow>, String> {
        let (cpus, high) = (shape.cpus, made.high_watermark());
        if (cpus * high) as f64 > self.free {
            return Ok(None);
        }
        let mut family = Family::new(&self.host, &made, PAGES)?;
        let exits = (cpus as u64 - 1).max(1);
        // Each CPU's lists get the listed tables of each child, and are cut once.
        let children = exits * (high as u64 / u64::from(listed) + STILL);
        let (mut kept_kib, mut free_kib) = (0, 0);
        for child in 0..children {
            let exit = if cpus > 1 { 1 + (child % exits) as usize } else { 0 };
            family.child(0, exit, &mut || Ok(()))?;
            let kept = family.kept() as u64 * KIB;
            if kept > kept_kib {
                (kept_kib, free_kib) = (kept, family.free() as u64 * KIB);
            }
        }
        family.finish()?;
        let expected_kib = Some(((cpus - 1) * high) as f64 * KIB as f64);
        Ok(Some(ImbalanceRow {
            case,
            cpus,
            policy,
            children,
            kept_kib,
            free_kib,
            expected_kib,
            most_of_budget: None,
        }))
    }

    fn ours(&self, shape: MachineShape, case: &'static str) -> Result<ImbalanceRow, String> {
        let mut most: f64 = 0.0;
        let made = self.host.quicklists().map_err(|e| e.to_string())?;
        // All tables are made on CPU 0, from its node's memory: that node's budget bounds them.
        let mut look = || {
            let budget = made.budget(NodeId(0));
            let kept = made.counts().cached();
            most = most.max(kept as f64 / f64::from(budget.max(1)));
            if kept > budget as usize {
                return Err(format!("{kept} pages are cached, the budget is {budget}"));
            }
            Ok(())
        };
        let (children, kept_kib, free_kib) = settle(&self.host, &made, &mut look, &mut |_, _| {})?;
        let (cpus, policy, most_of_budget) = (shape.cpus, "ptarmigan", Some(most));
        Ok(ImbalanceRow {
            case,
            cpus,
            policy,
            children,
            kept_kib,
            free_kib,
            expected_kib: None,
            most_of_budget,
        })
    }

    fn finish(self) {
        let Forker { host, held, .. } = self;
        held.into_iter().for_each(|frame| host.frames().give(frame));
    }
}

type HostHistoric<'h> = Historic<'h, DirectMap, &'h KernelMap<F, DirectMap>>;

/// Runs all policies on machines of one node.
fn one_node(lists: u8, cpus: &[usize], bytes: u64) -> Result<Vec<ImbalanceRow>, String> {
    let mut rows = Vec::new();
    for &cpus in cpus {
        let (shape, case) = (MachineShape { cpus, nodes: 1, bytes, free: None }, "one-node");
        let machine = Forker::new(shape)?;
        let fail = |e: HostError| e.to_string();
        let (all, above) = (PAGES + 3, 3);
        let linux_2_4 = historic(&machine.host, Rules::LINUX_2_4, 3).map_err(fail)?;
        rows.extend(machine.watermarks(shape, case, ("linux-2.4", linux_2_4, all))?);
        let v2004 = historic(&machine.host, Rules::V2004, 2).map_err(fail)?;
        rows.extend(machine.watermarks(shape, case, ("v2004", v2004, above))?);
        for policy in [("v5", Rules::V5), ("v2008", Rules::V2008)] {
            rows.push(machine.historic(shape, case, policy, lists, &mut |_, _, _| {})?);
        }
        rows.push(machine.ours(shape, case)?);
        machine.finish();
    }
    Ok(rows)
}

/// Runs the machine of the report, or a part of it given by `shape`. Also returns the moment at
/// which `kept` kB are cached.
fn report_of_2008(
    lists: u8,
    shape: MachineShape,
    kept: u64,
) -> Result<(Vec<ImbalanceRow>, Option<Moment>), String> {
    let case = "report-of-2008";
    let (mut rows, mut moment) = (Vec::new(), None);
    let machine = Forker::new(shape)?;
    rows.push(machine.historic(shape, case, ("v5", Rules::V5), lists, &mut |_, _, _| {})?);
    let mut see = |children, kept_kib, free_kib| {
        if kept_kib >= kept && moment.is_none() {
            moment = Some(Moment { children, kept_kib, free_kib });
        }
    };
    rows.push(machine.historic(shape, case, ("linux-2.6.24", Rules::LINUX_2_6_24), lists, &mut see)?);
    rows.push(machine.historic(shape, case, ("v2008", Rules::V2008), lists, &mut |_, _, _| {})?);
    rows.push(machine.ours(shape, case)?);
    machine.finish();
    Ok((rows, moment))
}

/// Runs all machines and policies; the historic ones have `lists` lists.
///
/// # Errors
///
/// If a machine cannot be set up, memory is lost, or the library's own policy exceeds its budget.
pub fn run(lists: u8) -> Result<ImbalanceReport, String> {
    let mut rows = one_node(lists, &CPUS, BYTES)?;
    let (of_report, moment) = report_of_2008(lists, REPORT, REPORT_KEPT)?;
    rows.extend(of_report);
    Ok(ImbalanceReport { bench: "imbalance", lists, rows, moment })
}

impl ImbalanceReport {
    /// Returns a table of at most 80 columns.
    pub(crate) fn text(&self) -> Text {
        let mut table = TextTable::new(
            &["case", "CPUs", "policy", "children", "kept kB", "of all", "closed form"],
            &[-15, 4, -13, 9, 11, 7, 11],
        );
        for row in &self.rows {
            let said = match (row.expected_kib, row.most_of_budget) {
                (Some(kib), _) => format!("{:.2} %", row.percent(kib)),
                (None, Some(most)) => format!("< {:.2} b", (most * 100.0).ceil() / 100.0),
                (None, None) => String::new(),
            };
            let share = format!("{:.2}%", row.percent(row.kept_kib as f64));
            table.row(&[&row.case, &row.cpus, &row.policy, &row.children, &row.kept_kib, &share, &said]);
        }
        let mut text = Text::default();
        text.table(table);
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "\nv5 and v2008 with {} list(s); of linux-2.4, which has three, and v2004, which\n\
             has two and none of PTE pages, the most ever kept. All: what is free or\n\
             kept. b: the budget of the forking CPU's node, to which the most ever kept\n\
             is compared.",
            self.lists
        );
        if let Some(Moment { children, kept_kib, free_kib }) = self.moment {
            let _ = writeln!(
                text,
                "Linux 2.6.24 keeps the reported {REPORT_KEPT} kB after {children} children:\n\
                 {kept_kib} kB kept, {free_kib} kB free."
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(rules: Rules, cpus: usize, lists: u32) -> f64 {
        let shape = MachineShape { cpus, nodes: 1, bytes: 0, free: None };
        expected(rules, lists, shape, 1e9) / 1e9
    }

    #[test]
    fn the_closed_form_gives_the_percentages_of_the_report() {
        for (cpus, said) in [(2, 1.0 / 17.0), (4, 3.0 / 19.0), (8, 7.0 / 23.0), (16, 15.0 / 31.0)] {
            assert!((share(Rules::V5, cpus, 1) - said).abs() < 1e-9, "{cpus} CPUs");
            assert_eq!(share(Rules::V5, cpus, 1), share(Rules::LINUX_2_6_24, cpus, 1));
        }
    }

    #[test]
    fn the_2008_change_bounds_the_share_for_any_number_of_cpus() {
        for lists in 1..=3 {
            let bound = f64::from(lists) / (16.0 + f64::from(lists));
            let shares: Vec<f64> = CPUS.map(|cpus| share(Rules::V2008, cpus, lists)).to_vec();
            assert!(shares.is_sorted() && shares.iter().all(|share| *share < bound), "{shares:?}");
            assert!(share(Rules::V2008, 1 << 20, lists) > bound * 0.999, "the bound is approached");
        }
    }

    fn agrees(row: &ImbalanceRow, lists: u8) {
        let Some(expected) = row.expected_kib else {
            assert!(row.most_of_budget.is_some_and(|most| most <= 1.0), "{row:?}");
            return;
        };
        if row.cpus == 1 {
            // A CPU that forks and exits takes its own pages back, so one child's tables are all
            // that is cached.
            assert_eq!(expected, 0.0);
            assert!(row.kept_kib <= u64::from(PAGES + 3) * KIB, "{row:?}");
            return;
        }
        let ratio = row.kept_kib as f64 / expected;
        assert!((0.99..=1.01).contains(&ratio), "{lists} lists: {row:?} is {ratio} of what was expected");
    }

    #[test]
    fn historic_lists_keep_the_closed_form_within_1_percent() {
        for lists in 1..=3 {
            let rows = one_node(lists, &CPUS, BYTES).expect("the machines run");
            assert_eq!(rows.len(), 5 * CPUS.len());
            rows.iter().for_each(|row| agrees(row, lists));
            let report = ImbalanceReport { bench: "imbalance", lists, rows, moment: None };
            assert!(
                report.text().to_string().lines().all(|line| line.chars().count() <= 80),
                "{}",
                report.text()
            );
        }
    }

    #[test]
    fn small_machines_keep_the_floor_of_every_list() {
        // A sixteenth of the free memory, divided by 64, is less than 25.
        for lists in 1..=3 {
            let rows = one_node(lists, &[64], 64 << 20).expect("the machine runs");
            rows.iter().for_each(|row| agrees(row, lists));
            // The lists of 2.4 and 2004 would take all memory.
            assert_eq!(rows[0].policy, "v5");
            assert_eq!(rows[1].kept_kib, (25 * u64::from(lists) + 1) * 63 * KIB, "{:?}", rows[1]);
        }
    }

    #[test]
    fn the_2008_report_fits_2_6_24_and_not_v5() {
        // A sixteenth of the machine, as the host of the tests may be small.
        let shape = MachineShape { bytes: REPORT.bytes / 16, free: REPORT.free.map(|n| n / 16), ..REPORT };
        let (rows, moment) = report_of_2008(1, shape, REPORT_KEPT / 16).expect("the machine runs");
        rows.iter().for_each(|row| agrees(row, 1));
        let [v5, between, ..] = &rows[..] else { panic!("{rows:?}") };
        assert!(v5.kept_kib < REPORT_KEPT / 16 && REPORT_KEPT / 16 < between.kept_kib);
        let moment = moment.expect("it is reached");
        assert!(moment.free_kib.abs_diff(REPORT_FREE / 16) < 64, "{moment:?}");
        // Not even with all free memory on CPU 0's node: half of the machine's 7,701,568 kB.
        let most = expected(Rules::V5, 1, REPORT, 7_701_568.0 / 2.0 / KIB as f64) * KIB as f64;
        assert!(most < REPORT_KEPT as f64, "{most}");
    }
}
