//! Layouts that spread few pages over many tables, and arenas of an allocator.
use super::super::advice::{Rejected, To};
use super::pack::Packed;
use super::seen::REGION;
use super::zones::{Layout, Zone, Zones};
use ptarmigan_term::Count;
use ptarmigan_term::words::several;
use std::collections::HashMap;

/// The kind of advice on mappings.
pub const SPARSE_LAYOUT: &str = "sparse-layout";
/// The kind of advice on arenas of glibc's allocator.
pub const ARENAS: &str = "arenas";
/// A zone is sparse if its tables are at most this full, on average.
const SPARSE: u64 = REGION / 8;
/// The fewest tables of a program that packing has to save.
const LEAST: u64 = 4;

/// Zones to be packed.
pub struct PackableZones {
    /// The kind of advice.
    pub kind: &'static str,
    /// How to follow it.
    pub how: &'static str,
    /// The pages that move, by program.
    pub programs: HashMap<u32, Packed>,
}

/// Finds programs whose mappings are sparse, among those that are told.
pub fn sparse(zones: &Zones, told: impl Fn(u32) -> bool) -> Result<PackableZones, Rejected> {
    let kind = SPARSE_LAYOUT;
    let chosen = |zone: &Zone, pages: &[u64]| {
        let mut regions: Vec<u64> = pages.iter().map(|page| page / REGION).collect();
        regions.dedup();
        !zone.arena && pages.len() as u64 <= regions.len() as u64 * SPARSE
    };
    let programs = packed(zones, told, chosen);
    if programs.is_empty() {
        let reason = "no program spreads few pages of its own mappings over many tables".to_owned();
        return Err(Rejected { kind, to: To::Program, measured: true, reason });
    }
    let how = "place what is used together in one mapping, one after the other: a dense array with an index \
               instead of an address computed from a key, small stacks and buffers from one pool.";
    Ok(PackableZones { kind, how, programs })
}

/// Finds programs whose allocator has arenas, among those that are told.
pub fn arenas(zones: &Zones, told: impl Fn(u32) -> bool) -> Result<PackableZones, Rejected> {
    let kind = ARENAS;
    let programs = packed(zones, told, |zone, _| zone.arena);
    if programs.is_empty() {
        let reason = "no allocator has arenas of 64 MiB that one arena could replace".to_owned();
        return Err(Rejected { kind, to: To::Program, measured: true, reason });
    }
    let how = "MALLOC_ARENA_MAX=1, GLIBC_TUNABLES=glibc.malloc.arena_max=1, or mallopt(M_ARENA_MAX, 1): one \
               arena for all threads.";
    Ok(PackableZones { kind, how, programs })
}

/// Packs the chosen zones of each program in which that saves tables.
fn packed(
    zones: &Zones,
    told: impl Fn(u32) -> bool,
    chosen: impl Fn(&Zone, &[u64]) -> bool,
) -> HashMap<u32, Packed> {
    let saves = |packed: &Packed| packed.regions() >= packed.pages().div_ceil(REGION) + LEAST;
    let of = |layout: &Layout| Packed::new(layout, &chosen).filter(saves);
    let programs = zones.programs.iter().filter(|(number, _)| told(**number));
    programs.filter_map(|(&number, layout)| Some((number, of(layout)?))).collect()
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
