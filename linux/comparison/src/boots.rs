//! Boots many guests, some at the same time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use indicatif::ProgressBar;

/// Calls `one` for each of `all`, for `jobs` of them at the same time; returns the results in their
/// order.
pub fn each<T: Sync, R: Send>(jobs: u8, all: &[T], one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let bar = ProgressBar::new(all.len() as u64);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    let Some(item) = all.get(number) else { break };
                    let result = one(item);
                    bar.inc(1);
                    results.lock().unwrap_or_else(|e| e.into_inner()).push((number, result));
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_what_they_are_of() {
        let all: Vec<u64> = (0..20).rev().collect();
        let slowest_first = |n: &u64| {
            thread::sleep(std::time::Duration::from_micros(*n * 100));
            n * 2
        };
        let doubled: Vec<u64> = all.iter().map(|n| n * 2).collect();
        assert_eq!(each(4, &all, slowest_first), doubled);
        assert_eq!(each(3, &[], slowest_first), [0; 0]);
    }
}
