//! Measures the cost of a page of a `PagePool`, beside the same page from the host's allocator and
//! a bare array, in one run:
//!
//! ```sh
//! cargo run --release -p ptarmigan-pool --example page_pool
//! ```
//!
//! Processor time of one thread for a page taken and given back, the median of rounds that take
//! turns.
use ptarmigan_pool::{PagePool, PoolConfig};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::hint::black_box;

const ROUNDS: usize = 15;

/// Processor time of the calling thread, in nanoseconds.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds for one of `n` calls of `work`.
fn each(n: u32, mut work: impl FnMut()) -> f64 {
    let start = now();
    (0..n).for_each(|_| work());
    (now() - start) as f64 / f64::from(n)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = PagePool::new(PoolConfig::default())?;
    let page = Layout::from_size_align(4096, 4096)?;
    // The least that a list can do: an index and an array.
    let mut array: Vec<usize> = (0..64).collect();
    let mut batch = Vec::with_capacity(512);
    let names = [
        "bare array",
        "pool, not written to",
        "pool, 64 bytes written and cleared",
        "pool, all written and cleared",
        "pool, 512 at a time, each",
        "alloc_zeroed, not written to",
        "alloc_zeroed, all written",
    ];
    let mut figures = vec![Vec::new(); names.len()];
    for _ in 0..ROUNDS {
        let round = [
            each(1_000_000, || {
                let Some(page) = black_box(&mut array).pop() else { return };
                black_box(&mut array).push(black_box(page));
            }),
            each(1_000_000, || {
                if let Ok(page) = pool.page() {
                    black_box(page.raw().base());
                }
            }),
            each(1_000_000, || {
                if let Ok(mut page) = pool.page() {
                    black_box(page.prefix_mut(64)).fill(1);
                }
            }),
            each(100_000, || {
                if let Ok(mut page) = pool.page() {
                    black_box(&mut page[..]).fill(1);
                }
            }),
            each(200, || {
                batch.extend((0..512).filter_map(|_| pool.page().ok()));
                black_box(&mut batch).clear();
            }) / 512.0,
            // SAFETY: the layout has a size; the block is freed once, with its layout.
            each(100_000, || unsafe { dealloc(black_box(alloc_zeroed(page)), page) }),
            each(100_000, || {
                // SAFETY: as above; a block that there is has 4096 bytes.
                unsafe {
                    let block = black_box(alloc_zeroed(page));
                    if !block.is_null() {
                        block.write_bytes(1, 4096);
                        dealloc(black_box(block), page);
                    }
                }
            }),
        ];
        figures.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
    }
    for (name, all) in names.iter().zip(&mut figures) {
        all.sort_by(f64::total_cmp);
        println!("{name:36} {:8.1} ns (least {:.1})", all[ROUNDS / 2], all[0]);
    }
    println!("{:?}", pool.stats());
    Ok(())
}
