//! Mappings, runtimes and callers in a trace.
use super::attach::Server;
use super::common::{Dir, METHODS, ptarmigan, run};
use ptarmigan_trace::{Call, Cause, Kind, Note, Object, Reader, Runtime};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Two functions that cause a known number of faults, and one that forks. The numbers of the lines
/// are in the tests.
const WORK: &str = r#"#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define SIDE __attribute__((noinline)) static void
SIDE touch_many(volatile char *at, long pages) {
    for (long n = 0; n < pages; n++)
        at[n * 4096] = 1;
}
SIDE touch_few(char *at, long pages) {
    memset(at, 1, pages * 4096);
    __asm__ volatile("" ::: "memory");
}
SIDE make_children(int count) {
    for (int n = 0; n < count; n++) {
        int child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
}
int main(void) {
    long pages = 20000;
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *memory = mmap(NULL, 2 * pages * 4096, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    madvise(memory, 2 * pages * 4096, MADV_NOHUGEPAGE);
    touch_many(memory, pages);
    touch_few(memory + pages * 4096, pages / 2);
    make_children(7);
    return 0;
}
"#;

/// Compiles the program. `None` if there is no compiler.
fn compile(dir: &Dir, name: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_source(dir, "work.c", WORK, name, flags)
}

/// Compiles the text of a program. `None` if there is no compiler.
fn compile_source(dir: &Dir, file: &str, text: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (source, program) = (dir.path(file), dir.path(name));
    std::fs::write(&source, text).expect("our directory");
    let mut cc = Command::new("cc");
    match cc.args(flags).arg("-O2").arg("-o").arg(&program).arg(&source).status() {
        Ok(status) if status.success() => Some(program),
        _ => {
            eprintln!("skipped: no C compiler");
            None
        }
    }
}

/// Records a program with `options`. `None` if this machine cannot.
fn record(dir: &Dir, method: &str, options: &[&str], program: &Path) -> Option<(PathBuf, String)> {
    let file = dir.path("out.ptrace");
    let mut command = ptarmigan();
    command.args(["record", "--method", method, "--level", "3", "-o"]).arg(&file).args(options);
    let (status, stderr) = run(command.arg("--").arg(program));
    if status != Some(0) {
        assert!(!stderr.contains("panicked"), "{stderr}");
        eprintln!("skipped: {method}: {}", stderr.trim());
        return None;
    }
    Some((file, stderr))
}

fn notes(file: &Path) -> Vec<Note> {
    let events = Reader::open(file).expect("a trace").map(|e| e.expect("an event").kind);
    events.filter_map(|kind| if let Kind::Note(note) = kind { Some(note) } else { None }).collect()
}

/// All rows of a trace as they are before compression.
fn rows(file: &Path) -> Vec<u8> {
    let bytes = std::fs::read(file).expect("it was recorded");
    let start = bytes.windows(4).position(|w| w == [0x28, 0xb5, 0x2f, 0xfd]).expect("a frame");
    let mut frame = zstd::stream::read::Decoder::new(&bytes[start..]).expect("a frame").single_frame();
    let mut rows = Vec::new();
    std::io::Read::read_to_end(&mut frame, &mut rows).expect("a whole frame");
    rows
}

fn has(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle.as_bytes())
}

fn inspect(file: &Path) -> (Value, String) {
    let json = ptarmigan().args(["inspect", "--json"]).arg(file).output().expect("the program is there");
    let text = ptarmigan().arg("inspect").arg(file).output().expect("the program is there");
    let json = serde_json::from_slice(&json.stdout).expect("one JSON document");
    (json, String::from_utf8_lossy(&text.stdout).into_owned())
}

/// The row of a function.
fn row<'a>(json: &'a Value, work: &str, function: &str) -> Option<&'a Value> {
    let rows = json["functions"].as_array().expect("rows");
    rows.iter().find(|row| row["work"] == work && row["function"] == function)
}

