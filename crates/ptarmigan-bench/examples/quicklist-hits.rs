//! Allocates and frees a page a given number of times, for counting instructions: `quicklist-hits
//! contender n`.
//!
//! `benches-vs-peers/instructions` runs it and counts what happens in [`hits`]; everything before
//! that is set-up.
use std::hint::black_box;
use std::process::ExitCode;

use ptarmigan_bench::pages::{
    ArrayYardstick, CHECKED, LibraryLists, OURS, POOL, PageContender, Pages, PoolContender, YARDSTICK,
    checked, host,
};
use ptarmigan_hosted::HostError;

/// Pages of the machine; one at a time is allocated.
const PAGES: usize = 64;

/// The counted part: allocates and frees a page `n` times without writing to it. Returns how often
/// it succeeded.
#[inline(never)]
fn hits(pages: &mut impl Pages, n: u64) -> u64 {
    let mut got = 0;
    while got < n {
        let Some(page) = pages.alloc() else { break };
        // Forces the page from list to list, instead of through a register.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: 1. the page was just taken. 2. nothing has written to it.
        unsafe { pages.free(page) };
        got += 1;
    }
    got
}

/// Runs one pair first, so that all counted calls are hits.
fn run<C: PageContender>(contender: &C, n: u64) -> Result<(), String> {
    let mut cpu = contender.cpu(0)?;
    let page = cpu.alloc().ok_or("there is no page")?;
    // SAFETY: 1. the page was just taken. 2. nothing has written to it.
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
