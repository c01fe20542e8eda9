//! Calibration on Linux on x86-64.
//!
//! Measuring does not depend on estimating. Between them are samples: the time of a case in a
//! process.
//!
//! * `random`: numbers that look random.
//! * `case`: the cases that are timed.
//! * `sample`: taking the time of all cases, on anything that flushes.
//! * `mappings`, `host`: this host, as something that flushes.
//! * `ceiling`: up to how many pages its kernel flushes by name.
//! * `process`: samples of fresh processes.
//! * `line`, `fit`, `estimate`: from samples to the break-even.
//! * `costs`: from estimates to a cost model.
//! * `brief`: this host's times in one process, for a benchmark.
//! * `picture`, `report`, `session`: the output of the command, on the terminal and as a file.
pub(super) mod brief;
mod case;
mod ceiling;
mod costs;
mod estimate;
#[cfg(test)]
mod fake;
mod fit;
mod host;
mod line;
mod mappings;
mod picture;
mod process;
mod random;
mod report;
mod sample;
pub(super) mod session;
#[cfg(test)]
mod tests;
