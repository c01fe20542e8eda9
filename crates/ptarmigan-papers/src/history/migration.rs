//! Fork on one node, exit on another: pages that stay cached on a node that they do not belong to.
//!
//! This is Robin Holt's second issue of 2004: each process that is forked on one node and exits on
//! another leaves its tables, some forty pages, on the lists of a CPU of the wrong node. Linux 2.4
//! lists tables of every level; 2.6.9 lists none of the PTE pages, which are most of them. Here,
//! children are forked on CPU 0 and exit on the CPUs of the other nodes in turn. Then all CPUs are
//! idle until no list is trimmed any more, and the lists are emptied one by one. Memory that
//! becomes free on another node than the list's was cached on the wrong node.
use std::fmt::Write as _;

use ptarmigan::quicklist::Policy;
use ptarmigan_hosted::{Host, HostConfig};
use ptarmigan_linux::Rules;
use serde::Serialize;

use ptarmigan_cli::bench::historic::historic;
use ptarmigan_term::text::{Text, TextTable};

use super::family::{F, Family};

/// Pages that a child reads, as many as in Holt's program: 35 tables.
const PAGES: u32 = 32;
const NODES: [usize; 3] = [2, 4, 8];
const CPUS_PER_NODE: usize = 2;
const BYTES_PER_NODE: u64 = 256 << 20;
/// Children in a row.
const CHILDREN: [u32; 2] = [1, 1000];

/// Pages that one policy leaves on each node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationRow {
    /// Nodes of the machine, with two CPUs each.
    pub nodes: usize,
    /// The policy.
    pub policy: &'static str,
    /// Children forked on node 0 that exited elsewhere.
    pub children: u32,
    /// Tables of each child.
    pub tables: u32,
    /// Pages that the policy caches.
    pub kept: usize,
    /// Cached pages on a node that they do not belong to.
    pub foreign: usize,
    /// The high watermark that 2.4 and the version of 2004 have for the lists of each CPU: a number
    /// of pages that depends on all memory of the machine.
    pub watermark: Option<usize>,
}

/// The report. As JSON: `{"schema": 1, "bench": "migration", "rows": […]}`.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationReport {
    bench: &'static str,
    /// The rows, by nodes, policy and number of children.
    pub rows: Vec<MigrationRow>,
}

fn migrate(
    host: &Host<F>,
    policy: &dyn Policy,
    name: &'static str,
    children: u32,
    watermark: Option<usize>,
) -> Result<MigrationRow, String> {
    let HostConfig { cpus, nodes, .. } = *host.config();
    let mut family = Family::new(host, policy, PAGES)?;
    for child in 0..children as usize {
        let exit = CPUS_PER_NODE + child % (cpus - CPUS_PER_NODE);
        family.child(0, exit, &mut || Ok(()))?;
    }
    family.quiesce();
    let (tables, kept) = (family.tables(), family.kept());
    let foreign = family.finish()?;
    Ok(MigrationRow { nodes, policy: name, children, tables, kept, foreign, watermark })
}

/// Runs all machines and policies; the historic ones have two lists, those of 2.4 three.
///
/// # Errors
///
/// If a machine cannot be set up, or memory is lost.
pub fn run() -> Result<MigrationReport, String> {
    let mut rows = Vec::new();
    for nodes in NODES {
        let cpus = nodes * CPUS_PER_NODE;
        let bytes = nodes as u64 * BYTES_PER_NODE;
        let host = Host::<F>::new(HostConfig { cpus, nodes, bytes, prefault: 0, ..HostConfig::default() })
            .map_err(|e| e.to_string())?;
        for children in CHILDREN {
            let fail = |e: ptarmigan_hosted::HostError| e.to_string();
            let linux_2_4 = historic(&host, Rules::LINUX_2_4, 3).map_err(fail)?;
            let watermark = Some(linux_2_4.high_watermark());
            rows.push(migrate(&host, &linux_2_4, "linux-2.4", children, watermark)?);
            let v2004 = historic(&host, Rules::V2004, 2).map_err(fail)?;
            let watermark = Some(v2004.high_watermark());
            rows.push(migrate(&host, &v2004, "v2004", children, watermark)?);
            let v5 = historic(&host, Rules::V5, 2).map_err(fail)?;
            rows.push(migrate(&host, &v5, "v5", children, None)?);
            let v2008 = historic(&host, Rules::V2008, 2).map_err(fail)?;
            rows.push(migrate(&host, &v2008, "v2008", children, None)?);
            let lists = host.quicklists().map_err(fail)?;
            rows.push(migrate(&host, &lists, "ptarmigan", children, None)?);
        }
    }
    Ok(MigrationReport { bench: "migration", rows })
}

