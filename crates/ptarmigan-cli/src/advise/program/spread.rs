//! Layouts that spread few pages over many tables, and arenas of an allocator.
//!
//! Zones count while they live: the most tables that packing saves at one moment are told. A table
//! that a zone makes again each time it is mapped is not saved by packing: memory that comes and
//! goes should stay.
use super::pack::Packed;
use super::seen::REGION;
use super::zones::{Zone, Zones};
use foldhash::{HashMap, HashMapExt};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use std::collections::BTreeMap;

/// The kind of advice on mappings.
pub const SPARSE_LAYOUT: &str = "sparse-layout";
/// The kind of advice on arenas of glibc's allocator.
pub const ARENAS: &str = "arenas";
/// The fewest tables of a program that packing has to save.
const LEAST: u64 = 4;

/// Zones to be packed.
pub struct PackableZones {
    /// The kind of advice.
    pub kind: &'static str,
    /// How to follow it.
    pub how: &'static str,
    /// The reason that is given without such a program.
    pub without: &'static str,
    /// The pages that move, by program.
    pub programs: HashMap<u32, Packed>,
}

/// Finds programs with sparse mappings.
pub fn sparse(zones: &Zones) -> PackableZones {
    PackableZones {
        kind: SPARSE_LAYOUT,
        how: "place what is used together in one mapping, one after the other: a dense array with an index \
              instead of an address computed from a key, small buffers from one pool.",
        without: "no program spreads few pages of its own mappings over many tables",
        programs: packed(zones, |zone| !zone.arena),
    }
}

/// Finds programs with an allocator that has arenas: the C library makes none without threads.
pub fn arenas(zones: &Zones, has_threads: impl Fn(u32) -> bool) -> PackableZones {
    PackableZones {
        kind: ARENAS,
        how: "MALLOC_ARENA_MAX=1, GLIBC_TUNABLES=glibc.malloc.arena_max=1, or mallopt(M_ARENA_MAX, 1): one \
              arena for all threads, which wait for each other in malloc; 2 if they do.",
        without: "no allocator has arenas of 64 MiB that one arena could replace",
        programs: packed(zones, |zone| zone.arena && has_threads(zone.program)),
    }
}

/// Packs the chosen zones of each program in which that saves tables.
fn packed(zones: &Zones, chosen: impl Fn(&Zone) -> bool) -> HashMap<u32, Packed> {
    let mut programs: BTreeMap<u32, Vec<(u32, &Zone)>> = BTreeMap::new();
    for (zone, number) in zones.zones.iter().zip(0..) {
        if zone.movable && !zone.pages.is_empty() && chosen(zone) {
            programs.entry(zone.program).or_default().push((number, zone));
        }
    }
    let saves = |packed: &Packed| packed.regions() >= packed.pages().div_ceil(REGION) + LEAST;
    let of = |(program, all): (u32, Vec<(u32, &Zone)>)| {
        let layout = &zones.programs[&program];
        let packed = Packed::new(&all, &at_peak(&all), &layout.mapped).filter(saves)?;
        (!layout.sanitized).then_some((program, packed))
    };
    programs.into_iter().filter_map(of).collect()
}

/// Returns the zones that are there when packing saves the most tables.
fn at_peak<'z>(zones: &[(u32, &'z Zone)]) -> Vec<(u32, &'z Zone)> {
    let regions = |zone: &Zone| {
        let mut regions: Vec<u64> = zone.pages.iter().map(|page| page / REGION).collect();
        regions.dedup();
        regions
    };
    // A zone that ends makes room for one that begins in the same event.
    let begins = zones.iter().map(|(_, zone)| (zone.begin, true, *zone));
    let ends = zones.iter().filter_map(|(_, zone)| Some((zone.end?, false, *zone)));
    let mut changes: Vec<(u32, bool, &Zone)> = begins.chain(ends).collect();
    changes.sort_by_key(|(event, begins, _)| (*event, *begins));
    let (mut tables, mut pages): (HashMap<u64, u32>, u64) = (HashMap::new(), 0);
    let (mut most, mut when) = (0, 0);
    for (event, begins, zone) in changes {
        let count = zone.pages.len() as u64;
        if begins {
            pages += count;
            regions(zone).into_iter().for_each(|region| *tables.entry(region).or_default() += 1);
        } else {
            pages -= count;
            for region in regions(zone) {
                if let Some(users) = tables.get_mut(&region) {
                    *users -= 1;
                    if *users == 0 {
                        tables.remove(&region);
                    }
                }
            }
        }
        let saved = (tables.len() as u64).saturating_sub(pages.div_ceil(REGION));
        if saved > most {
            (most, when) = (saved, event);
        }
    }
    let there = |zone: &Zone| zone.begin <= when && zone.end.is_none_or(|end| end > when);
    zones.iter().filter(|(_, zone)| there(zone)).copied().collect()
}

impl PackableZones {
    /// Returns the advice, in a few words.
    pub fn title(&self) -> String {
        let sum = |of: fn(&Packed) -> u64| self.programs.values().map(of).sum::<u64>();
        let pages = several(sum(Packed::pages), "page");
        if self.kind == ARENAS {
            return format!("fewer arenas: {} of them hold {pages}", Count(sum(Packed::zones)));
        }
        format!("keep pages together: {pages} are spread over {}", several(sum(Packed::regions), "table"))
    }

    /// Returns over how many tables the pages of each program are spread.
    pub fn regions(&self) -> impl Iterator<Item = (u32, u64)> {
        self.programs.iter().map(|(number, packed)| (*number, packed.regions()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_that_come_one_after_the_other_count_once() {
        let one = |at: u64| [at * REGION, (at + 1) * REGION];
        let zones = [
            Zone::with(1, Some(5), &one(0)),
            Zone::with(5, Some(9), &one(0)),
            Zone::with(6, Some(8), &one(4)),
            Zone::with(7, None, &one(8)),
            Zone::with(9, Some(10), &one(0)),
        ];
        let numbered: Vec<(u32, &Zone)> = (0..).zip(&zones).collect();
        let chosen: Vec<u32> = at_peak(&numbered).iter().map(|(number, _)| *number).collect();
        assert_eq!(chosen, [1, 2, 3]);
    }
}
