//! Fresh processes: each has other addresses, and other memory behind them.
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::case::Grid;
use super::host::HostFlush;
use super::sample::{CaseTime, sample};
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure};

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub grid: Grid,
    pub passes: usize,
    pub seed: u64,
}

/// The option by which the command runs itself.
pub(super) const OPTION: &str = "--process";

impl Order {
    /// Has another process carry the order out.
    pub(super) fn send(&self) -> Result<Vec<CaseTime>, Failure> {
        let program = std::env::current_exe().context("this program")?;
        let order = serde_json::to_string(self).context("an order")?;
        let mut command = Command::new(program);
        command.args(["calibrate", OPTION, &order]).stdin(Stdio::null());
        let out = command.output().context("a process to measure in")?;
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr);
            return Err(Failure::new(format!("a process to measure in: {}", why.trim())));
        }
        serde_json::from_slice(&out.stdout).context("samples of a process")
    }

    /// Carries an order out in this process, and prints the samples.
    pub(super) fn obey(text: &str) -> Result<(), Failure> {
        let order: Order = serde_json::from_str(text).context("an order")?;
        let samples = order.measure()?;
        print::stdout(&serde_json::to_string(&samples).context("samples")?)
    }

    /// Measures in this process.
    pub(super) fn measure(&self) -> Result<Vec<CaseTime>, Failure> {
        self.grid.check()?;
        let mut host = HostFlush::new(self.grid, self.seed).context("pages to flush")?;
        sample(&mut host, self.grid, self.passes, self.seed).context("flushes")
    }
}
