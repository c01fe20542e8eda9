//! The command line as its users meet it: help, examples, names that are wrong, pages of the
//! manual, completions, terminals.
use ptarmigan_cli::cli;
use std::process::{Command, Output, Stdio};

fn ptarmigan(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the program is there")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

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
        assert_eq!(out.status.code(), Some(0), "{args:?}");
        let help = text(&out.stdout);
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
    let help = text(&ptarmigan(&["replay", "--help"]).stdout);
    for group in ["Policies:", "Machine:", "CPUs:", "Sanitizer:", "High memory:", "Baselines:", "Output:"] {
        assert!(help.lines().any(|line| line == group), "{group} is missing: {help}");
    }
}

#[test]
fn wrong_names_get_the_nearest_ones() {
    let cases: [(&[&str], i32, &str); 9] = [
        (&["repaly"], 2, "'replay'"),
        (&["bench", "quicklst"], 2, "'quicklist'"),
        (&["replay", "--sanitise"], 2, "'--sanitize'"),
        (&["replay", "--policy", "ptarmgan"], 2, "'ptarmigan'"),
        (&["replay", "compil"], 1, "did you mean compile?"),
        (&["inspect", "traces/rustc.ptrac"], 1, "did you mean rustc.ptrace?"),
        (&["inspect", "nowhere/at/all.ptrace"], 1, "shipped recordings are compile, configure"),
        (&["replay", "fixture", "--model", "linux33"], 1, "did you mean linux-33?"),
        (&["inspect", "fixture", "--events", "--kind", "fualt"], 1, "did you mean fault?"),
    ];
    for (args, status, expected) in cases {
        let out = ptarmigan(args);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {err}");
        assert!(err.contains(expected), "{args:?}: {err}");
        assert!(status == 2 || err.lines().count() == 1, "{args:?}: {err}");
    }
}

#[test]
fn shipped_recordings_have_names_and_standard_input_is_a_trace() {
    let named = ptarmigan(&["inspect", "fixture"]);
    assert_eq!(named.status.code(), Some(0), "{}", text(&named.stderr));
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/fixture.ptrace");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
        .args(["inspect", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let mut pipe = child.stdin.take().expect("a pipe");
    std::io::copy(&mut std::fs::File::open(path).expect("the fixture"), &mut pipe).expect("it is read");
    drop(pipe);
    let piped = child.wait_with_output().expect("it ends");
    assert_eq!(text(&piped.stdout), text(&named.stdout));
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
        let page = text(&page);
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
    let directory = std::env::temp_dir().join(format!("ptarmigan-man-{}", std::process::id()));
    let place = directory.to_str().expect("a path in UTF-8");
    for _ in 0..2 {
        let out = ptarmigan(&["man", place]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert!(text(&out.stdout).lines().count() > 15);
    }
    let names = std::fs::read_dir(&directory).expect("the directory").flatten();
    assert!(names.map(|entry| entry.file_name()).all(|name| name.to_string_lossy().ends_with(".1")));
    let page = directory.join("ptarmigan-replay.1");
    std::fs::remove_file(&page).and_then(|()| std::fs::create_dir(&page)).expect("a directory");
    let out = ptarmigan(&["man", place]);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("a directory; name a regular file"), "{}", text(&out.stderr));
    std::fs::remove_dir_all(&directory).expect("it is ours");
}

#[test]
fn shells_get_completions_of_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let out = ptarmigan(&["completions", shell]);
        let script = text(&out.stdout);
        assert_eq!(out.status.code(), Some(0), "{shell}");
        for word in ["replay", "quicklist", "historic-lists"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
}

#[test]
fn nobody_reads_the_help() {
    for args in [&["--help"][..], &["completions", "bash"], &["inspect", "fixture", "--events"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ptarmigan"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        drop(child.stdout.take());
        let out = child.wait_with_output().expect("it ends");
        assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(0), ""), "{args:?}");
    }
}
