//! `advise` and `price` say the same of blocks that one fault fills.
use crate::advise::{BASE, EXEC, advice, made, map, piece, write};
use crate::advise_huge::model;
use crate::price::{prices, row};
use crate::program::{shipped, text};
use ptarmigan_term::Bytes;
use ptarmigan_term::words::several;
use ptarmigan_trace::Kind;
use serde_json::Value;
use std::path::Path;

/// Returns what advice or its reason says of blocks: the size, and the faults that they spare.
fn said(report: &Value) -> String {
    for (list, what) in [("advice", "title"), ("rejected", "reason")] {
        let all = report[list].as_array().expect("a list");
        if let Some(one) = all.iter().find(|one| one["kind"] == "mthp") {
            return one[what].as_str().expect("a text").to_owned();
        }
    }
    panic!("no word on blocks: {report:#}");
}

/// Returns the size of blocks in KiB, and the faults that they spare, as `price` says them.
fn counted(trace: &Value) -> (u64, u64) {
    let answer = row(trace, "blocks");
    let words: Vec<&str> = answer["counted"].as_str().expect("a text").split(' ').collect();
    let ["Blocks", "of", size, "take", faults, ..] = words[..] else { panic!("{words:?}") };
    let kib = size.strip_suffix('K').and_then(|kib| kib.parse().ok()).expect("a size in KiB");
    let faults: u64 = faults.replace(',', "").parse().expect("a count");
    assert_eq!(answer["judgement"]["counted"].as_f64(), Some(faults as f64), "{answer:#}");
    (kib, faults)
}

fn alike(name: &str) {
    let model = model(100.0, |_| ());
    let report = advice(Path::new(&shipped(name)), &["--model", text(&model.0)]);
    let (kib, faults) = counted(&prices(name));
    let (size, said) = (Bytes(kib << 10), said(&report));
    let advised = report["advice"].as_array().expect("a list").iter().find(|one| one["kind"] == "mthp");
    match advised {
        Some(advised) => {
            assert!(said.starts_with(&format!("fill blocks of {size} at one fault: ")), "{said}");
            let how = advised["how"].as_str().expect("a text");
            assert!(how.contains(&format!("/hugepages-{kib}kB/enabled")), "{how}");
            let by: u64 = advised["programs"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|of| of["count"].as_u64())
                .sum();
            assert_eq!(by, faults, "{advised:#}");
        }
        None => {
            let both = format!("blocks of {size} spare {}: ", several(faults, "fault"));
            assert!(said.starts_with(&both), "{said}");
        }
    }
}

#[test]
fn advice_on_blocks_has_the_size_and_faults_of_a_compiler() {
    alike("rustc.ptrace");
}

#[test]
fn advice_on_blocks_has_the_size_and_faults_of_a_build() {
    alike("linux-build.ptrace");
}

#[test]
fn advice_on_blocks_names_the_file_and_its_limits() {
    // Runs of 16 pages, too short for huge pages.
    let runs = (0..64).flat_map(|run| (0..16).map(move |page| (0, write(BASE + run * 512 + page))));
    let events: Vec<(u32, Kind)> = [(0, EXEC), (0, map(BASE, 64 * 512))]
        .into_iter()
        .chain(runs)
        .chain([(0, Kind::Exit { last: true })])
        .collect();
    let report = advice(&made("runs", |_| {}, 0, &events).0, &[]);
    let found = piece(&report, "mthp");
    assert_eq!(found["to"], "machine", "{found:#}");
    assert_eq!(found["saved"]["faults"], 64 * 15, "{found:#}");
    let part = |name: &str| found[name].as_str().expect("a text");
    assert!(part("title").starts_with("fill blocks of 64 KiB at one fault"), "{found:#}");
    assert!(part("how").contains("hugepages-64kB/enabled (Linux 6.8"), "{found:#}");
    assert!(part("not_measured").contains("not touched (0 B in all"), "{found:#}");
}