#[test]
fn functions_have_their_names_lines_and_shares() {
    let kinds: [(&str, &[&str]); 2] =
        [("plain", &["-g", "-fomit-frame-pointer"]), ("pointers", &["-g", "-fno-omit-frame-pointer"])];
    for method in METHODS {
        for (name, flags) in kinds {
            let dir = Dir::new(&format!("callers-{method}-{name}"));
            let Some(program) = compile(&dir, name, flags) else { return };
            let Some((file, stderr)) = record(&dir, method, &["--symbols"], &program) else { continue };
            let (json, text) = inspect(&file);
            let many = row(&json, "fault", "touch_many").unwrap_or_else(|| panic!("{stderr}{text}"));
            let few = row(&json, "fault", "touch_few").unwrap_or_else(|| panic!("{stderr}{text}"));
            let of = |row: &Value, field: &str| row[field].as_f64().expect("a number");
            assert_eq!((&many["file"], &many["line"]), (&"work.c".into(), &9.into()), "{many}");
            assert_eq!((&few["file"], &few["line"]), (&"work.c".into(), &12.into()), "{few}");
            assert_eq!((&many["module"], &many["callers"][0]), (&name.into(), &"main".into()), "{many}");
            // 20,000 and 10,000 faults, of which one in 61 is sampled.
            // A machine with other work may lose some of them.
            if json["lost"] == 0 {
                assert!((19_000.0..21_000.0).contains(&of(many, "events")), "{many}");
                assert!((9_300.0..10_700.0).contains(&of(few, "events")), "{few}");
            }
            let ratio = of(many, "share") / of(few, "share");
            assert!((1.85..2.15).contains(&ratio), "{ratio}");
            let forks = row(&json, "fork", "make_children").unwrap_or_else(|| panic!("{stderr}{text}"));
            assert_eq!((&forks["events"], &forks["line"]), (&7.into(), &17.into()), "{forks}");
            assert!(text.contains("touch_many (work.c:9)"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}

/// Faults on all pages again and again, or on 1,220 pages 25 times with pauses: 20 samples a time.
const FAULTS: &str = r#"#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
    long pages = count > 1 ? 512 : 1220;
    char *memory = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
    for (int n = 0; count > 1 || n < 25; n++) {
        for (long page = 0; page < pages; page++)
            ((volatile char *)memory)[page * 4096] = 1;
        madvise(memory, pages * 4096, MADV_DONTNEED);
        if (count == 1)
            usleep(100000);
    }
    return 0;
}
"#;

#[test]
fn faults_of_other_programs_take_no_sample_from_a_recorded_one() {
    let dir = Dir::new("callers-beside");
    let Some(program) = compile_source(&dir, "faults.c", FAULTS, "faults", &["-g"]) else { return };
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let _others: Vec<Server> = (0..cpus)
        .map(|_| Server(Command::new(&program).arg("forever").spawn().expect("it was built")))
        .collect();
    let Some((file, stderr)) = record(&dir, "tracefs", &["--symbols"], &program) else { return };
    let (json, _) = inspect(&file);
    let main = row(&json, "fault", "main").unwrap_or_else(|| panic!("{stderr}{json:#}"));
    // 30,500 faults, of which one in 61 is sampled, on each CPU among those of all programs.
    let events = main["events"].as_u64().expect("a number");
    assert!((26_000..35_000).contains(&events), "{main} {stderr}");
    let samples = stderr.lines().find_map(|line| line.split_once("callers of ")?.1.split(' ').next());
    let samples: u64 = samples.expect("a line").replace(',', "").parse().expect("a number");
    // A reader that comes late keeps one sample of two, which stands for both, until its next look.
    assert!((230..600).contains(&samples), "{stderr}");
}

#[test]
fn a_stripped_program_has_no_callers() {
    for method in METHODS {
        let dir = Dir::new(&format!("stripped-{method}"));
        let Some(program) = compile(&dir, "bare", &["-s"]) else { return };
        let Some((file, stderr)) = record(&dir, method, &["--symbols"], &program) else { continue };
        let (json, text) = inspect(&file);
        let rows = json["functions"].as_array().expect("rows");
        let of_program = rows.iter().filter(|row| row["program"] == "bare" && row["work"] == "fault");
        let unknown: f64 = of_program
            .filter(|row| row["function"].is_null())
            .map(|row| row["share"].as_f64().expect("a number"))
            .sum();
        assert!(unknown > 0.9, "{stderr}{text}");
        assert!(text.contains("caller unknown"), "{text}");
        assert!(!text.contains("memset"), "a function of the C library is no caller: {text}");
    }
}

#[test]
fn a_program_that_is_replaced_while_it_runs_has_no_callers() {
    for method in METHODS {
        let dir = Dir::new(&format!("replaced-{method}"));
        let (Some(program), Some(other)) =
            (compile(&dir, "old", &["-g"]), compile(&dir, "new", &["-g", "-O1"]))
        else {
            return;
        };
        for (how, script) in [
            ("removed", format!("{0}; rm {0}", program.display())),
            ("replaced", format!("{0}; mv {1} {0}", program.display(), other.display())),
        ] {
            let Some(program) = compile(&dir, "old", &["-g"]) else { return };
            assert!(program.is_file());
            let script_file = dir.path("script");
            std::fs::write(&script_file, format!("#!/bin/sh\n{script}\n")).expect("our directory");
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&script_file, executable).expect("our file");
            let Some((file, stderr)) = record(&dir, method, &["--symbols"], &script_file) else { continue };
            let (json, _) = inspect(&file);
            assert_eq!(row(&json, "fault", "touch_many"), None, "{how}");
            let why = if how == "removed" { "cannot be read any more" } else { "another build" };
            assert!(
                stderr.contains(&format!("functions are unknown in old: the file {why}"))
                    || stderr.contains(why),
                "{how}: {stderr}"
            );
        }
    }
}

#[test]
fn names_and_symbols_are_in_a_trace_only_if_they_are_asked_for() {
    for method in METHODS {
        let dir = Dir::new(&format!("promise-{method}"));
        let Some(program) = compile(&dir, "secretive", &["-g"]) else { return };
        let private = dir.0.file_name().expect("a name").to_string_lossy().into_owned();
        let Some((file, _)) = record(&dir, method, &[], &program) else { continue };
        let plain = rows(&file);
        for secret in ["libc", ".so", "touch_many", "work.c", &private, "/tmp", "/usr", "/lib"] {
            assert!(!has(&plain, secret), "{method}: {secret}");
        }
        let found = notes(&file);
        assert!(found.contains(&Note::Runtime(Runtime::Glibc)), "{method}");
        let mapped = |object| {
            found
                .iter()
                .any(|note| matches!(note, Note::Mapped { object: o, name: None, .. } if *o == object))
        };
        assert!(mapped(Object::Program) && mapped(Object::Library), "{method}: {found:?}");

        let (file, _) = record(&dir, method, &["--names", "--symbols"], &program).expect("as before");
        let full = rows(&file);
        assert!(has(&full, "libc.so.6") && has(&full, "secretive") && has(&full, "work.c"), "{method}");
        assert!(!has(&full, "/lib") && !has(&full, &private), "{method}: no directories");
        let reader = Reader::open(&file).expect("a trace");
        let mut reader = reader;
        while reader.next().is_some() {}
        for text in reader.symbols().texts() {
            // Settings are named by files of the kernel, below a folder that all machines have.
            let is_setting = reader.settings().get(text).is_some();
            assert!(is_setting || !text.contains('/'), "{method}: {text}");
        }

        // A copy for others has none of them.
        let copy = dir.path("copy.ptrace");
        let share = || run(ptarmigan().arg("inspect").arg(&file).arg("--share").arg(&copy));
        assert_eq!(share().0, Some(0), "{method}");
        let shared = rows(&copy);
        for secret in ["libc", "touch_many", "work.c"] {
            assert!(!has(&shared, secret), "{method}: {secret}");
        }
        let callers =
            |file: &Path| notes(file).iter().filter(|note| matches!(note, Note::Caller { .. })).count();
        assert!(callers(&file) > 0 && callers(&copy) == 0, "{method}");
        assert_eq!(notes(&copy).len(), notes(&file).len() - callers(&file), "{method}");
        let (status, stderr) = share();
        assert!(status == Some(1) && stderr.contains("is there already; name a new file"), "{stderr}");
    }
}

#[test]
fn calls_have_callers_too() {
    for method in METHODS {
        let dir = Dir::new(&format!("calls-{method}"));
        let Some(program) = compile(&dir, "calling", &["-g"]) else { return };
        let Some((file, stderr)) = record(&dir, method, &["--symbols"], &program) else { continue };
        let forks = notes(&file).into_iter().filter(|note| {
            matches!(note, Note::Caller { cause: Cause::Call(Call::Fork), events: 1, place: Some(_), .. })
        });
        assert_eq!(forks.count(), 7, "{method}: {stderr}");
    }
}
