//! The defects of `docs/detects.md` in code whose stores are watched: none of them is told.
//!
//! Each of the named defects is found with every seed: one seed of each row and format, or as many
//! as `PTSAN_WATCHED_SEEDS` says. The job `sanitizer-watched` runs 20.
#[path = "../all/detects/kernel.rs"]
mod kernel;
#[path = "../all/detects/machine.rs"]
mod machine;
#[macro_use]
#[path = "../all/detects/matrix.rs"]
mod matrix;
#[path = "../all/detects/scenes.rs"]
mod scenes;
#[path = "../all/detects/script.rs"]
mod script;

use kernel::{Defect, Format, Kernel};
use machine::Machine;
use ptsan::watch::Watch;
use ptsan::{Kind, Memory, Sanitizer};
use script::{inject, prepare, work};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that is watched, while [`Watch::run`] runs.
struct Watched(Rc<Watch>);

impl Watched {
    fn word(&self, at: u64) -> &AtomicU64 {
        let pointer = self.0.memory().pointer(at).expect("in memory").cast();
        // SAFETY: `pointer` is that of 8 aligned bytes of the watch's memory, which lives as long
        // as it, and all stores of this test go through atomics, `rep stos` or the watch.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    /// Clears memory by one instruction, which the watch sees as one store for each page.
    fn set(&self, at: u64, bytes: u64, with: u64) {
        let pointer = self.0.memory().pointer(at).expect("in memory");
        assert!(self.0.memory().pointer(at + bytes - 1).is_some());
        // SAFETY: `bytes` bytes from `pointer` are in the watch's memory, as was asked.
        unsafe {
            std::arch::asm!("rep stosq", inout("rdi") pointer => _, inout("rcx") bytes / 8 => _, in("rax") with,
                options(nostack, preserves_flags));
        }
    }
}

impl Machine for Watched {
    fn hook(&mut self, body: &mut dyn FnMut(&mut Sanitizer, &dyn Memory)) {
        self.0.with(|san, ram| body(san, ram));
    }

    fn get(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    fn put(&mut self, at: u64, raw: u64) {
        self.word(at).store(raw, Ordering::Relaxed);
    }

    fn exchange(&mut self, at: u64, raw: u64) {
        self.word(at).swap(raw, Ordering::SeqCst);
    }

    fn hardware(&mut self, at: u64, raw: u64) {
        let _paused = self.0.pause();
        self.word(at).store(raw, Ordering::Relaxed);
    }

    fn clear(&mut self, at: u64, bytes: u64) {
        self.set(at, bytes, 0);
    }

    fn fill(&mut self, at: u64, bytes: u64, with: u64) {
        // It was there before: no store of the code under test.
        let _paused = self.0.pause();
        self.set(at, bytes, with);
    }
}

/// Runs the kernel under a watch, and returns the kinds of its findings and the report.
fn run(format: Format, seed: u64, body: impl FnOnce(&mut Kernel)) -> (Vec<Kind>, String) {
    let san = Sanitizer::new(Kernel::config(format, seed));
    let watch = Rc::new(Watch::new(Kernel::BYTES as usize, san).expect("a watch"));
    watch.run(|| body(&mut Kernel::on(Box::new(Watched(watch.clone())), format, seed))).expect("it ran");
    watch.with(|san, _| (san.findings().iter().map(|f| f.kind).collect(), san.to_string()))
}

fn seeds() -> u64 {
    std::env::var("PTSAN_WATCHED_SEEDS").ok().map_or(1, |text| text.parse().expect("a number of seeds"))
}

fn found(defect: Defect, wanted: &[(Format, Kind)]) {
    for &(format, kind) in wanted {
        for seed in 1..=seeds() {
            let (mut kinds, report) = run(format, seed, |k| {
                prepare(k);
                inject(k, defect, seed);
            });
            kinds.retain(|found| *found != Kind::Leak || kind == Kind::Leak);
            // The watch knows more than hooks tell, and lets walkers walk after each store: others
            // may follow.
            assert_eq!(kinds.first(), Some(&kind), "{defect:?} {format:?} seed {seed}: {report}");
        }
    }
}

macro_rules! matrix {
    ($($name:ident: $defect:ident, $($format:ident $kind:ident),+;)+) => {
        $(
            #[test]
            #[ignore = "thousands of watched runs: cargo xtask ci sanitizer-watched"]
            fn $name() {
                found(Defect::$defect, &[$((Format::$format, Kind::$kind)),+]);
            }
        )+
    };
}

matrix_rows!(matrix);

#[test]
fn small_defects_are_found_with_every_seed_and_twins_silent() {
    for scene in scenes::ALL {
        for arch in scene.formats.iter().map(|arch| arch()) {
            let play = |seed, broken| {
                let san = Sanitizer::new(scene.config(arch.clone(), seed));
                let watch = Rc::new(Watch::new(scenes::BYTES as usize, san).expect("a watch"));
                let machine = Box::new(Watched(watch.clone()));
                watch.run(|| scene.play(machine, arch.clone(), seed, broken)).expect("it ran");
                watch.with(|san, _| {
                    (san.findings().iter().map(|f| f.kind).collect::<Vec<_>>(), san.to_string())
                })
            };
            for seed in 1..=20 {
                let (kinds, report) = play(seed, true);
                assert_eq!(
                    kinds.first(),
                    Some(&scene.kind),
                    "{}, {} seed {seed}: {report}",
                    scene.name,
                    arch.name
                );
                let (kinds, report) = play(seed, false);
                assert_eq!(kinds, [], "{}, {} corrected, seed {seed}: {report}", scene.name, arch.name);
            }
        }
    }
}

/// Walkers set accessed and dirty bits in memory that is watched, too.
#[test]
fn walkers_set_bits_without_being_seen() {
    for format in Format::ALL {
        let san = Sanitizer::new(ptsan::Config { walkers_set_bits: true, ..Kernel::config(format, 2) });
        let watch = Rc::new(Watch::new(Kernel::BYTES as usize, san).expect("a watch"));
        watch
            .run(|| {
                let mut k = Kernel::on(Box::new(Watched(watch.clone())), format, 2);
                prepare(&mut k);
                k.promote(1, 1);
            })
            .expect("it ran");
        let report = watch.with(|san, _| (san.total() > 0).then(|| san.to_string()));
        assert_eq!(report, None, "{format:?}");
    }
}

#[test]
#[ignore = "thousands of watched runs: cargo xtask ci sanitizer-watched"]
fn correct_code_is_silent() {
    for format in Format::ALL {
        for seed in 1..=seeds() {
            let (kinds, report) = run(format, seed, |k| {
                prepare(k);
                k.promote(1, 1);
                k.kernel_page(1);
                work(k, 30);
                (1..=3).for_each(|space| k.destroy(space));
                k.finish();
            });
            assert_eq!(kinds, [], "{format:?} seed {seed}: {report}");
        }
    }
}
