//! Runs one operation of address spaces many times, for counting its instructions:
//! `fault-counts case`.
//!
//! `benches-vs-peers/instructions` runs it under callgrind. Only what happens inside [`counted`] is
//! counted; everything else sets up, warms the lists, and checks. Prints how many operations were
//! counted.
use std::hint::black_box;
use std::process::ExitCode;

use ptarmigan::addr::{VirtAddr, VirtRange};
use ptarmigan::format::X86_64;
use ptarmigan::machine::{Machine, On};
use ptarmigan::space::{Access, AreaFlags, Done, Space, SpaceMachine};
use ptarmigan_bench::machine::host;
use ptarmigan_bench::table::LibraryTree;
use ptarmigan_bench::table::contender::{CasePages, ForkShape, PAGES, SPACES, SPARSE, TableContender};
use ptarmigan_hosted::{HostMachine, NoTlb};

type F = X86_64;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Bytes that a leaf table maps.
const REGION: u64 = 2 << 20;
/// Regions that one table of the level above maps.
const REGIONS: u64 = 512;
/// The start of a span that one table of the level above maps.
const AREA: u64 = 0x40_0000_0000;
/// How often the cases of faults and forks repeat what they set up.
const ROUNDS: u64 = 64;
/// Pages that the parent of `fork-exit` has touched.
const TOUCHED: u64 = 64;

/// Runs `work`. Callgrind collects from here on, until `work` returns.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// `pages` pages from `start`.
fn range(start: u64, pages: u64) -> VirtRange {
    VirtRange::new(start, start + pages * PAGE).unwrap()
}

/// Writes to `n` pages from `start` on, `stride` bytes apart; how many faults ended as `done`.
#[inline]
fn write<M: SpaceMachine>(
    on: On<'_, M>,
    space: &mut Space<F>,
    [start, stride, n]: [u64; 3],
    done: Done,
) -> u64 {
    let mut as_wanted = 0;
    for i in 0..n {
        as_wanted += u64::from(space.fault(on, VirtAddr(start + i * stride), Access::Write) == Ok(done));
    }
    as_wanted
}

/// The same, not counted; fails unless all faults ended as `done`.
fn prepare<M: SpaceMachine>(
    on: On<'_, M>,
    space: &mut Space<F>,
    pages: [u64; 3],
    done: Done,
) -> Result<(), String> {
    expect("prepared faults", write(on, space, pages, done), pages[2])
}

fn expect(what: &str, is: u64, should: u64) -> Result<(), String> {
    if is == should { Ok(()) } else { Err(format!("{what}: {is}, not {should}")) }
}

/// A writable anonymous area.
fn mmap<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<F>, range: VirtRange) -> Result<(), String> {
    let mut edit = space.edit(on).map_err(|e| e.to_string())?;
    edit.mmap(range, AreaFlags::READ.with(AreaFlags::WRITE), 0).map_err(|e| e.to_string())
}

/// Each fault takes a data frame and a leaf table. A page of the first region keeps the tables
/// above.
fn fault_table<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<F>) -> Result<u64, String> {
    mmap(on, space, range(AREA, 1))?;
    prepare(on, space, [AREA, PAGE, 1], Done::Fresh)?;
    let above = space.tree().tables_below_root() as u64;
    let n = REGIONS - 1;
    let area = VirtRange::new(AREA + REGION, AREA + REGIONS * REGION).unwrap();
    let pages = [area.start, REGION, n];
    // The first round fills the lists.
    for round in 0..=ROUNDS {
        mmap(on, space, area)?;
        if round == 0 {
            prepare(on, space, pages, Done::Fresh)?;
        } else {
            expect("faults", counted(|| write(on, space, pages, Done::Fresh)), n)?;
        }
        expect("tables", space.tree().tables_below_root() as u64, above + n)?;
        space.edit(on).map_err(|e| e.to_string())?.munmap(area).map_err(|e| e.to_string())?;
        expect("tables afterwards", space.tree().tables_below_root() as u64, above)?;
    }
    Ok(ROUNDS * n)
}

/// Each fault takes a data frame; the first page of the region, which is not counted, takes the
/// leaf table.
fn fault_page<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<F>) -> Result<u64, String> {
    let n = REGION / PAGE - 1;
    let area = range(AREA, n + 1);
    let pages = [AREA + PAGE, PAGE, n];
    for round in 0..=ROUNDS {
        mmap(on, space, area)?;
        prepare(on, space, [AREA, PAGE, 1], Done::Fresh)?;
        let tables = space.tree().tables_below_root() as u64;
        if round == 0 {
            prepare(on, space, pages, Done::Fresh)?;
        } else {
            expect("faults", counted(|| write(on, space, pages, Done::Fresh)), n)?;
        }
        expect("tables", space.tree().tables_below_root() as u64, tables)?;
        space.edit(on).map_err(|e| e.to_string())?.munmap(area).map_err(|e| e.to_string())?;
    }
    Ok(ROUNDS * n)
}

/// Each fault finds a page that fork has write-protected and that nobody shares any more.
fn fault_present<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<F>) -> Result<u64, String> {
    let n = REGION / PAGE;
    let pages = [AREA, PAGE, n];
    mmap(on, space, range(AREA, n))?;
    prepare(on, space, pages, Done::Fresh)?;
    for round in 0..=ROUNDS {
        fork_and_end(on, space)?;
        if round == 0 {
            prepare(on, space, pages, Done::Reused)?;
        } else {
            expect("faults", counted(|| write(on, space, pages, Done::Reused)), n)?;
        }
    }
    Ok(ROUNDS * n)
}

/// A fork, whose child ends at once.
fn fork_and_end<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<F>) -> Result<(), String> {
    let child = space.edit(on).map_err(|e| e.to_string())?.fork().map_err(|e| e.to_string())?;
    child.end(on).map_err(|e| e.to_string())
}

