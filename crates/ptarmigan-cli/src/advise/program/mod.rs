//! Advice to the author of a program: the recording is written anew as the corrected program would
//! make it, and both are replayed.
//!
//! * `seen` is a finder's view of a replay; `survey` is the replay that provides it.
//! * `edit` writes a recording anew; `event_set` and `page_set` are sets of its events and pages.
//! * `work` prices what Linux does for pages, with prices that are measured on this host.
//! * `filled` finds the faults that mapped several pages at once.
//! * `churn` follows memory that comes back, with `pool`; `growth` arrays that are copied to grow.
//! * `library` counts the large pages that the library has in the recording as it is.
//! * `huge`, `empty`, `shared`, `protect`, `awaited`, `pooler`, `subshells`, `starts`, `sharing`,
//!   `forks`, `zones` with `pack` and `spread`, and `share` each find one kind.
//! * `switches` names the switches of allocators, and `languages` the ways to start children.
//! * `needs` counts the cases of each kind, for the comparison with a second recording.
//! * `wording` puts their findings into words, by program, and weighs them.
mod awaited;
mod churn;
mod edit;
mod empty;
mod event_set;
mod filled;
mod forks;
mod growth;
mod huge;
mod languages;
mod library;
mod needs;
mod pack;
mod page_set;
mod pool;
mod pooler;
mod protect;
mod rejected;
mod seen;
mod share;
mod shared;
mod sharing;
mod spread;
mod starts;
mod subshells;
mod survey;
pub mod switches;
mod wording;
pub mod work;
mod zones;

use super::advice::Verdict;
use super::facts::{Facts, ProgramFacts};
use super::figures::Figures;
use super::measure::Measure;
use awaited::Awaited;
use churn::Churn;
use empty::EmptyTables;
use filled::FilledBlocks;
use foldhash::HashSet;
use forks::ForkSizes;
use growth::Growth;
use huge::{HugeRegions, LeftOut};
pub use needs::Needs;
use pooler::Servers;
use protect::Protections;
use ptarmigan_replay::SoloTrace;
use ptarmigan_replay::model::page_prices::PagePrices;
use ptarmigan_replay::price::{BlockSizes, Requests};
use ptarmigan_term::Failure;
use rejected::Unfit;
use seen::{All, Finder};
use share::Forks;
use shared::SharedMappings;
use sharing::SharingLost;
use starts::Starts;
use std::collections::BTreeMap;
use subshells::Subshells;
use wording::Look;
use wording::PIN;
pub use wording::STARTS;
use zones::Zones;

/// The advice to the author of a program.
pub struct Found {
    /// The result for each kind.
    pub verdicts: Vec<Verdict>,
    /// The cases of each kind.
    pub needs: Needs,
}

