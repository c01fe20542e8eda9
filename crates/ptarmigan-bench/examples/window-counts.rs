//! Maps low frames many times through a window, for counting instructions: `window-counts case`.
//!
//! Cases: `direct`, the direct map alone; `mixed`, the direct map with a pool for high frames.
//! `benches-vs-peers/instructions` runs both under callgrind, of which only what happens inside
//! [`counted`] is counted, and bounds what they differ by. Prints how many maps were counted.
use std::hint::black_box;
use std::process::ExitCode;

use ptarmigan::addr::{Pfn, PhysAddr};
use ptarmigan::format::X86_64;
use ptarmigan::highmem::pool::{Pool, PoolConfig};
use ptarmigan::highmem::window::MixedWindow;
use ptarmigan::machine::Machine;
use ptarmigan::window::{Window, WindowGuard};
use ptarmigan_hosted::{Host, HostConfig, HostMachine, NoTlb, StoreSlots, Wired};

const LOW: u64 = 16 << 20;
const SLOTS: usize = 64;
const MAPS: u32 = 100_000;

/// Maps low frames, one after another. Callgrind collects here.
#[inline(never)]
fn counted<W: Window>(window: &W) -> u64 {
    let mut sum = 0_u64;
    for n in 0..MAPS {
        let at = PhysAddr(u64::from(black_box(n) % 1024) << 12);
        if let Ok(guard) = window.map(at) {
            sum = sum.wrapping_add(guard.base() as u64);
        }
    }
    sum
}

fn run(case: &str) -> Result<(), Box<dyn std::error::Error>> {
    let config = HostConfig { bytes: 64 << 20, low: LOW, prefault: 0, ..HostConfig::default() };
    let host = Host::<X86_64>::new(config)?;
    let low = host.low_window();
    let sum = match case {
        "direct" => counted(&low),
        "mixed" => {
            let machine = HostMachine::new(&host, host.plain()?, NoTlb)?;
            let mut boot = host.boot(StoreSlots::bytes(SLOTS))?;
            // SAFETY: 1. the host's map reaches all its frames.
            let slots = unsafe { StoreSlots::new(&mut boot, SLOTS, 1 << 47, host.window()) }?;
            let config = PoolConfig::new(1, SLOTS);
            let bytes =
                Pool::<Wired<X86_64, NoTlb>, StoreSlots>::bytes(&host.frames().size(), &config, SLOTS);
            let mut boot = host.boot(bytes)?;
            // SAFETY: 1. the slots are made for the host, and so is the map. 2. new ones.
            let pool =
                unsafe { Pool::new(&mut boot, config, machine.tlb(), host.frames(), low, slots, &()) }?;
            let cpu = host.slot(0).ok_or("a CPU is taken")?;
            let pin = cpu.pin();
            // High frames go through the pool.
            drop(pool.try_map(&pin, Pfn((LOW >> 12) as u32))?);
            // SAFETY: 1. the pool reaches what the map does not. 2. the map reaches all low memory.
            counted(&unsafe { MixedWindow::new(low, pool.window(&pin)) })
        }
        other => return Err(format!("no case {other}: direct, mixed").into()),
    };
    black_box(sum);
    println!("{MAPS}");
    Ok(())
}

fn main() -> ExitCode {
    let case = std::env::args().nth(1).unwrap_or_default();
    match run(&case) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("window-counts: {e}");
            ExitCode::FAILURE
        }
    }
}
