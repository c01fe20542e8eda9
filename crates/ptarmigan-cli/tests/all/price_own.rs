//! A proposal of one's own: the example's figure is counted once more from the events as text.
use crate::program::{Temporary, ptarmigan};
use ptarmigan_term::Failure;
use std::collections::HashMap;
use std::path::Path;

#[expect(dead_code, reason = "the example's own main")]
#[path = "../../../ptarmigan-replay/examples/my_proposal.rs"]
mod my_proposal;

/// Returns the faults that a page mapped ahead would spare, and all faults.
fn spared(trace: &str) -> (u64, u64) {
    let csv = ptarmigan(&["inspect", trace, "--events", "--csv"]).good();
    let (mut ahead, mut spared, mut faults) = (HashMap::<String, u64>::new(), 0, 0);
    for line in csv.lines() {
        let cells: Vec<&str> = line.split(',').collect();
        let [_, _, _, task, "fault", page, ..] = cells[..] else { continue };
        faults += 1;
        if line.contains("present") {
            continue;
        }
        let hex = page.trim_start_matches("0x");
        let page = u64::from_str_radix(hex, 16).unwrap_or_else(|_| panic!("{line}"));
        if ahead.remove(task) == Some(page) {
            spared += 1;
        } else {
            ahead.insert(task.to_owned(), page + 1);
        }
    }
    (spared, faults)
}

#[test]
fn the_example_counts_the_faults_that_the_events_give() {
    for name in ["fixture", "rustc"] {
        let (spared, faults) = spared(name);
        let line = my_proposal::line(Path::new(name)).expect("a replay");
        let percent = 100.0 * spared as f64 / faults as f64;
        let counted = format!("{name}: {spared} of {faults} faults spared ({percent:.0} %)\n");
        assert!(spared > 0 && line == counted, "{line}{counted}");
    }
}

#[test]
fn the_example_says_which_file_it_cannot_read() {
    let odd = Temporary::file("odd.ptrace", "no trace");
    let why = |path| my_proposal::line(path).err().map(|failure: Failure| failure.message().to_owned());
    assert!(why(Path::new("no-such-file")).is_some_and(|why| why.contains("No such file")));
    assert!(why(&odd.0).is_some_and(|why| why.contains("not a trace")));
}
