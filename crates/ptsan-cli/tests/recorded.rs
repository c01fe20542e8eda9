//! Logs that `cargo xtask boot record` has recorded from the images of this repository, with their
//! flushes left out on purpose.
use object::{Object as _, ObjectSymbol as _};
use ptsan_log::{Architecture, Content, Encoder, Header, Record, Written};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::{NamedTempFile, TempPath};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn replay(log: &Path, arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_ptsan")).arg("replay").arg(log).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    (output.status.code().unwrap(), text)
}

/// Makes a file that is removed when it is dropped.
fn temporary(bytes: &[u8]) -> TempPath {
    let file = NamedTempFile::new().unwrap().into_temp_path();
    std::fs::write(&file, bytes).unwrap();
    file
}

#[test]
fn the_table_that_x86_64_frees_without_a_flush_is_found() {
    let (status, text) = replay(&data("x86_64-without-flush.ptl"), &[]);
    assert_eq!(status, 1, "{text}");
    for part in [
        "x86-64, 1 CPU; 262 records, 21613 bytes",
        "1 finding\n",
        "free-before-flush:",
        "at record 261, table frame 0x56b000, PT (level 0)",
        "it has flushed nothing since it loaded the",
        "summary: 1 memory-corruption, 1 cause",
        "record 260: unhooked by a store to the entry at 0xffd9028",
        "      in 0xffff80000010395f",
        "found in\n    0xffff800000122cdc",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_stale_translation_of_riscv64_is_found_at_the_access() {
    let (status, text) = replay(&data("riscv64-without-flush.ptl"), &["--no-seed"]);
    assert!(status == 1 && text.contains("1  stale-use") && !text.contains("the log is wrong"), "{text}");
    // Before that, at the stores of each operation that does not flush, and at the tables that it
    // frees.
    assert!(text.contains("48  flush-missing") && text.contains("25  free-before-flush"), "{text}");
}

#[test]
fn a_recorded_log_that_is_cut_anywhere_is_replayed_up_to_there() {
    let whole = std::fs::read(data("x86_64-without-flush.ptl")).unwrap();
    for length in (0..whole.len()).step_by(311).chain(whole.len() - 9..whole.len()) {
        let part = temporary(&whole[..length]);
        let (status, text) = replay(&part, &[]);
        // The table is freed in the last record but one.
        let found = text.contains("free-before-flush");
        assert_eq!(status, if found { 1 } else { 2 }, "{length}: {text}");
        assert!(text.contains("the log ends"), "{length}: {text}");
    }
}

/// A function that the next test finds by its address.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn ptsan_test_unmaps_a_page() -> u64 {
    std::hint::black_box(7)
}

#[test]
fn symbols_name_the_function_of_an_instruction() {
    assert_eq!(ptsan_test_unmaps_a_page(), 7);
    let image = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let symbol = elf.symbols().find(|s| s.name() == Ok("ptsan_test_unmaps_a_page")).expect("it has symbols");
    let mut log = Encoder::new(Written(Vec::new()), &Header::new(Architecture::Sv39, 1)).unwrap();
    let table = Record::TableAllocated { phys: 0x1000, size: 0, level: None, content: Content::Zero };
    log.record_at(symbol.address(), &table).unwrap();
    log.record_at(symbol.address() + 1, &table).unwrap();
    log.end(false).unwrap();
    let log = temporary(&log.into_sink().0);
    let (status, text) = replay(&log, &["--symbols", image.to_str().unwrap()]);
    assert!(status == 1 && text.contains("double-allocate"), "{text}");
    let place = "at ptsan-cli/tests/recorded.rs:";
    assert!(text.contains(&format!("found in\n    ptsan_test_unmaps_a_page\n      {place}")), "{text}");
    assert!(
        text.contains(&format!("    record 1: allocated\n      in ptsan_test_unmaps_a_page {place}")),
        "{text}"
    );
    let with = |format| replay(&log, &["--symbols", image.to_str().unwrap(), "--format", format]).1;
    let json = with("json");
    let finding: serde_json::Value = serde_json::from_str(json.lines().nth(2).unwrap()).unwrap();
    let caller = &finding["found_in"][0];
    assert_eq!(caller["function"], "ptsan_test_unmaps_a_page", "{json}");
    assert!(caller["file"].as_str().unwrap().ends_with("crates/ptsan-cli/tests/recorded.rs"), "{json}");
    let commands = with("github");
    assert!(commands.contains("crates/ptsan-cli/tests/recorded.rs,line="), "{commands}");
    let line = with("short");
    assert!(line.contains("double-allocate/AlreadyTable recorded.rs:"), "{line}");
}
