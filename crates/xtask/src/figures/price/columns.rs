//! The columns of the matrix: the key figure of each proposal.
use super::recording::PricedAnswer;
use ptarmigan_term::Mean;

/// The key figure of a proposal, or its text in a cell.
type Get<T> = fn(&PricedAnswer) -> Result<T, String>;

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
    /// A second figure of the paragraph, which no cell has.
    pub more: Option<More>,
}

/// A figure beside the key figure.
pub struct More {
    /// A sentence about its range, which stands in place of `{}`.
    pub says: &'static str,
    /// The figure.
    pub value: Get<f64>,
}

impl Column {
    const fn new(
        [proposal, head, says]: [&'static str; 3],
        unit: &'static str,
        digits: usize,
        value: Get<f64>,
    ) -> Self {
        Column { proposal, head, says, unit, digits, value, remark: None, more: None }
    }

    const fn with(self, remark: Get<String>) -> Self {
        Column { remark: Some(remark), ..self }
    }

    const fn and(self, says: &'static str, value: Get<f64>) -> Self {
        Column { more: Some(More { says, value }), ..self }
    }

    /// Returns the figure as a text.
    pub fn shown(&self, value: f64) -> String {
        format!("{:.*}", self.digits, Mean(value))
    }

    /// Returns the cell of an answer.
    ///
    /// # Errors
    /// With the figure that the answer lacks.
    pub fn cell(&self, answer: &PricedAnswer) -> Result<String, String> {
        let value = self.shown((self.value)(answer)?);
        self.remark.map_or(Ok(value.clone()), |remark| Ok(format!("{value} ({})", remark(answer)?)))
    }
}

/// All columns, in the order of the page.
pub const COLUMNS: [Column; 11] = [
    Column::new(
        ["blocks", "blocks, % (size)", "The best size takes {} of the faults on anonymous memory away."],
        " %",
        0,
        |answer| answer.figure(&format!("faults saved at {}", best(answer)?)),
    )
    .with(best)
    .and("It clears {} pages for each one touched.", |answer| {
        answer.figure(&format!("pages cleared for each one touched at {}", best(answer)?))
    }),
    Column::new(
        ["base-pages", "base-pages, % (size)", "The better of two sizes takes {} of all faults away."],
        " %",
        0,
        |answer| answer.figure(&format!("faults saved at {}", best(answer)?)),
    )
    .with(best)
    .and("For each page that is cleared or copied today it takes {}.", |answer| {
        answer.figure(&format!("pages allocated for each one touched at {}", best(answer)?))
    }),
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
    Column::new(
        [
            "requests",
            "requests (pinned)",
            "CPUs are asked {} times to flush (in brackets: with pinned processes). Pins or an exact mask \
            save, whichever is better.",
        ],
        "",
        0,
        |answer| answer.figure("requests sent"),
    )
    .with(|answer| Ok(format!("{:.0}", Mean(left_by_pins(answer)?)))),
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

/// Returns the size that the answer names: "Blocks of 32K take ...", "Base pages of 64K take ...".
fn best(answer: &PricedAnswer) -> Result<String, String> {
    let size = answer.counted.split_once(" of ").and_then(|(_, rest)| rest.split_once(" take "));
    let size = size.map(|(size, _)| size).filter(|size| !size.contains(' '));
    size.map(str::to_owned).ok_or_else(|| format!("{} names no size: {}", answer.name, answer.counted))
}

/// Returns the requests of processes with several threads, which pins do not spare.
fn left_by_pins(answer: &PricedAnswer) -> Result<f64, String> {
    Ok(answer.figure("requests sent")? - answer.figure("requests spared by pins")?)
}

/// Returns a part of a figure, in percent; 0 if the whole is 0.
fn part(answer: &PricedAnswer, part: &str, whole: &str) -> Result<f64, String> {
    Ok(100.0 * answer.figure(part)? / answer.figure(whole)?.max(1.0))
}