/// Each fork write-protects and copies neighbouring pages that were written since the fork before.
fn fork_exit<M: SpaceMachine>(on: On<'_, M>, space: &mut Space<F>) -> Result<u64, String> {
    let pages = [AREA, PAGE, TOUCHED];
    mmap(on, space, range(AREA, TOUCHED))?;
    prepare(on, space, pages, Done::Fresh)?;
    for round in 0..=ROUNDS {
        if round == 0 {
            fork_and_end(on, space)?
        } else {
            counted(|| fork_and_end(on, space))?
        }
        // Which also says that there was a copy, and that it is gone.
        prepare(on, space, pages, Done::Reused)?;
    }
    Ok(ROUNDS)
}

/// A case on a space of its own; the operations counted.
fn on_space(case: &str) -> Result<u64, String> {
    let host = host::<X86_64>().map_err(|e| e.to_string())?;
    let lists = host.quicklists().map_err(|e| e.to_string())?;
    let m = HostMachine::<F, _, _>::new(&host, lists, NoTlb).map_err(|e| e.to_string())?;
    let slots = host.slots();
    let pin = slots.first().ok_or("no CPU")?.pin();
    let on = m.on(&pin).map_err(|e| e.to_string())?;
    let mut space = Space::new(on).map_err(|e| e.to_string())?;
    let counted = match case {
        "fault-table" => fault_table(on, &mut space),
        "fault-page" => fault_page(on, &mut space),
        "fault-present" => fault_present(on, &mut space),
        _ => fork_exit(on, &mut space),
    };
    space.end(on).map_err(|e| e.to_string())?;
    m.drain(&slots);
    let counted = counted?;
    host.audit().map_err(|e| e.to_string())?;
    Ok(counted)
}

/// A case of `ptarmigan bench table`, as it runs there, but after a first time that fills the
/// lists; the operations counted.
fn on_table(case: &str) -> Result<u64, String> {
    let host = host::<X86_64>().map_err(|e| e.to_string())?;
    let lists = host.quicklists().map_err(|e| e.to_string())?;
    // Called as the benchmark calls it, which does not see into it either.
    let mut c: Box<dyn TableContender + '_> =
        Box::new(LibraryTree::new("ptarmigan", &host, lists).map_err(|e| e.to_string())?);
    let full = CasePages::USUAL.all_frames();
    let shape = ForkShape::new(CasePages::USUAL);
    let mut operations = PAGES as u64;
    if case == "fork-shape" {
        c.fork_shape(0, &shape);
        counted(|| c.fork_shape(0, &shape));
        operations = (SPACES * SPARSE) as u64;
    } else {
        c.open();
        c.map();
        c.close();
        c.open();
        let found = match case {
            "map" => {
                counted(|| c.map());
                c.query()
            }
            "query" => {
                c.map();
                counted(|| c.query())
            }
            "map-range" => {
                counted(|| c.map_range());
                c.query()
            }
            "unmap-range" => {
                c.map_range();
                let found = c.query();
                counted(|| c.unmap_range());
                expect("frames that unmap-range left", c.query() as u64, 0)?;
                found
            }
            _ => {
                c.map();
                let found = c.query();
                counted(|| c.unmap());
                expect("frames that unmap left", c.query() as u64, 0)?;
                found
            }
        };
        expect("frames found", found as u64, full as u64)?;
        c.close();
    }
    expect("tables out", c.tables_out() as u64, 0)?;
    c.finish()?;
    Ok(operations)
}

/// A case of large pages of `ptarmigan bench table`, after a first time; the large pages counted.
fn on_large(case: &str) -> Result<u64, String> {
    let host = host::<X86_64>().map_err(|e| e.to_string())?;
    let lists = host.quicklists().map_err(|e| e.to_string())?;
    let mut c: Box<dyn TableContender + '_> =
        Box::new(LibraryTree::new("ptarmigan", &host, lists).map_err(|e| e.to_string())?);
    let at = CasePages::USUAL;
    c.open();
    c.large_map();
    c.large_split();
    c.close();
    c.open();
    let (done, left, tables) = match case {
        "large-map" => {
            counted(|| c.large_map());
            (at.large(), at.all_frames(), at.large().div_ceil(512) + 2)
        }
        "large-unmap" => {
            c.large_map();
            expect("frames found", c.query_large() as u64, at.all_frames() as u64)?;
            counted(|| c.large_unmap());
            (at.large(), 0, 1)
        }
        "large-split" => {
            c.large_map();
            let before = c.tables_out();
            counted(|| c.large_split());
            (at.split(), at.all_frames(), before + at.split())
        }
        _ => {
            c.large_map();
            let before = c.tables_out();
            counted(|| c.large_half());
            (at.split(), at.frames_after_half(), before + at.split())
        }
    };
    expect("frames left", c.query_large() as u64, left as u64)?;
    expect("tables", c.tables_out() as u64, tables as u64)?;
    c.close();
    expect("tables out", c.tables_out() as u64, 0)?;
    c.finish()?;
    Ok(done as u64)
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    let done = match case.as_str() {
        "fault-table" | "fault-page" | "fault-present" | "fork-exit" => on_space(&case),
        "map" | "query" | "unmap" | "map-range" | "unmap-range" | "fork-shape" => on_table(&case),
        "large-map" | "large-unmap" | "large-split" | "large-half" => on_large(&case),
        _ => Err("usage: fault-counts \
                  fault-table|fault-page|fault-present|fork-shape|fork-exit|map|query|unmap|map-range|unmap-range\
                  |large-map|large-unmap|large-split|large-half"
            .to_string()),
    };
    match done {
        Ok(operations) => {
            println!("{operations}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