impl MigrationReport {
    /// Returns a table of at most 80 columns.
    pub(crate) fn text(&self) -> Text {
        let mut table = TextTable::new(
            &["nodes", "children", "policy", "kept", "foreign", "foreign kB"],
            &[5, 9, -10, 8, 8, 11],
        );
        for row in &self.rows {
            let bytes = row.foreign * 4;
            table.row(&[&row.nodes, &row.children, &row.policy, &row.kept, &row.foreign, &bytes]);
        }
        let mut text = Text::default();
        text.table(table);
        // Writing to a text cannot fail.
        if let Some(row) = self.rows.first() {
            let _ = writeln!(
                text,
                "\nPages, when all CPUs are idle; a child has {} tables. v5 sends them home\n\
                 before the flush, ptarmigan after it. linux-2.4 lists PTE pages and v2004\n\
                 does not, so that it traps the others: those above the leaves.",
                row.tables
            );
        }
        let once = |row: &&MigrationRow| row.policy == "v2004" && row.children == CHILDREN[0];
        for row in self.rows.iter().filter(once) {
            if let Some(pages) = row.watermark {
                let nodes = row.nodes;
                let _ = writeln!(
                    text,
                    "linux-2.4, v2004, {nodes} nodes: a CPU may keep {pages} pages, whatever its node has."
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_rest_on_foreign_nodes_in_2008_alone() {
        let report = run().expect("the machines run");
        assert_eq!(report.rows.len(), NODES.len() * CHILDREN.len() * 5);
        assert!(
            report.text().to_string().lines().all(|line| line.chars().count() <= 80),
            "{}",
            report.text()
        );
        for row in &report.rows {
            match (row.policy, row.children) {
                ("v2008", 1) => assert_eq!(row.foreign, row.tables as usize, "all of one child: {row:?}"),
                ("v2008", _) => {
                    // All cached pages belong to node 0 and are elsewhere; no list exceeds its cap.
                    let lists = CPUS_PER_NODE * (row.nodes - 1) * 2;
                    let cap = (BYTES_PER_NODE >> 12) as usize / 16 / CPUS_PER_NODE;
                    assert_eq!(row.foreign, row.kept, "{row:?}");
                    assert!((40 * row.tables as usize..=lists * cap).contains(&row.foreign), "{row:?}");
                }
                ("linux-2.4" | "v2004", children) => {
                    // All tables, or those above the leaves, of each child, until a watermark is
                    // reached.
                    let leaves = if row.policy == "v2004" { PAGES as usize } else { 0 };
                    let above = row.tables as usize - leaves;
                    let watermark = row.watermark.expect("it has one");
                    let cpus = CPUS_PER_NODE * (row.nodes - 1);
                    assert_eq!(row.foreign, row.kept, "{row:?}");
                    assert!(row.foreign <= cpus * (watermark + 1), "{row:?}");
                    let frames = (BYTES_PER_NODE as usize * row.nodes) >> 12;
                    assert!(watermark.abs_diff(frames / 512 + 500) < 8, "of all memory: {row:?}");
                    if children == 1 || children as usize * above <= cpus * watermark {
                        assert_eq!(row.foreign, children as usize * above, "{row:?}");
                    }
                }
                _ => assert_eq!(row.foreign, 0, "{row:?}"),
            }
            // Pages that the library sends home are cached there for the next child.
            assert!(row.policy != "ptarmigan" || row.kept >= row.tables as usize, "{row:?}");
        }
    }
}
