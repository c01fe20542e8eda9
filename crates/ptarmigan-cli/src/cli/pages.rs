//! Pages of the manual, and completions of shells.
use super::examples::{EXIT_CODES, of};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};
use ptarmigan_term::output::Output;
use ptarmigan_term::print;
use ptarmigan_term::{Context, Failure};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a script that completes the command in a shell.
#[derive(clap::Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Write the pages of the manual, one for each command.
#[derive(clap::Args, Clone, Debug)]
pub struct ManArgs {
    /// Directory to write to; it is made if it is not there. `man` looks for it in MANPATH, as
    /// man1.
    directory: PathBuf,
}

/// Environment variables that the command reads.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("NO_COLOR", "If set and not empty, nothing is coloured. Without it, only terminals are."),
    ("PTARMIGAN_BASELINES", "The directory of baselines, for --save and --compare."),
    ("XDG_DATA_HOME", "Without PTARMIGAN_BASELINES, baselines are in ptarmigan/baselines below it."),
];

/// Prints the completions of a shell.
///
/// # Errors
/// If they cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::grammar(), "ptarmigan", &mut script);
    let script = String::from_utf8(script).context("completions")?;
    print::stdout(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of the manual and prints their names.
///
/// # Errors
/// If one cannot be written, or a file of that name exists and is not a regular one.
pub fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    fs::create_dir_all(&args.directory).context(args.directory.display())?;
    for (name, page) in pages() {
        let path = args.directory.join(&name);
        Output::new(&path)?.write(&page)?;
        print::stdout(&format!("{}\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the pages of the manual with the names of their files.
#[must_use]
pub fn pages() -> Vec<(String, Vec<u8>)> {
    let mut pages = Vec::new();
    let mut root = super::grammar().disable_help_subcommand(true);
    root.build();
    add(&root, "ptarmigan", &mut pages);
    pages
}

fn add(command: &clap::Command, path: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    let dashed = path.replace(' ', "-");
    // The synopsis names the command with spaces, the page with dashes.
    let shown = command.clone().display_name(dashed.clone()).bin_name(path.to_owned());
    pages.push((format!("{dashed}.1"), page(shown, path)));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add(below, &format!("{path} {}", below.get_name()), pages);
    }
}

fn page(command: clap::Command, path: &str) -> Vec<u8> {
    let below = command.get_subcommands().any(|below| !below.is_hide_set());
    let man = Man::new(command).manual("Ptarmigan").source(concat!("ptarmigan ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render_title(&mut page);
    let _ = man.render_name_section(&mut page);
    let _ = man.render_synopsis_section(&mut page);
    let _ = man.render_description_section(&mut page);
    let _ = man.render_options_section(&mut page);
    if below {
        let _ = man.render_subcommands_section(&mut page);
    }
    let _ = sections(path).to_writer(&mut page);
    page
}

/// Returns the sections that follow the options.
fn sections(path: &str) -> Roff {
    let mut roff = Roff::new();
    let examples = of(path);
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        for example in examples {
            roff.control("TP", []).text([roman(example.does)]).text([bold(example.line)]);
        }
    }
    roff.control("SH", ["EXIT STATUS"]);
    let record = path == "ptarmigan" || path == "ptarmigan record";
    for (code, meaning) in EXIT_CODES.iter().filter(|(code, _)| *code != "other" || record) {
        roff.control("TP", []).text([bold(*code)]).text([roman(*meaning)]);
    }
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in ENVIRONMENT {
        roff.control("TP", []).text([italic(name)]).text([roman(meaning)]);
    }
    if path != "ptarmigan" {
        roff.control("SH", ["SEE ALSO"]).text([bold("ptarmigan"), roman("(1)")]);
    }
    roff
}
