//! The cost of seeing every store.
//!
//! `cargo run --release -p ptsan --features watch --example watch`
use ptsan::watch::{Error, Watch};
use ptsan::{Arch, Config, Content, Sanitizer};
use std::time::Instant;

const PAGE: u64 = 4096;
const PAGES: u64 = 256;

fn main() -> Result<(), Error> {
    let watch = Watch::new((PAGES * PAGE) as usize, Sanitizer::new(Config::new(Arch::x86_64())))?;
    let base = watch.memory().base();

    println!("{:32} {:>9} {:>12} {:>12}", "", "stores", "ns/store", "ns in all");
    measure(&watch, "8 bytes, one page", 4096, |i| {
        let _ = watch.memory().store(i % 512 * 8, i);
    })?;
    measure(&watch, "8 bytes, all pages in turn", 4096, |i| {
        let _ = watch.memory().store(i % PAGES * PAGE + i % 512 * 8, i);
    })?;
    watch.with(|san, ram| {
        for table in 0..PAGES {
            san.table_allocated(ram, table * PAGE, PAGE, None, Content::Unchecked);
        }
        san.switch(ram, 0, 0, 1);
    });
    measure(&watch, "... and the sanitizer looks", 4096, |i| {
        let _ = watch.memory().store(i % 512 * 8, 7 | ((1 + i % (PAGES - 1)) * PAGE));
    })?;
    measure(&watch, "memset of 512 bytes", 256, |i| {
        // SAFETY: within the memory of the watch, which no other code uses now.
        unsafe { base.add(4096).write_bytes(i as u8, 512) };
    })?;
    measure(&watch, "memset of 4096 bytes", 256, |i| {
        // SAFETY: as above.
        unsafe { base.add(4096).write_bytes(i as u8, 4096) };
    })?;
    measure(&watch, "memcpy of 4096 bytes", 256, |i| {
        let from = [i as u8; 4096];
        // SAFETY: as above; the source is an array of that size.
        unsafe { base.add(4096).copy_from(from.as_ptr(), 4096) };
    })?;
    watch.each_repetition(true);
    measure(&watch, "memset, each repetition", 4, |i| {
        // SAFETY: as above.
        unsafe { base.add(4096).write_bytes(i as u8, 4096) };
    })?;
    watch.each_repetition(false);
    let paused = watch.pause()?;
    measure(&watch, "memset of 4096 bytes, paused", 256, |i| {
        // SAFETY: as above.
        unsafe { base.add(4096).write_bytes(i as u8, 4096) };
    })?;
    drop(paused);
    // The stores made no page tables. The findings are of no interest, and are not to be printed.
    let _ = watch.with(|san, _| san.total());
    Ok(())
}

/// Prints medians of seven rounds.
fn measure(watch: &Watch, what: &str, calls: u64, mut call: impl FnMut(u64)) -> Result<(), Error> {
    let mut stores = 0;
    let mut rounds = Vec::new();
    for _ in 0..7 {
        let before = watch.stores();
        let ns = watch.run(|| {
            let start = Instant::now();
            (0..calls).for_each(&mut call);
            start.elapsed().as_nanos() as u64
        })?;
        stores = watch.stores() - before;
        rounds.push(ns);
    }
    rounds.sort_unstable();
    let ns = rounds[3];
    let each = ns.checked_div(stores).map_or_else(|| "-".to_owned(), |ns| ns.to_string());
    println!("{what:32} {:>9} {each:>12} {:>12}", stores / calls, ns / calls);
    Ok(())
}
