//! Every store to watched memory is seen, at the instant at which it is made.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod detects;
mod formats;
mod identity;
mod kernel;
mod leftovers;
mod lines;
mod signals;
mod stores;
mod tables;
mod threads;
mod traps;

use ptsan::watch::{Changed, Watch};
use ptsan::{Arch, Config, Sanitizer};
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;

fn watch(pages: u64) -> Watch {
    Watch::new((pages * PAGE) as usize, Sanitizer::new(Config::new(Arch::x86_64()))).expect("a watch")
}

/// Collects the changes of every store.
fn collect(watch: &Watch) -> Arc<Mutex<Vec<Vec<Changed>>>> {
    let all = Arc::<Mutex<Vec<Vec<Changed>>>>::default();
    let into = all.clone();
    watch.on_store(move |_, _, store| into.lock().expect("no panic").push(store.changed.to_vec()));
    all
}
