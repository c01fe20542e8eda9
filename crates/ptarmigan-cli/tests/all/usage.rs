//! The command line as its users meet it: help, examples, names that are wrong, pages of the
//! manual, completions, terminals.
use crate::program::{Temporary, crate_file, fed, program, ptarmigan, reader_goes_away, shipped};
use ptarmigan_cli::cli;

/// Calls `each` with every command that is not hidden, and its name as on the command line.
fn commands(command: &clap::Command, name: &str, each: &mut dyn FnMut(&clap::Command, &str)) {
    each(command, name);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        commands(below, &format!("{name} {}", below.get_name()), each);
    }
}

/// Splits a line of a shell into the words of the one `ptarmigan` that it runs.
fn words(line: &str) -> Vec<&str> {
    let own = line.split('|').map(str::trim).find(|part| part.starts_with("ptarmigan"));
    let own = own.unwrap_or_else(|| panic!("{line}: does not run ptarmigan"));
    own.split(['>', '<']).next().unwrap_or_default().split_whitespace().collect()
}

#[test]
fn every_command_has_examples_and_each_of_them_parses() {
    commands(&cli::grammar(), "ptarmigan", &mut |_, name| {
        let examples = cli::of(name);
        assert!(examples.iter().any(|one| one.line.contains(name)), "{name} has no example");
        for example in examples {
            let words = words(example.line);
            if let Err(e) = cli::parse(words) {
                panic!("{}: {e}", example.line);
            }
        }
    });
}

#[test]
fn help_ends_with_examples_and_exit_codes() {
    for args in
        [&["--help"][..], &["-h"], &["replay", "--help"], &["bench", "table", "-h"], &["help", "inspect"]]
    {
        let out = ptarmigan(args);
        assert_eq!(out.status, Some(0), "{args:?}");
        let help = out.out;
        for part in ["Examples:", "Exit codes:", "  2: The command line is wrong."] {
            assert!(help.contains(part), "{args:?} lacks {part}: {help}");
        }
        assert!(!help.contains('\x1b'), "{args:?}: {help}");
        // Examples are to be copied: their lines are not broken.
        let long = |line: &str| line.chars().count() > 80 && !line.trim_start().starts_with("ptarmigan ");
        assert!(!help.lines().any(long), "{args:?}: {help}");
    }
}

#[test]
fn options_of_a_replay_are_in_groups() {
    let help = ptarmigan(&["replay", "--help"]).out;
    for group in ["Policies:", "Machine:", "CPUs:", "Sanitizer:", "High memory:", "Baselines:", "Output:"] {
        assert!(help.lines().any(|line| line == group), "{group} is missing: {help}");
    }
}

