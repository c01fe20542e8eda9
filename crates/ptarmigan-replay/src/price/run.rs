//! Replays a recording under the eyes of rows.
use super::answer::{Answer, Priced};
use super::guard::Guarded;
use super::kernel::KernelTime;
use super::row::Row;
use super::shown::Rows;
use super::tables::TableEffects;
use super::whole::{LEVELS, Whole};
use crate::counted::CountedMachine;
use crate::flushes::FlushSurvey;
use crate::model::page_prices::PriceSet;
use crate::observed::Programs;
use crate::platform::RecordedX86;
use crate::setup::SoloTrace;
use crate::workers::watch::{Both, Watch};
use ptarmigan::machine::Machine;
use ptarmigan::quicklist::{Layered, Policy};
use ptarmigan_bench::clock::Clock;
use ptarmigan_hosted::Delivery;
use ptarmigan_term::{Context, Failure};
use std::time::Duration;

/// The answers about a recording.
pub struct Pricing {
    /// One for each row, in their order.
    pub rows: Vec<Priced>,
    /// The time that all is a part of.
    pub kernel: KernelTime,
    /// Faults.
    pub faults: u64,
    /// Forks that copied a space.
    pub forks: u64,
    /// Spaces.
    pub spaces: u64,
}

impl Pricing {
    /// Returns the part of the kernel's time that an answer saves; below 0 if it costs more than it
    /// saves. `None` if its work, or the time, has no price.
    pub fn share(&self, answer: &Answer, prices: &PriceSet) -> Option<f64> {
        let ns = answer.ns(prices).filter(|_| !answer.savings.is_empty() && self.kernel.ns > 0.0)?;
        Some(ns / self.kernel.ns)
    }
}

/// A row with its answer.
type Answered<'r> = (Box<dyn Row + 'r>, Priced);

/// Replays the recording for each row that a replay can judge.
fn judged(solo: &SoloTrace, usual: CountedMachine, rows: Vec<Answered<'_>>) -> Result<Vec<Priced>, Failure> {
    let clock = Clock::calibrate();
    let mut before = None;
    let mut all = Vec::new();
    for (row, mut priced) in rows {
        if let Ok(answer) = &mut priced.answer
            && let Some(machine) = row.machine(usual)
        {
            let before = match &before {
                Some(before) => before,
                None => before.insert(solo.count(&usual, clock)?),
            };
            answer.judgement = row.judge(before, &solo.count(&machine, clock)?);
        }
        all.push(priced);
    }
    Ok(all)
}

/// Replays a recording on the library, with 1 MiB to 8 TiB of `memory`, in bytes, and asks each row
/// for its answer. Rows get `limit` of time each, in all. `prices` weigh one answer against
/// another; those of [`PriceSet::default`] are all 0, which is enough for counts.
///
/// # Errors
/// If the machine cannot be set up, or memory runs out.
pub fn price(
    solo: &SoloTrace,
    memory: u64,
    rows: Vec<Box<dyn Row + '_>>,
    prices: &PriceSet,
    limit: Duration,
) -> Result<Pricing, Failure> {
    let (rows, pricing) = price_under(solo, memory, rows, prices, limit, None)?;
    let rows = judged(solo, CountedMachine::usual(memory), rows)?;
    Ok(Pricing { rows, ..pricing })
}

/// Does so in a replay that `other` observes, too, and returns the rows with their answers beside
/// the rest. No other replay judges them.
///
/// # Errors
/// As [`price`].
pub fn price_under<'r>(
    solo: &SoloTrace,
    memory: u64,
    rows: Vec<Box<dyn Row + 'r>>,
    prices: &PriceSet,
    limit: Duration,
    other: Option<&mut (dyn Watch + Send)>,
) -> Result<(Vec<Answered<'r>>, Pricing), Failure> {
    let trace = solo.trace();
    let linux = FlushSurvey::of(trace);
    let programs = Programs::of(trace, solo.schedule());
    let setup = solo.on(memory);
    let fresh = setup.fresh()?;
    let tables = TableEffects::new(fresh.host().frames());
    let layered = Layered::new(tables, fresh.quicklists()?).context("layers")?;
    let (tables, policy): (_, &dyn Policy) = (layered.layer(), &layered);
    let machine = fresh.machine(policy, RecordedX86::NO_MMU, Delivery::AtOnce)?;
    let whole = Whole {
        trace,
        prices,
        programs: &programs,
        linux: linux.as_ref(),
        faults: 0,
        forks: 0,
        forked_entries: 0,
        spaces: (1, 1),
        tables: [0; LEVELS],
        tables_peak: [0; LEVELS],
    };
    let rows = rows.into_iter().map(Guarded::new).collect();
    let mut watch = Rows::new(rows, limit, solo.program(), tables, || machine.tlb().counts(), whole);
    let ran = {
        let mut both = Both(&mut watch, other);
        fresh.run(&machine, vec![&mut both], Some("pricing"))?
    };
    setup.check_memory(&ran.outcome)?;
    let (rows, whole) = watch.finish();
    let kernel = KernelTime::of(&whole);
    let Whole { faults, forks, spaces, .. } = whole;
    let rows = rows.into_iter().map(|row| row.answer(&whole)).collect();
    Ok((rows, Pricing { rows: Vec::new(), kernel, faults, forks, spaces: spaces.0 }))
}
