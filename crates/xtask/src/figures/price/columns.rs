//! The columns of the matrix: the key figure of each proposal.
use super::Answer;
use ptarmigan_term::Mean;

/// The key figure of a proposal, or its text in a cell.
type Get<T> = fn(&Answer) -> Result<T, String>;

/// A column.
pub struct Column {
    /// The proposal.
    pub proposal: &'static str,
    /// The head, with the unit.
    pub head: &'static str,
    /// A sentence about the range of the key figure, which stands in place of `{}`.
    pub says: &'static str,
    /// The unit behind a figure of the sentence.
    pub unit: &'static str,
    /// Digits behind the point.
    digits: usize,
    /// The key figure.
    pub value: Get<f64>,
    /// A remark in brackets behind it.
    remark: Option<Get<String>>,
}

impl Column {
    const fn new(
        [proposal, head, says]: [&'static str; 3],
        unit: &'static str,
        digits: usize,
        value: Get<f64>,
    ) -> Self {
        Column { proposal, head, says, unit, digits, value, remark: None }
    }

    const fn with(self, remark: Get<String>) -> Self {
        Column { remark: Some(remark), ..self }
    }

    /// Returns the figure as a text.
    pub fn shown(&self, value: f64) -> String {
        format!("{:.*}", self.digits, Mean(value))
    }

    /// Returns the cell of an answer.
    ///
    /// # Errors
    /// With the figure that the answer lacks.
    pub fn cell(&self, answer: &Answer) -> Result<String, String> {
        let value = self.shown((self.value)(answer)?);
        self.remark.map_or(Ok(value.clone()), |remark| Ok(format!("{value} ({})", remark(answer)?)))
    }
}

/// All columns, in the order of the page.
pub const COLUMNS: [Column; 11] = [
    Column::new(
        [
            "blocks",
            "blocks, % (size)",
            "Blocks of the best size take {} of the faults on anonymous memory away.",
        ],
        " %",
        0,
        |answer| answer.figure(&format!("faults saved at {}", best(answer)?)),
    )
    .with(best),
    Column::new(
        ["base-pages", "base-pages, %", "Base pages of 64 KiB take {} of all faults away."],
        " %",
        0,
        |answer| answer.figure("faults saved at 64K"),
    ),
    Column::new(
        [
            "fault-around",
            "fault-around, %",
            "Windows of 512 KiB spare {} of the faults on files and shared memory.",
        ],
        " %",
        0,
        |answer| answer.figure("faults saved at 512K"),
    ),
    Column::new(["requests", "requests (pinned)", "CPUs are asked {} times to flush."], "", 0, |answer| {
        answer.figure("requests sent")
    })
    .with(|answer| {
        let left = answer.figure("requests sent")? - answer.figure("requests spared by pins")?;
        Ok(format!("{:.0}", Mean(left)))
    }),
    Column::new(
        ["deferred-flush", "deferred-flush, %", "{} of the requests could be later."],
        " %",
        0,
        |answer| answer.figure("of all requests"),
    ),
    Column::new(
        [
            "on-demand-fork",
            "on-demand-fork, %",
            "{} of the leaf tables that forks copy would be copied after all.",
        ],
        " %",
        0,
        |answer| part(answer, "tables copied later", "tables copied by forks"),
    ),
    Column::new(
        [
            "shared-tables",
            "shared-tables, %",
            "{} of the faults on shared memory are on pages that another space has in the same table.",
        ],
        " %",
        0,
        |answer| part(answer, "faults spared", "faults on shared memory"),
    ),
    Column::new(["empty-tables", "empty-tables", "Calls leave {} leaf tables empty."], "", 0, |answer| {
        answer.figure("left empty")
    }),
    Column::new(["five-levels", "five-levels, %", "{} more tables would be made."], " %", 1, |answer| {
        answer.figure("of all tables made")
    }),
    Column::new(
        ["replicas", "replicas, stores", "A second node takes {} more stores to leaf tables."],
        "",
        0,
        |answer| answer.figure("stores more on 2 nodes"),
    ),
    Column::new(["svvptc", "svvptc, %", "{} of the faults need no fence."], " %", 0, |answer| {
        answer.figure("of all faults")
    }),
];

/// Returns the size of blocks that the answer names: "Blocks of 32K take ...".
fn best(answer: &Answer) -> Result<String, String> {
    let size = answer.counted.strip_prefix("Blocks of ").and_then(|rest| rest.split(' ').next());
    size.map(str::to_owned).ok_or_else(|| format!("{} names no size: {}", answer.name, answer.counted))
}

/// Returns a part of a figure, in percent; 0 if the whole is 0.
fn part(answer: &Answer, part: &str, whole: &str) -> Result<f64, String> {
    Ok(100.0 * answer.figure(part)? / answer.figure(whole)?.max(1.0))
}
