//! Helpers for tests of physical memory.
#![allow(dead_code, reason = "each test uses a part of it")]
use ptarmigan::addr::PhysAddr;
use ptarmigan::cpu::{NodeId, Pinned};
use ptarmigan::format::Format;
use ptarmigan::frames::*;
use ptarmigan::window::{OpenWindow, WindowGuard};
use ptarmigan_hosted::{Host, HostConfig};

/// A small machine that costs little to set up, with memory behind its data frames.
pub fn small(cpus: usize, nodes: usize, mib: u64) -> HostConfig {
    HostConfig { cpus, nodes, bytes: mib << 20, touch_data: true, prefault: 0, ..HostConfig::default() }
}

pub fn any_frame(node: u8) -> Request {
    Request {
        node: NodeId(node),
        order: 0,
        zero: false,
        class: ZoneClass::Low,
        end: End::Low,
        flags: AllocFlags::NORMAL,
    }
}

/// Reads a word of a frame.
pub fn peek<F: Format>(host: &Host<F>, at: u64) -> u64 {
    // SAFETY: 1. the test knows the writes of other threads.
    unsafe { host.read(PhysAddr(at), 8) }.expect("within memory")
}

/// Writes a word of a data frame, as a program would through a translation.
pub fn poke<F: Format>(host: &Host<F>, at: u64, word: u64) {
    let window = host.window();
    let guard = window.open(PhysAddr(at));
    // SAFETY: the frame is the test's own, or data mapped into a space of this single-threaded
    // test; the window is the host's, so the guard is valid for the frame, and `at` is a multiple
    // of 8.
    unsafe { guard.base().cast::<u64>().write(word) };
}

/// Every byte of the frame is zero.
#[track_caller]
pub fn assert_zero<F: Format>(host: &Host<F>, at: PhysAddr) {
    for offset in (0..4096).step_by(8) {
        // SAFETY: 1. the caller owns the page, or no other thread is at work on the host.
        let word = unsafe { host.read(PhysAddr(at.0 + offset), 8) };
        assert_eq!(word, Some(0), "byte {offset} of the page at {at}");
    }
}

/// Clears a frame of a host through its window.
pub fn clear<W: OpenWindow>(frame: Frame<Dirty>, window: &W) -> Frame<Zero> {
    // SAFETY: 1. tests have one host, and this is a window on its memory.
    unsafe { frame.clear(window) }
}

/// Clears free frames of a node ahead.
pub fn refill<W: OpenWindow>(frames: &Frames, node: NodeId, budget: u32, window: &W) -> u32 {
    // SAFETY: 1. tests have one host, and this is a window on its memory.
    unsafe { frames.refill_zero(node, budget, window) }
}

/// Clears frames of a CPU's list ahead.
pub fn refill_data<W: OpenWindow>(
    data: &DataFrames,
    frames: &Frames,
    pin: &Pinned<'_>,
    budget: u32,
    window: &W,
) -> u32 {
    // SAFETY: 1. and 2. tests have one host, whose frames, pins and window these are.
    unsafe { data.refill_zero(frames, pin, budget, window) }
}

/// Gives the last reference to a data frame back.
pub fn give_last(data: &DataFrames, frames: &Frames, pin: &Pinned<'_>, frame: DataFrame) {
    assert!(data.release(frames, pin, frame).expect("of this host"), "others refer to it as well");
}
