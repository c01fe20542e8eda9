//! `ptarmigan-papers userpte`: leaf tables in high memory, their cost and when they pay.
//!
//! * `time`: the experiment of 2010, on a recording.
//! * `model`: the users of low memory; `table` and `picture` show it.
//! * `simulate`: sparse processes on the library, on a small machine, beside the model's
//!   prediction. `load` is their work.
//! * `args` are the options, `report` the rows.
mod args;
mod load;
mod model;
mod picture;
mod report;
mod simulate;
mod table;
mod time;

pub(crate) use args::UserPteOptions;
pub(crate) use report::UserPteBench;

use args::PartName;
use ptarmigan_term::{Context, Failure};

/// Runs the parts that `options` name.
///
/// # Errors
///
/// If options contradict each other, a recording does not fit, something cannot be set up or
/// written, or `auto` dies where `high` does not.
pub(crate) fn run(options: &UserPteOptions) -> Result<UserPteBench, Failure> {
    let mut parts = Vec::new();
    // Errors in either part show before the first one takes its time.
    let has = |part| options.part == part || options.part == PartName::All;
    let grid = has(PartName::Memory).then(|| options.memory.grid(options.low)).transpose()?;
    let machine = has(PartName::Time).then(|| options.time.machine(options.low)).transpose()?;
    if let Some(grid) = grid {
        parts.push(table::part(&grid));
        if let Some(path) = &options.memory.svg {
            let text = picture::draw(&grid).ok_or_else(|| {
                Failure::new(
                    "--svg: there is nothing to draw: give two or more --ram above --low, with room in it",
                )
            })?;
            std::fs::write(path, text).context(path.display())?;
        }
        parts.push(simulate::part(&grid)?);
    }
    if let Some(machine) = machine {
        parts.push(time::part(options.time.recording(), &machine, options.time.runs)?);
    }
    Ok(UserPteBench::new(parts))
}