/// Looks for advice to the author of a recorded program.
///
/// # Errors
/// If a replay cannot be set up, or memory runs out.
pub fn advise(
    recorded: &SoloTrace,
    facts: &Facts,
    whole: &Figures,
    measure: &Measure,
    prices: Option<PagePrices>,
) -> Result<Found, Failure> {
    let trace = recorded.trace();
    measure.say("looking at the program");
    let shares = Forks::of(trace);
    let starters = shares.starters();
    let growers = facts.numbers(|program| switches::grows(&program.runtimes));
    let mut huge =
        HugeRegions::new(trace.access_unknown, starters.clone(), growers.clone(), LeftOut::default());
    let (mut empty, mut filled) = (EmptyTables::default(), FilledBlocks::new(trace.huge));
    let (mut shared, mut servers) = (SharedMappings::new(facts, trace), Servers::new(facts, trace));
    let mut sizes = ForkSizes::new(facts, &starters);
    let (mut sharing, subshells) = (SharingLost::new(facts, trace), Subshells::of(trace, facts));
    let starts = Starts::of(trace, facts);
    let (mut churn, mut protections) = (Churn::new(trace.access_unknown), Protections::default());
    let mut growth = Growth::default();
    let awaits =
        |program: &ProgramFacts| program.waits_for_pages() && program.threads > 0 && program.forks == 0;
    let mut awaited = Awaited::new(facts.numbers(awaits));
    let mut all: Vec<&mut dyn Finder> = vec![
        &mut churn,
        &mut growth,
        &mut protections,
        &mut huge,
        &mut empty,
        &mut shared,
        &mut servers,
        &mut sizes,
        &mut sharing,
        &mut awaited,
        &mut filled,
    ];
    let (mut all, mut blocks) = (All(std::mem::take(&mut all)), BlockSizes::default());
    let mut requests = Requests::default();
    let set = prices.map(|prices| prices.middle).unwrap_or_default();
    let ([answer, pins], kernel) =
        survey::survey_and_ask(recorded, &measure.usual, &mut all, [&mut blocks, &mut requests], &set)?;
    let zones = Zones::of(trace, &filled);
    huge.finish();
    sharing.finish();
    growth.finish();
    let look = Look { recorded, facts, whole, measure, prices };
    let (huge, unfit) = without_unfit(&look, huge, &starters, growers)?;
    let mut needs = Needs::default();
    let mut add = |kind, program: usize, cases| needs.add(kind, &facts.programs[program].name, cases);
    // A region that is given up and filled again is one case.
    let regions: BTreeMap<(u32, u64), u32> =
        huge.spots.iter().map(|spot| ((spot.space, spot.region), spot.program)).collect();
    regions.into_values().for_each(|number| add("huge-pages", facts.program(number), 1));
    protections.programs.iter().for_each(|(number, of)| add("protect", facts.program(*number), of.pages));
    growth.programs.iter().for_each(|(number, of)| add("growth", facts.program(*number), of.steps));
    churn.cases().for_each(|(number, cases)| add("churn", facts.program(number), cases));
    shared.programs().for_each(|program| add("shared-memory", program, 1));
    servers.found().values().for_each(|server| add("pooler", server.program, server.children));
    empty.regions().into_iter().for_each(|(number, n)| add("empty-tables", facts.program(number), n));
    let has_threads = |number| facts.programs[facts.program(number)].threads > 0;
    let spread = [spread::sparse(&zones), spread::arenas(&zones, has_threads)];
    for found in &spread {
        found.regions().for_each(|(number, regions)| add(found.kind, facts.program(number), regions));
    }
    // A small process that forks as often has fewer of its pages copied.
    sizes.starting.values().for_each(|fork| add("vfork", fork.program, fork.pages));
    awaited.spared().into_iter().for_each(|(number, n)| add("userfault", facts.program(number), n));
    sharing.programs.iter().for_each(|(program, lost)| add("sharing-lost", *program, lost.copies));
    subshells.shells.iter().for_each(|(program, of)| add("subshells", *program, of.forks));
    starts.programs.iter().for_each(|(program, of)| add(STARTS, *program, of.starts));
    sizes.programs.iter().for_each(|(program, copied)| add("fork-memory", *program, copied.pages));
    for (program, row) in look.requests(&requests) {
        add(PIN, program, row.pinnable);
    }
    let mut verdicts = vec![
        look.huge(&huge, unfit, filled.count())?,
        look.churn(&churn)?,
        look.shared(&shared)?,
        look.pooler(&servers)?,
        look.empty(&empty)?,
    ];
    for found in spread {
        verdicts.push(look.spread(found)?);
    }
    verdicts.extend(look.mapped_again(&churn)?);
    verdicts.push(look.growth(&growth)?);
    verdicts.extend(look.protect(&protections)?);
    verdicts.extend(look.share(&shares, &sizes)?);
    verdicts.extend(look.forks(&sizes)?);
    verdicts.extend(look.sharing(&sharing)?);
    verdicts.push(look.subshells(&subshells)?);
    verdicts.push(look.starts(&starts)?);
    verdicts.push(look.awaited(&awaited)?);
    let spared = verdicts.iter().map(Verdict::spared_by_huge_pages).sum();
    verdicts.push(look.blocks(&blocks, answer.ok(), spared)?);
    verdicts.extend(look.pin(&requests, pins, kernel));
    Ok(Found { verdicts, needs })
}

/// Looks once more for huge pages if regions are to be left out: those that a program forks and
/// writes to, regions of programs that start others, wait for each page or turn huge pages off, and
/// regions of which `mprotect` changes parts.
fn without_unfit(
    look: &Look<'_>,
    huge: HugeRegions,
    starters: &HashSet<u32>,
    growers: HashSet<u32>,
) -> Result<(HugeRegions, Unfit), Failure> {
    let (forked, wrappers) = (huge.unfit(), huge.of_programs(|number| !look.is_told(number)));
    let protected = huge.protected_in_part();
    let awaited = huge.of_programs(|number| look.waits_for_pages(number));
    let disabled = huge.of_programs(|number| switches::turns_huge_pages_off(look.facts.name(number)));
    if [&forked, &wrappers, &protected, &awaited, &disabled].iter().all(|left| left.is_empty()) {
        return Ok((huge, Unfit::default()));
    }
    let full = |left: &LeftOut| {
        huge.spots.iter().filter(|spot| left.contains(&(spot.space, spot.region))).count() as u64
    };
    let unfit = Unfit {
        forked: full(&forked),
        wrappers: full(&wrappers),
        protected: full(&protected),
        awaited: full(&awaited),
        disabled: full(&disabled),
    };
    let left_out = [forked, wrappers, protected, awaited, disabled].into_iter().flatten().collect();
    let unknown = look.recorded.trace().access_unknown;
    let mut again = HugeRegions::new(unknown, starters.clone(), growers, left_out);
    survey::survey(look.recorded, &look.measure.usual, &mut again)?;
    again.finish();
    Ok((again, unfit))
}

