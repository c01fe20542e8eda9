//! Blocks of 64 KiB (multi-size huge pages), from a setting of the machine to the advice: the
//! faults that `price` predicts, the blocks of a replay, and the pages that advice sees.
use super::common::{Dir, ptarmigan, run};
use super::settings::Settings;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often this machine has filled a block of 64 KiB.
const FILLED: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats/anon_fault_alloc";
/// How far two counts may be apart.
const WITHIN: f64 = 0.01;
/// Recordings until one has no blocks of other processes beside it.
const TRIES: usize = 5;

/// The program and a place for its recordings.
struct Bench {
    dir: Dir,
    program: PathBuf,
}

/// Blocks of 64 KiB on this machine.
fn blocks_so_far() -> f64 {
    let text = fs::read_to_string(FILLED).expect("the count");
    text.trim().parse().expect("a number")
}

fn json(args: &[&str], file: &Path) -> Value {
    let out = ptarmigan().args(args).arg("--json").arg(file).output().expect("the program is there");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("one JSON document")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn near(one: f64, other: f64, what: &str) {
    eprintln!("{what}: {one} and {other}");
    assert!((one - other).abs() <= WITHIN * other.abs(), "{what}: {one} and {other}");
}

impl Bench {
    /// Compiles the program. `None` if this machine lacks a compiler, root, the size, or tracefs.
    fn new(test: &str) -> Option<Self> {
        let dir = Dir::new(test);
        let program = dir.path("blocks");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/blocks.c");
        let cc = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
        if !cc.is_ok_and(|status| status.success()) {
            eprintln!("skipped: no compiler");
            return None;
        }
        let bench = Bench { dir, program };
        match bench.record("never", &[]) {
            Ok(_) => Some(bench),
            Err(why) => {
                eprintln!("skipped: {}", why.trim());
                None
            }
        }
    }

    /// Records the program while the size is set to `value`. Returns the file, and the number of
    /// blocks that all processes got meanwhile.
    fn record(&self, value: &str, words: &[&str]) -> Result<(PathBuf, f64), String> {
        let file = self.dir.path(&format!("{value}{}.ptrace", words.concat()));
        let mut recorder = ptarmigan();
        recorder.args(["record", "--method", "tracefs", "--level", "1", "-o"]).arg(&file).arg("--");
        recorder.arg(&self.program).args(words);
        let set = Settings::only_blocks(64, value)?;
        let before = blocks_so_far();
        let (status, stderr) = run(&mut recorder);
        let made = blocks_so_far() - before;
        drop(set);
        if status == Some(0) { Ok((file, made)) } else { Err(stderr) }
    }

    /// Records until other processes get hardly any blocks meanwhile. Returns the file with the
    /// fewest blocks, and their number.
    fn record_alone(&self, value: &str, words: &[&str]) -> (PathBuf, f64) {
        let best = self.dir.path("best.ptrace");
        let mut least = f64::INFINITY;
        for _ in 0..TRIES {
            let (file, made) = self.record(value, words).expect("it was recorded before");
            if made < least {
                least = made;
                fs::rename(file, &best).expect("our directory");
            }
            if least <= replayed(&best) * (1.0 + WITHIN) {
                break;
            }
        }
        (best, least)
    }
}

/// Returns the blocks of 64 KiB that a replay maps. All samples of VmPTE must be equal.
fn replayed(file: &Path) -> f64 {
    let document = json(&["replay"], file);
    let run = &document["runs"][0];
    let truth = &run["truth"];
    assert!(number(&truth["checked"]) > 0.0 && truth["checked"] == truth["equal"], "{truth}");
    number(&run["blocks"]["64"])
}

/// Returns the faults of a recording, and the faults that blocks of 64 KiB would leave.
fn priced(file: &Path) -> (f64, f64) {
    let document = json(&["price", "--only", "blocks"], file);
    let trace = &document["traces"][0];
    let figures = trace["answered"][0]["figures"].as_array().expect("an answer");
    let figure = |name: &str| {
        let found = figures.iter().find(|figure| figure["name"] == name);
        number(&found.unwrap_or_else(|| panic!("no {name}: {trace:#}"))["value"])
    };
    let faults = number(&trace["faults"]);
    let saved = figure("faults on anonymous memory") * figure("faults saved at 64K") / 100.0;
    (faults, faults - saved)
}

#[test]
#[ignore = "changes settings of the machine: cargo xtask ci tests-long"]
fn a_price_of_blocks_is_the_count_of_faults_with_them() {
    let Some(bench) = Bench::new("blocks-price") else { return };
    for words in [&["fork"][..], &[]] {
        let (before, _) = bench.record("never", words).expect("it was recorded before");
        let (after, _) = bench.record("always", words).expect("it was recorded before");
        let (faults, left) = priced(&before);
        let counts = &json(&["inspect"], &after)["faults"];
        let recorded = number(&counts["user"]) + number(&counts["kernel"]);
        assert!(recorded < 0.9 * faults, "{recorded} of {faults}: the machine made no blocks");
        near(left, recorded, "faults predicted and recorded");
    }
}

#[test]
#[ignore = "changes settings of the machine: cargo xtask ci tests-long"]
fn a_replay_maps_the_blocks_that_linux_has_mapped() {
    let Some(bench) = Bench::new("blocks-replay") else { return };
    // Only memory that asks for it gets blocks: hardly any of other processes.
    let (file, made) = bench.record_alone("madvise", &["fork", "ask"]);
    near(replayed(&file), made, "blocks where a program asks, and of the machine");
    // Whoever runs at the same time gets blocks, too.
    let (file, made) = bench.record_alone("always", &["fork"]);
    let blocks = replayed(&file);
    assert!(blocks >= 1024.0 && blocks <= made * (1.0 + WITHIN), "{blocks} of {made} blocks");
    if made > blocks * (1.0 + WITHIN) {
        eprintln!("not compared exactly: other processes got {} blocks", made - blocks);
    }
}

#[test]
#[ignore = "changes settings of the machine: cargo xtask ci tests-long"]
fn dense_memory_of_blocks_gets_no_advice_to_pack_it() {
    let Some(bench) = Bench::new("blocks-advice") else { return };
    for (value, words) in
        [("always", &[][..]), ("always", &["fork"]), ("madvise", &["ask"]), ("never", &["ask"])]
    {
        let (file, _) = bench.record(value, words).expect("it was recorded before");
        let document = json(&["advise", "--rounds", "0"], &file);
        let advice = document["traces"][0]["advice"].as_array().expect("a list").clone();
        assert!(advice.iter().all(|piece| piece["kind"] != "sparse-layout"), "{words:?}: {advice:#?}");
    }
}
