//! Examples and exit codes, which every help text and every page of the manual ends with.

/// An example: its effect, and the command line.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// The effect of the line, with a verb in the third person.
    pub does: &'static str,
    /// The line.
    pub line: &'static str,
}

/// Makes an example.
#[must_use]
pub const fn example(does: &'static str, line: &'static str) -> Example {
    Example { does, line }
}

/// Exit codes of the command, for all subcommands.
pub const EXIT_CODES: [(&str, &str); 4] = [
    ("0", "Done. Also if the reader of the output closes the pipe."),
    ("1", "Failed, or a check has found something: one line on standard error says what."),
    ("2", "The command line is wrong."),
    ("other", "`record` exits as the recorded command does: with its code, or 128 + N after signal N."),
];

/// Examples by command.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "ptarmigan",
        &[
            example("Replays the shipped linux-build on three policies, under the sanitizer.", "ptarmigan"),
            example("Does so with two copies at once.", "ptarmigan --copies 2"),
            example("Records a program of yours.", "ptarmigan record -o make.ptrace make -j2"),
            example("Replays it.", "ptarmigan replay make.ptrace"),
        ],
    ),
    (
        "ptarmigan record",
        &[
            example("Records a build to a new file, such as cc1.ptrace.", "ptarmigan record make -j2"),
            example(
                "Records ten seconds of a server that runs, with its workers.",
                "ptarmigan record -p 4711 --duration 10",
            ),
            example(
                "Records without root, and writes the file faster.",
                "ptarmigan record --method perf --level 3 -o ls.ptrace ls -l",
            ),
        ],
    ),
    (
        "ptarmigan inspect",
        &[
            example("Counts what a trace contains.", "ptarmigan inspect make.ptrace"),
            example("Does so for a shipped recording.", "ptarmigan inspect rustc"),
            example(
                "Prints the forks and exits of two tasks.",
                "ptarmigan inspect rustc --events --task 0,1 --kind clone,exit",
            ),
            example(
                "Writes all events for a data frame.",
                "ptarmigan inspect rustc --events --csv > rustc.csv",
            ),
            example("Reads a compressed trace from a pipe.", "xz -dc make.ptrace.xz | ptarmigan inspect -"),
        ],
    ),
    (
        "ptarmigan replay",
        &[
            example("Replays your trace on three policies.", "ptarmigan replay make.ptrace"),
            example(
                "Checks the library on two nodes and eight CPUs.",
                "ptarmigan replay rustc --policy ptarmigan --nodes 2 --cpus 8 --sanitize",
            ),
            example("Keeps the figures.", "ptarmigan replay make.ptrace --save before"),
            example("Compares with them later.", "ptarmigan replay make.ptrace --compare before"),
            example(
                "Puts tables into high memory if low memory runs short.",
                "ptarmigan replay --arch i386-pae --params userpte=auto",
            ),
            example(
                "Prints the time of an allocation by policy.",
                "ptarmigan replay rustc --json | jq '.runs[] | [.policy, .mean_alloc_ns]'",
            ),
            example(
                "Writes the events of its tables for a policy of yours.",
                "ptarmigan replay rustc --tables csv > rustc-tables.csv",
            ),
        ],
    ),
    (
        "ptarmigan report",
        &[
            example("Writes a page about your trace.", "ptarmigan report make.ptrace -o make.html"),
            example(
                "Writes one about two, side by side.",
                "ptarmigan report one.ptrace two.ptrace -o both.html",
            ),
            example(
                "Writes a comment without names of files and functions.",
                "ptarmigan report make.ptrace --share --markdown",
            ),
        ],
    ),
    (
        "ptarmigan advise",
        &[example("Says what would help a recorded program.", "ptarmigan advise make.ptrace")],
    ),
    (
        "ptarmigan price",
        &[
            example("Prices all proposals on a recording.", "ptarmigan price make.ptrace"),
            example("Prices two on two.", "ptarmigan price compile rustc --only blocks,requests"),
        ],
    ),
    (
        "ptarmigan bench",
        &[
            example("Measures page-table operations.", "ptarmigan bench table"),
            example("Keeps the figures.", "ptarmigan bench table --save before"),
            example("Compares with them later.", "ptarmigan bench table --compare before"),
        ],
    ),
    ("ptarmigan bench table", &[example("Measures with more rounds.", "ptarmigan bench table --rounds 21")]),
    (
        "ptarmigan bench faults",
        &[example("Measures faults of one thread and of two.", "ptarmigan bench faults --rounds 15")],
    ),
    (
        "ptarmigan bench quicklist",
        &[example("Prints a document for machines.", "ptarmigan bench quicklist --json")],
    ),
    ("ptarmigan bench zero", &[example("Compares ways to clear frames.", "ptarmigan bench zero")]),
    (
        "ptarmigan calibrate",
        &[
            example("Writes a cost model of this host.", "ptarmigan calibrate -o host.json"),
            example("Uses it.", "ptarmigan replay --model host.json"),
        ],
    ),
    (
        "ptarmigan docs",
        &[
            example("Lists the documents.", "ptarmigan docs"),
            example("Reads one about recording.", "ptarmigan docs recording | less"),
        ],
    ),
    (
        "ptarmigan completions",
        &[
            example(
                "Completes in bash.",
                "ptarmigan completions bash > ~/.local/share/bash-completion/completions/ptarmigan",
            ),
            example("Completes in zsh.", "ptarmigan completions zsh > ~/.zfunc/_ptarmigan"),
            example(
                "Completes in fish.",
                "ptarmigan completions fish > ~/.config/fish/completions/ptarmigan.fish",
            ),
        ],
    ),
    (
        "ptarmigan man",
        &[example("Installs the pages for one user.", "ptarmigan man ~/.local/share/man/man1")],
    ),
];

/// Returns the examples of a command, which is named as on the command line.
#[must_use]
pub fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

/// Adds examples and exit codes to the help of a command and of those below it. A command that has
/// a text below its help already keeps it. `of` returns the examples of a command.
#[must_use]
pub fn with_examples(
    command: clap::Command,
    name: &str,
    of: fn(&str) -> &'static [Example],
) -> clap::Command {
    let kept = command.get_after_help().is_some() || command.get_after_long_help().is_some();
    let below: Vec<String> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    let command = if kept { command } else { command.after_help(text(name, of(name))) };
    below.into_iter().fold(command, |command, one| {
        let path = format!("{name} {one}");
        command.mut_subcommand(one, |inner| with_examples(inner, &path, of))
    })
}

/// Returns the text below a help.
fn text(name: &str, examples: &[Example]) -> String {
    let mut text = String::new();
    if !examples.is_empty() {
        text.push_str("Examples:\n");
        for Example { does, line } in examples {
            text.push_str(&format!("  {does}\n    {line}\n"));
        }
        text.push('\n');
    }
    text.push_str("Exit codes:\n");
    for (code, meaning) in
        EXIT_CODES.iter().filter(|(code, _)| *code != "other" || name == "ptarmigan record")
    {
        text.push_str(&format!("  {code}: {meaning}\n"));
    }
    text.trim_end().to_owned()
}
