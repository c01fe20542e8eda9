//! Measures, estimates, prints the result and writes the model.
use std::io::IsTerminal;
use std::process::ExitCode;

use super::case::Grid;
use super::ceiling::Ceiling;
use super::process::Order;
use super::report::{Calibration, Processes};
use crate::calibrate::CalibrateArgs;
use crate::page_prices;
use ptarmigan_bench::json::Document;
use ptarmigan_replay::model::HostName;
use ptarmigan_replay::model::page_prices::{Measured, PagePrices};
use ptarmigan_term::bar::bar;
use ptarmigan_term::output::Output;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure};

/// Times that a process carries each case out. A second CPU is often taken, and waited for.
const PASSES: [usize; 2] = [60, 20];

/// Calibrates this host.
pub(in crate::calibrate) fn run(args: &CalibrateArgs) -> Result<ExitCode, Failure> {
    if let Some(order) = &args.process {
        return Order::obey(order).map(|()| ExitCode::SUCCESS);
    }
    // A path that cannot be written is found before minutes are spent.
    let output = args.output.as_deref().map(Output::new).transpose()?;
    let ceiling = Ceiling::read()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from).min(2) as u32;
    let grids: Vec<Grid> = (1..=cpus).map(|cpus| Grid { ceiling: ceiling.pages, cpus }).collect();
    grids.iter().try_for_each(|grid| grid.check())?;
    let host = HostName::here();
    // First, while this process is small. A kernel without huge pages has none of these prices.
    let (now, pages) = (Measured::now(), page_prices::measure());
    let measured = measure(&grids, args.rounds)?;
    let mut calibration = Calibration::of(host, ceiling, args.rounds, &measured).map_err(|few| {
        let (setting, usable) = (few.setting, few.usable);
        Failure::new(format!(
            "too noisy: only {usable} of {} processes can be used for {} CPUs and a working set of {}",
            args.rounds, setting.cpus, setting.working_set
        ))
    })?;
    let pages = pages.map_err(|why| print::error(&format!("warning: {why}; the model is without them")));
    calibration.page_prices = pages.ok().map(|pages| PagePrices { stored: Some(now), ..pages });
    if args.json {
        print::stdout(&Document::new(&calibration).line().context("report")?)?;
    } else {
        print::report(&calibration.text(!std::io::stdout().is_terminal()))?;
    }
    if calibration.noisy {
        return Err(Failure::new(calibration.noise()));
    }
    if let Some(output) = output {
        let pages = calibration.page_prices.as_ref().map(|pages| pages.file(now));
        output.write(calibration.costs_ns.file(&calibration.host, pages.as_ref())?.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has processes measure, one after another; each round has one for each number of CPUs.
fn measure(grids: &[Grid], rounds: u32) -> Result<Vec<Processes>, Failure> {
    let bar = bar(u64::from(rounds) * grids.len() as u64, "measuring flushes");
    let mut measured: Vec<Processes> =
        grids.iter().map(|grid| Processes { grid: *grid, processes: Vec::new() }).collect();
    for round in 0..rounds {
        for (measured, passes) in measured.iter_mut().zip(PASSES) {
            let order = Order { grid: measured.grid, passes, seed: u64::from(round) };
            measured.processes.push(order.send()?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(measured)
}
