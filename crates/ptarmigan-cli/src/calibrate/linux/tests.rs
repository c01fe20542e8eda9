//! Costs that are planted in a machine of tests come back.
use super::case::{Grid, Setting};
use super::ceiling::Ceiling;
use super::estimate::Estimate;
use super::fake::FakeFlush;
use super::report::{Calibration, Processes};
use super::sample::{CaseTime, sample};
use ptarmigan::tlb::CostModel;
use ptarmigan_replay::model::page_prices::{Measured, NewMemory, PagePrices, PriceSet};
use ptarmigan_replay::model::{HostName, Model};

const GRID: Grid = Grid { ceiling: 33, cpus: 1 };
const PROCESSES: u64 = 15;
const ALONE: Setting = Setting { cpus: 1, working_set: 0 };

/// Samples of processes on a machine that is changed beforehand.
fn processes(planted: f64, grid: Grid, change: impl Fn(&mut FakeFlush)) -> Vec<Vec<CaseTime>> {
    let process = |seed| {
        let mut machine = FakeFlush::planted(planted, grid, seed);
        change(&mut machine);
        let Ok(samples) = sample(&mut machine, grid, 60, seed);
        samples
    };
    (1..=PROCESSES).map(process).collect()
}

fn calibration(planted: f64, change: impl Fn(&mut FakeFlush)) -> Calibration {
    let measured = [1, 2].map(|cpus| {
        let grid = Grid { cpus, ..GRID };
        Processes { grid, processes: processes(planted, grid, &change) }
    });
    let ceiling = Ceiling { pages: GRID.ceiling, known: true };
    Calibration::of(HostName::here(), ceiling, PROCESSES as u32, &measured).unwrap()
}

#[test]
fn planted_break_evens_come_back() {
    for planted in [3.0, 37.0, 3110.0] {
        let estimate = Estimate::of(&processes(planted, GRID, |_| ()), ALONE, GRID).unwrap();
        let b = &estimate.break_even;
        let near = f64::max(1.0, 0.05 * planted);
        assert!((b.pages - planted).abs() < near, "{planted}: {b:?}");
        assert!(b.low <= b.pages && b.pages <= b.high, "{planted}: {b:?}");
        assert_eq!(b.extrapolated, planted > 33.0, "{planted}");
        assert!(!b.is_noisy(), "{planted}: {b:?}");
    }
}

#[test]
fn pages_that_are_found_again_move_the_break_even() {
    let estimate = |working_set| {
        let setting = Setting { working_set, ..ALONE };
        Estimate::of(&processes(3.0, GRID, |_| ()), setting, GRID).unwrap().break_even.pages
    };
    // 10 ns for each page, 175 ns for a page by name.
    assert!((estimate(512) - (3.0 + 5120.0 / 175.0)).abs() < 2.0, "{}", estimate(512));
    assert!((estimate(1500) - (3.0 + 15_000.0 / 175.0)).abs() < 5.0, "{}", estimate(1500));
}

#[test]
fn a_full_flush_below_one_page_has_a_break_even_of_0() {
    let processes = processes(3.0, GRID, |machine| machine.full = 0.0);
    let estimate = Estimate::of(&processes, ALONE, GRID).unwrap();
    assert!(estimate.break_even.fitted < 0.0);
    assert_eq!(estimate.break_even.pages, 0.0);
}

#[test]
fn a_machine_whose_flushes_do_not_rise_is_no_estimate() {
    let few = Estimate::of(&processes(3.0, GRID, |machine| machine.page = -50.0), ALONE, GRID);
    assert_eq!(few.unwrap_err().setting, ALONE);
}

#[test]
fn a_loud_machine_is_noisy() {
    let calibration = calibration(3.0, |machine| machine.noise = 60_000.0);
    assert!(calibration.noisy, "{:?}", calibration.break_even);
    assert!(calibration.noise().contains("--rounds"), "{}", calibration.noise());
}

#[test]
fn planted_costs_come_back_as_a_model_that_plans_by_them() {
    let calibration = calibration(3.0, |_| ());
    assert!(!calibration.noisy);
    let costs = calibration.costs_ns;
    let near = |found: f64, planted: f64, by: f64| {
        assert!((found - planted).abs() < by, "{found}, not {planted}: {costs:?}");
    };
    near(costs.ranged_page, 175.0, 5.0);
    near(costs.run.unwrap(), FakeFlush::START, 60.0);
    near(costs.full, FakeFlush::START + 3.0 * 175.0, 120.0);
    near(costs.refill.unwrap(), 10.0, 1.0);
    near(costs.ask.unwrap(), 2600.0, 100.0);
    let found = calibration.found_again_ns;
    near(found.by_name, 0.0, 0.5);
    near(found.everything, 10.0, 1.0);
    assert!(!found.names_forget_all());
    let new = NewMemory { small: 900.0, huge: 90_000.0 };
    let rounds = [1.0, 5.0, 2.0, 4.0, 3.0].map(|copied| PriceSet { copied, ..PriceSet::default() });
    let pages = PagePrices::of(new, rounds).file(Measured { unix_time: 1_764_590_000, load: 0.25 });
    let model = Model::parse(&costs.file(&calibration.host, Some(&pages)).unwrap()).unwrap();
    let read = model.page_prices.unwrap();
    assert_eq!((read.middle.copied, read.rounds[1].copied, read.new.huge), (3.0, 5.0, 90_000.0));
    assert_eq!(read.stored.map(|measured| measured.load), Some(0.25));
    assert_eq!(model.host, Some(HostName::here()));
    let CostModel::Costs(rule) = model.rule else { panic!("a rule by costs") };
    assert_eq!((rule.resident, rule.run), (512, rule.window));
}

#[test]
fn the_report_fits_a_terminal_and_says_what_is_extrapolated() {
    let calibration = calibration(3.0, |_| ());
    let text = calibration.text(true).to_string();
    let ascii = text.replace("µs", "us");
    assert!(ascii.is_ascii() && ascii.lines().all(|line| line.len() <= 80), "{text}");
    assert!(text.contains("* extrapolated: the kernel flushes at most 33 pages by name"), "{text}");
    let json = serde_json::to_value(&calibration).unwrap();
    let first = &json["break_even"][0];
    assert_eq!((first["cpus"].as_u64(), first["working_set"].as_u64()), (Some(1), Some(0)));
    assert_eq!(first["pages"], json["break_even_pages"]);
    assert!(first["low"].is_number() && first["high"].is_number());
    assert!(json["costs_ns"]["page"].is_number() && json["rounds"] == PROCESSES);
}
