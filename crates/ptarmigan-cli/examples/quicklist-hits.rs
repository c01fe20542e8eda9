//! Takes a page and gives it back, as often as told, for whoever counts the instructions: `quicklist-hits contender n`.
//!
//! `benches-vs-peers/instructions` runs it. Counted is what happens in [`hits`]; all before it is setting up.
use std::hint::black_box;
use std::process::ExitCode;

use ptarmigan::hosted::HostError;
use ptarmigan_cli::bench::pages::{
    ArrayYardstick, CHECKED, LibraryLists, OURS, POOL, PageContender, Pages, PoolContender, YARDSTICK,
    checked, host,
};

/// Pages for the machine: one at a time is out.
const PAGES: usize = 64;

/// What is counted: `n` pages taken and given back, nothing written to them. How many there were.
#[inline(never)]
fn hits(pages: &mut impl Pages, n: u64) -> u64 {
    let mut got = 0;
    while got < n {
        let Some(page) = pages.alloc() else { break };
        // The page comes from a list and goes to a list, not from a register to it.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: 1. just taken. 2. nobody has written to it.
        unsafe { pages.free(page) };
        got += 1;
    }
    got
}

/// One pair first, so that all that are counted are hits.
fn run<C: PageContender>(contender: &C, n: u64) -> Result<(), String> {
    let mut cpu = contender.cpu(0)?;
    let page = cpu.alloc().ok_or("there is no page")?;
    // SAFETY: 1. just taken. 2. nobody has written to it.
    unsafe { cpu.free(page) };
    let got = hits(&mut cpu, black_box(n));
    drop(cpu);
    contender.finish()?;
    if got == n { Ok(()) } else { Err(format!("there were {got} pages, not {n}")) }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (who, n) = (arguments.next().unwrap_or_default(), arguments.next().and_then(|n| n.parse().ok()));
    let fail = |e: HostError| e.to_string();
    let done = match (who.as_str(), n) {
        (YARDSTICK, Some(n)) => ArrayYardstick::new(PAGES).and_then(|c| run(&c, n)),
        (OURS, Some(n)) => host(PAGES).map_err(fail).and_then(|host| {
            let lists = host.quicklists().map_err(fail)?;
            run(&LibraryLists::new(OURS, &host, lists), n)
        }),
        (CHECKED, Some(n)) => host(PAGES).map_err(fail).and_then(|host| {
            let lists = checked(&host).map_err(fail)?;
            run(&LibraryLists::new(CHECKED, &host, lists), n)
        }),
        (POOL, Some(n)) => {
            PoolContender::new(PAGES).map_err(|e| e.to_string()).and_then(|pool| run(&pool, n))
        }
        _ => Err(format!("usage: quicklist-hits {YARDSTICK}|{OURS}|{CHECKED}|{POOL} n")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
