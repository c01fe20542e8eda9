//! The options.
use super::model::{LowMemory, MOST_MEMORY, entries};
use super::table::{Grid, size};
use clap::{Args, ValueEnum};
use ptarmigan_replay::{PlacedMachine, parse_bytes, parse_memory};
use ptarmigan_term::Failure;
use std::path::{Path, PathBuf};

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PartName {
    /// What high tables cost: a recording with each placement
    Time,
    /// When they pay: the model, and sparse processes on the library
    Memory,
    /// Both
    All,
}

/// Options of `ptarmigan-papers userpte`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UserPteOptions {
    /// Part to run.
    #[arg(long, value_enum, value_name = "PART", default_value = "all")]
    pub(super) part: PartName,
    /// Low memory of the machines of both parts.
    #[arg(long, default_value = "768M", value_parser = parse_memory, value_name = "SIZE")]
    pub(super) low: u64,
    #[command(flatten)]
    pub(super) time: TimeOptions,
    #[command(flatten)]
    pub(super) memory: MemoryOptions,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// Options of the part `time`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the part time")]
pub(super) struct TimeOptions {
    /// Runs of each placement, 5 or more. Placements take turns.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(5..=1000))]
    pub runs: u32,
    /// Recording to replay [default: the shipped linux-build, whole].
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Memory of the machine, up to 64G.
    #[arg(long, default_value = "4G", value_parser = parse_memory, value_name = "SIZE")]
    memory: u64,
    /// Back data frames with memory, and clear and copy them for real.
    #[arg(long)]
    touch_data: bool,
    /// Copies of the recording that run at once, with a worker each.
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u16).range(1..=64))]
    copies: u16,
}

/// Options of the part `memory`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of the part memory")]
pub(super) struct MemoryOptions {
    /// Memories of machines, up to 64G each.
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", value_parser = parse_memory,
          default_values = ["1G", "2G", "4G", "8G", "16G", "32G", "64G"])]
    ram: Vec<u64>,
    /// Sparseness: one of N entries of a leaf table is in use, up to 5 numbers from 1 to 512.
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_values_t = [1, 2, 10, 64, 512],
          value_parser = clap::value_parser!(u32).range(1..=entries() as i64))]
    one_in: Vec<u32>,
    /// Low memory that the kernel's code and data take: an assumption.
    #[arg(long, default_value = "16M", value_parser = parse_bytes, value_name = "SIZE")]
    kernel: u64,
    /// Low memory that slabs take: an assumption.
    #[arg(long, default_value = "64M", value_parser = parse_bytes, value_name = "SIZE")]
    slab: u64,
    /// Spaces, whose roots and middle tables are always low.
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    processes: u32,
    /// Memory that is mapped, in percent of all [default: all high memory].
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    mapped: Option<u32>,
    /// Write a picture of the table to a file (SVG).
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl TimeOptions {
    /// Returns the recording, `None` for the shipped one.
    pub fn recording(&self) -> Option<&Path> {
        self.trace.as_deref()
    }

    /// Returns the machine.
    ///
    /// # Errors
    /// If it has no high memory, or more than its entries name.
    pub fn machine(&self, low: u64) -> Result<PlacedMachine, Failure> {
        let TimeOptions { memory, touch_data, copies, .. } = *self;
        if !(low + 1..=MOST_MEMORY).contains(&memory) {
            return Err(Failure::new(format!(
                "--memory {}: more than --low {} and at most {}",
                size(memory),
                size(low),
                size(MOST_MEMORY)
            )));
        }
        Ok(PlacedMachine { memory, low, touch_data, copies: usize::from(copies) })
    }
}

impl MemoryOptions {
    /// Returns the rows and columns of the tables.
    ///
    /// # Errors
    /// If there are more columns than a table has room for, more memory than a machine can have, or
    /// no low memory left.
    pub fn grid(&self, low: u64) -> Result<Grid, Failure> {
        const COLUMNS: usize = 5;
        if self.one_in.len() > COLUMNS {
            return Err(Failure::new(format!("--one-in: {} numbers, {COLUMNS} at most", self.one_in.len())));
        }
        if let Some(ram) = self.ram.iter().find(|ram| **ram > MOST_MEMORY) {
            let (ram, most) = (size(*ram), size(MOST_MEMORY));
            return Err(Failure::new(format!("--ram {ram}: such machines have at most {most}")));
        }
        let kernel = self.kernel.saturating_add(self.slab);
        if kernel >= low {
            return Err(Failure::new(format!("--kernel and --slab leave nothing of --low {}", size(low))));
        }
        let low = LowMemory { bytes: low, kernel, spaces: u64::from(self.processes), mapped: self.mapped };
        Ok(Grid { low, rams: self.ram.clone(), one_in: self.one_in.clone() })
    }
}