#[test]
fn wrong_names_get_the_nearest_ones() {
    let cases: [(&[&str], i32, &str); 14] = [
        (&["mp.ptrace"], 2, "tip: to count what the trace contains: ptarmigan inspect mp.ptrace"),
        (&["mp.ptrace"], 2, "tip: to write a page about it: ptarmigan report mp.ptrace -o report.html"),
        (&["sh"], 2, "tip: to record the program: ptarmigan record sh"),
        (&["repaly"], 2, "'replay'"),
        (&["bench", "quicklst"], 2, "'quicklist'"),
        (&["bench", "kmap", "--json"], 2, "tip: to run it: cargo run --release -p ptarmigan-papers -- kmap"),
        (&["replay", "--sanitise"], 2, "'--sanitize'"),
        (&["replay", "--policy", "ptarmgan"], 2, "'ptarmigan'"),
        (&["replay", "--params", "magazine=100"], 2, "write quicklist=on,magazine=N"),
        (&["replay", "compil"], 1, "did you mean compile?"),
        (&["inspect", "../../traces/rustc.ptrac"], 1, "did you mean rustc.ptrace?"),
        (&["inspect", "nowhere/at/all.ptrace"], 1, "shipped recordings are linux-build, compile"),
        (&["replay", "fixture", "--model", "linux33"], 1, "did you mean linux-33?"),
        (&["inspect", "fixture", "--events", "--kind", "fualt"], 1, "did you mean fault?"),
    ];
    for (args, status, expected) in cases {
        let out = ptarmigan(args);
        let err = out.err;
        assert_eq!(out.status, Some(status), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
        assert!(status == 2 || err.lines().count() == 1, "{args:?}: {err}");
    }
}

#[test]
#[cfg(not(feature = "formats"))]
fn a_machine_of_another_build_is_told_with_the_feature() {
    for given in ["aarch64", "riscv", "sv3"] {
        let out = ptarmigan(&["replay", "--arch", given]);
        assert_eq!(out.status, Some(2));
        assert!(out.err.contains("a build with --features formats has i386, x86-64-5, sv32,"), "{}", out.err);
        assert!(out.err.contains("aarch64-16k"), "{}", out.err);
    }
}

#[test]
fn documents_are_part_of_the_command() {
    let list = ptarmigan(&["docs"]).good();
    for line in list.lines() {
        let name = line.split(' ').next().expect("a name");
        let document = ptarmigan(&["docs", name]).good();
        assert!(document.starts_with("# ") && document.lines().count() > 50, "{name}");
        assert_eq!(document, std::fs::read_to_string(crate_file(&format!("{name}.md"))).expect("a file"));
    }
    assert!(list.lines().count() >= 5, "{list}");
}

#[test]
fn outputs_are_tried_before_anything_is_measured() {
    let started = std::time::Instant::now();
    for place in ["/nonexistent/x.json", "/", "/dev/null"] {
        let out = ptarmigan(&["calibrate", "-o", place]);
        assert_eq!((out.status, out.err.lines().count()), (Some(1), 1), "{place}: {}", out.err);
        assert!(out.err.contains(place), "{}", out.err);
    }
    assert!(started.elapsed().as_secs() < 20, "no host is calibrated in that time");
}

#[test]
fn options_behind_a_recorded_command_are_its_own() {
    for line in [
        &["record", "ls", "-l", "--level", "high"][..],
        &["record", "-o", "x.ptrace", "ls", "--output"],
        &["record", "--", "ls", "-l"],
        &["record", "sh", "-c", "exit 3", "--", "-o"],
    ] {
        if let Err(e) = cli::parse(["ptarmigan"].iter().chain(line)) {
            panic!("{line:?}: {e}");
        }
    }
    // An option before it that does not exist is not taken for a command.
    for line in [&["record", "--lvel", "3", "ls"][..], &["record"], &["record", "-o", "x"]] {
        assert!(cli::parse(["ptarmigan"].iter().chain(line)).is_err(), "{line:?}");
    }
}

#[test]
fn shipped_recordings_have_names_and_standard_input_is_a_trace() {
    let named = ptarmigan(&["inspect", "fixture"]).good();
    let bytes = std::fs::read(shipped("fixture.ptrace")).expect("the fixture");
    assert_eq!(fed(&mut program(&["inspect", "-"]), &bytes).good(), named);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let mut names = Vec::new();
    commands(&cli::grammar(), "ptarmigan", &mut |_, name| {
        names.push(format!("{}.1", name.replace(' ', "-")))
    });
    let pages = cli::pages::pages();
    assert_eq!(pages.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    for (name, page) in pages {
        let page = String::from_utf8_lossy(&page);
        for section in [
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH DESCRIPTION",
            ".SH EXAMPLES",
            ".SH \"EXIT STATUS\"",
            ".SH ENVIRONMENT",
        ] {
            assert!(page.contains(section), "{name} lacks {section}: {page}");
        }
    }
}

#[test]
fn pages_of_the_manual_replace_files_and_nothing_else() {
    let directory = Temporary::new("man");
    let place = directory.path();
    for _ in 0..2 {
        let out = ptarmigan(&["man", place]);
        assert_eq!(out.status, Some(0), "{}", out.err);
        assert!(out.out.lines().count() > 10);
    }
    let names = std::fs::read_dir(place).expect("the directory").flatten();
    assert!(names.map(|entry| entry.file_name()).all(|name| name.to_string_lossy().ends_with(".1")));
    let page = directory.0.join("ptarmigan-replay.1");
    std::fs::remove_file(&page).and_then(|()| std::fs::create_dir(&page)).expect("a directory");
    let out = ptarmigan(&["man", place]);
    assert_eq!(out.status, Some(1));
    assert!(out.err.contains("a directory; name a regular file"), "{}", out.err);
}

#[test]
fn shells_get_completions_of_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let out = ptarmigan(&["completions", shell]);
        let script = out.out;
        assert_eq!(out.status, Some(0), "{shell}");
        for word in ["replay", "quicklist", "historic-lists"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
}

#[test]
fn nobody_reads_the_help() {
    for args in [&["--help"][..], &["completions", "bash"], &["inspect", "fixture", "--events"]] {
        reader_goes_away(&mut program(args), 0);
    }
}