#[cfg(test)]
mod tests {
    use super::super::advice::Advice;
    use super::super::measure::Side;
    use super::*;
    use ptarmigan_replay::Trace;
    use ptarmigan_replay::model::page_prices::{PriceSet, UnitPrices};
    use ptarmigan_trace::{Event, FaultFlags, Header, Kind, MapFlags, Method, Prot, Writer};

    /// Returns the advice about a program that fills 8 MiB, where the first write to a huge page
    /// takes `huge` times as long as to a small one, and to new memory `new` times.
    fn filled(huge: f64, new: f64) -> Verdict {
        let mut writer = Writer::new(Vec::new(), &Header::new("app", 1, Method::Synthetic), 3).unwrap();
        let (start, pages) = (1 << 27, 4 * seen::REGION);
        let map = Kind::Mmap { start, pages, prot: Prot(3), flags: MapFlags(MapFlags::ANON) };
        let flags = FaultFlags(FaultFlags::WRITE | FaultFlags::USER);
        let faults = (0..pages).map(|page| Kind::Fault { page: start + page, flags });
        for kind in [map].into_iter().chain(faults).chain([Kind::Exit { last: true }]) {
            writer.event(&Event { task: 0, cpu: 0, kind }).unwrap();
        }
        let trace = Trace::from_bytes(&writer.finish(0).unwrap().0, "test").unwrap();
        let (facts, recorded, measure) = (Facts::of(&trace), SoloTrace::new(trace), Measure::new(1 << 28, 0));
        let (whole, _) = measure.alone(Side { trace: &recorded, on: measure.usual }).unwrap();
        let fresh = |ns| UnitPrices { fresh: ns, ..UnitPrices::default() };
        let middle = PriceSet { small: fresh(1000.0), huge: fresh(huge * 1000.0), ..PriceSet::default() };
        let mut prices = PagePrices { middle, ..PagePrices::default() };
        prices.rounds.fill(middle);
        (prices.new.small, prices.new.huge) = (1000.0, new * 1000.0);
        let mut found = advise(&recorded, &facts, &whole, &measure, Some(prices)).unwrap();
        found.verdicts.swap_remove(0)
    }

    fn advised(verdict: Verdict) -> Advice {
        match verdict {
            Verdict::Advised(advice) => *advice,
            Verdict::Not(one) => panic!("{}", one.reason),
        }
    }

    #[test]
    fn huge_pages_that_take_more_time_are_not_advised() {
        let Verdict::Not(worse) = filled(1024.0, 2000.0) else { panic!("advised") };
        let reason = "use huge pages for 4 regions of 2 MiB, all full: app: saves 2,044 faults, but takes 4.1 ms \
                      instead of 2.0 ms of system time by prices of pages measured here (from 6.0 ms more to 2.0 ms more)";
        assert_eq!(worse.reason, reason);
    }

    #[test]
    fn a_saving_that_may_be_a_loss_has_no_percentage() {
        let advice = advised(filled(100.0, 1000.0));
        assert!(advice.details.uncertain && advice.linux.is_some_and(|linux| linux.share.is_none()));
        let figure = "Saves 2,044 of 2,048 faults. It takes 400 µs instead of 2.0 ms of system \
                      time by prices of pages measured here (from 2.0 ms more to 1.6 ms less): try it and measure.";
        assert!(advice.figure.starts_with(figure) && !advice.figure.contains('%'), "{}", advice.figure);
    }

    #[test]
    fn a_certain_saving_has_its_range_and_percentage() {
        let advice = advised(filled(100.0, 200.0));
        assert!(!advice.details.uncertain, "{}", advice.figure);
        assert!(
            advice.figure.contains(" (from 1.2 ms less to 1.6 ms less): 80 % less."),
            "{}",
            advice.figure
        );
        assert!(advice.details.seconds.is_some_and(|seconds| (seconds - 0.001_648).abs() < 1e-9));
    }
}
