//! The machine itself.
use super::*;
use ptsan::Content;
use ptsan::Kind;
use ptsan::adapters::{BASE, OLD_ENTRY};

#[test]
fn a_frame_is_full_of_old_entries_unless_zeroes_were_asked_for() {
    let machine = machine(Arch::x86_64());
    let word = |frame: u64| machine.sanitizer(|_, memory| memory.read(frame + 8, 8));
    let frame = machine.allocate(Content::Unknown).expect("frames");
    assert_eq!(word(frame), Some(OLD_ENTRY));
    machine.free(frame, FRAME);
    let same = machine.allocate(Content::Zero).expect("frames");
    assert_eq!((same, word(same)), (frame, Some(0)), "the frame freed last is allocated first");
}

#[test]
fn a_run_of_frames_is_aligned_and_handed_out_once() {
    let machine = machine(Arch::x86_64());
    let run = machine.allocate_run(4, 4 * FRAME).expect("frames");
    assert!(run.is_multiple_of(4 * FRAME));
    let rest: Vec<u64> = std::iter::from_fn(|| machine.allocate(Content::Zero)).collect();
    assert_eq!(rest.len(), FRAMES - 4);
    assert!(rest.iter().all(|f| !(run..run + 4 * FRAME).contains(f)));
    machine.free(run, 4 * FRAME);
    assert_eq!(machine.allocate_run(4, 4 * FRAME), Some(run));
    machine.sanitizer(|san, _| san.assert_clean());
}

#[test]
fn a_frame_given_back_twice_is_reported_and_handed_out_once() {
    let machine = machine(Arch::x86_64());
    let frame = machine.allocate(Content::Zero).expect("frames");
    machine.free(frame, FRAME);
    machine.free(frame, FRAME);
    assert_eq!(machine.sanitizer(|san, _| san.count(Kind::DoubleFree)), 1);
    let all: Vec<u64> = std::iter::from_fn(|| machine.allocate(Content::Zero)).collect();
    assert_eq!(all.len(), FRAMES);
}

#[test]
fn a_frame_can_be_asked_for() {
    let machine = machine(Arch::x86_64());
    machine.hand_out_next(BASE + 7 * FRAME);
    assert_eq!(machine.allocate(Content::Zero), Some(BASE + 7 * FRAME));
}
