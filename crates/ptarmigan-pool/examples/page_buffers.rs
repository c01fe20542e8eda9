//! Measures the cost of a buffer of 64 KiB of which 1,500 bytes are used, as by a receive call that
//! gets one packet: from a pool, from the host's allocator, and from a list, in one run.
//!
//! ```sh
//! cargo run --profile dist -p ptarmigan-pool --example page_buffers            # or with --json
//! ```
//!
//! Each takes a buffer, writes the first 1,500 bytes, reads the first and the last of them, and
//! gives the buffer back. Processor time of one thread in nanoseconds: the median of rounds in
//! which all take turns, and the least.
use ptarmigan_pool::{PagePool, PoolConfig};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const SIZE: usize = 64 << 10;
const USED: usize = 1500;
const ROUNDS: usize = 15;
const CALLS: u32 = 20_000;

/// Processor time of the calling thread, in nanoseconds.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds for one call of `work`.
fn each(mut work: impl FnMut()) -> f64 {
    let start = now();
    (0..CALLS).for_each(|_| work());
    (now() - start) as f64 / f64::from(CALLS)
}

/// Stands for the receive call and for the code that looks at the packet.
#[inline(never)]
fn packet(buffer: &mut [u8]) {
    let buffer = black_box(buffer);
    buffer.fill(7);
    black_box((buffer.first(), buffer.last()));
}

/// Polls a future that is ready.
fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let json = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--json") => true,
        Some(other) => return Err(format!("{other} is no option: --json or nothing").into()),
    };
    let pool = Arc::new(PagePool::new(PoolConfig { page_size: SIZE, ..PoolConfig::default() })?);
    let mut list = vec![vec![0_u8; SIZE]];
    // Name for machines, name, whether the next user gets zeroes, work.
    type Row<'a> = (&'a str, &'a str, bool, Box<dyn FnMut() + 'a>);
    let pool = &pool;
    let mut rows: Vec<Row<'_>> = vec![
        ("pool", "pool, `prefix_mut(1500)`", true, {
            Box::new(|| {
                if let Ok(mut page) = pool.page() {
                    packet(page.prefix_mut(USED));
                }
            })
        }),
        ("pool-arc", "pool, `arc_page`", true, {
            Box::new(|| {
                if let Ok(mut page) = pool.arc_page() {
                    packet(page.prefix_mut(USED));
                }
            })
        }),
        ("pool-acquire", "pool, `acquire`", true, {
            Box::new(|| {
                if let Some(Ok(mut page)) = ready(pool.acquire()) {
                    packet(page.prefix_mut(USED));
                }
            })
        }),
        ("pool-whole", "pool, all of it lent", true, {
            Box::new(|| {
                if let Ok(mut page) = pool.page() {
                    packet(&mut page[..][..USED]);
                }
            })
        }),
        ("vec-zeroed", "`vec![0; 65536]`", true, {
            Box::new(|| packet(&mut black_box(vec![0_u8; black_box(SIZE)])[..USED]))
        }),
        ("vec-capacity", "`Vec::with_capacity(65536)`", false, {
            Box::new(|| {
                let mut buffer = Vec::with_capacity(black_box(SIZE));
                buffer.resize(USED, 0);
                packet(&mut buffer);
            })
        }),
        ("list", "list of the thread, cleared by hand", true, {
            Box::new(|| {
                if let Some(mut buffer) = black_box(&mut list).pop() {
                    packet(&mut buffer[..USED]);
                    buffer[..USED].fill(0);
                    black_box(&mut list).push(buffer);
                }
            })
        }),
    ];
    let mut figures = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (row, all) in rows.iter_mut().zip(&mut figures) {
            all.push(each(&mut row.3));
        }
    }
    let figures = figures.iter_mut().map(|all| {
        all.sort_by(f64::total_cmp);
        (all[ROUNDS / 2], all[0])
    });
    let mut lines = Vec::new();
    for ((id, name, zero, _), (median, least)) in rows.iter().zip(figures) {
        if json {
            lines.push(format!(
                r#"{{"case":"1500-of-65536","contender":"{id}","value":{median:.1},"least":{least:.1}}}"#
            ));
        } else {
            let zero = if *zero { "zero" } else { "as it was" };
            lines.push(format!("{name:38} {median:8.1} ns (least {least:.1}); the next user gets it {zero}"));
        }
    }
    if json {
        println!(r#"{{"rows":[{}]}}"#, lines.join(","));
    } else {
        lines.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}
