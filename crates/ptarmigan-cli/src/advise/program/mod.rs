//! Advice to the author of a program: the recording is written anew as the corrected program would
//! make it, and both are replayed.
//!
//! * `seen` is a finder's view of a replay; `survey` is the replay that provides it.
//! * `edit` writes a recording anew.
//! * `work` prices what Linux does for pages, with prices that are measured on this host.
//! * `library` counts the large pages that the library has in the recording as it is.
//! * `huge`, `empty`, `shared`, `pooler`, `subshells`, `sharing`, `forks`, `zones` with `pack` and
//!   `spread`, and `share` each find one kind.
//! * `switches` names the switches of allocators, and `languages` the ways to start children.
//! * `needs` counts the cases of each kind, for the comparison with a second recording.
//! * `wording` puts their findings into words, by program, and weighs them.
mod edit;
mod empty;
mod forks;
mod huge;
mod languages;
mod library;
mod needs;
mod pack;
mod pooler;
mod rejected;
mod seen;
mod share;
mod shared;
mod sharing;
mod spread;
mod subshells;
mod survey;
mod switches;
mod wording;
pub mod work;
mod zones;

use super::advice::Verdict;
use super::facts::Facts;
use super::figures::Figures;
use super::measure::Measure;
use crate::page_prices::PagePrices;
use empty::EmptyTables;
use forks::ForkSizes;
use huge::{HugeRegions, LeftOut};
pub use needs::Needs;
use pooler::Servers;
use ptarmigan_replay::SoloTrace;
use ptarmigan_term::Failure;
use rejected::Unfit;
use seen::{All, Finder};
use share::Forks;
use shared::SharedMappings;
use sharing::SharingLost;
use std::collections::{BTreeMap, HashSet};
use subshells::Subshells;
use wording::Look;
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
    let mut huge = HugeRegions::new(trace.access_unknown, starters.clone(), LeftOut::new());
    let (mut empty, zones) = (EmptyTables::default(), Zones::of(trace));
    let (mut shared, mut servers) = (SharedMappings::new(facts, trace), Servers::new(facts, trace));
    let mut sizes = ForkSizes::new(facts, &starters);
    let (mut sharing, subshells) = (SharingLost::new(facts, trace), Subshells::of(trace, facts));
    let mut all: Vec<&mut dyn Finder> =
        vec![&mut huge, &mut empty, &mut shared, &mut servers, &mut sizes, &mut sharing];
    survey::survey(recorded, &measure.usual, &mut All(std::mem::take(&mut all)))?;
    huge.finish();
    sharing.finish();
    let look = Look { recorded, facts, whole, measure, prices };
    let (huge, unfit) = without_unfit(&look, huge, &starters)?;
    let mut needs = Needs::default();
    let mut add = |kind, program: usize, cases| needs.add(kind, &facts.programs[program].name, cases);
    // A region that is given up and filled again is one case.
    let regions: BTreeMap<(u32, u64), u32> =
        huge.spots.iter().map(|spot| ((spot.space, spot.region), spot.program)).collect();
    regions.into_values().for_each(|number| add("huge-pages", facts.program(number), 1));
    shared.programs().for_each(|program| add("shared-memory", program, 1));
    servers.found().values().for_each(|server| add("pooler", server.program, server.children));
    empty.regions().into_iter().for_each(|(number, n)| add("empty-tables", facts.program(number), n));
    for found in [spread::sparse(&zones, |_| true), spread::arenas(&zones, |_| true)].iter().flatten() {
        found.regions().for_each(|(number, regions)| add(found.kind, facts.program(number), regions));
    }
    // A small process that forks as often has fewer of its pages copied.
    sizes.starting().for_each(|(program, pages)| add("vfork", program, pages));
    sharing.programs.iter().for_each(|(program, lost)| add("sharing-lost", *program, lost.copies));
    subshells.shells.iter().for_each(|(program, of)| add("subshells", *program, of.forks));
    sizes.programs.iter().for_each(|(program, copied)| add("fork-memory", *program, copied.pages));
    let mut verdicts = vec![
        look.huge(&huge, unfit)?,
        look.shared(&shared)?,
        look.pooler(&servers)?,
        look.empty(&empty)?,
        look.spread(spread::sparse(&zones, |number| look.is_told(number)))?,
        look.spread(spread::arenas(&zones, |number| look.is_told(number)))?,
    ];
    verdicts.extend(look.share(&shares, &sizes)?);
    verdicts.extend(look.forks(&sizes)?);
    verdicts.extend(look.sharing(&sharing)?);
    verdicts.push(look.subshells(&subshells)?);
    Ok(Found { verdicts, needs })
}

/// Looks once more for huge pages if regions are to be left out: those that a program forks and
/// writes to, and those of programs that start others.
fn without_unfit(
    look: &Look<'_>,
    huge: HugeRegions,
    starters: &HashSet<u32>,
) -> Result<(HugeRegions, Unfit), Failure> {
    let (forked, wrappers) = (huge.unfit(), huge.of_programs(|number| !look.is_told(number)));
    if forked.is_empty() && wrappers.is_empty() {
        return Ok((huge, Unfit::default()));
    }
    let full = |left: &LeftOut| {
        huge.spots.iter().filter(|spot| left.contains(&(spot.space, spot.region))).count() as u64
    };
    let unfit = Unfit { forked: full(&forked), wrappers: full(&wrappers) };
    let left_out = forked.union(&wrappers).copied().collect();
    let mut again = HugeRegions::new(look.recorded.trace().access_unknown, starters.clone(), left_out);
    survey::survey(look.recorded, &look.measure.usual, &mut again)?;
    again.finish();
    Ok((again, unfit))
}
