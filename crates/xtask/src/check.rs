//! Runs the checks that take a few minutes, and says how long each took.
use clap::{Args, ValueEnum};
use ptarmigan_term::Time;
use std::{
    process::{Command, ExitCode},
    time::Instant,
};

/// Arguments of `check`.
#[derive(Args)]
pub struct CheckArgs {
    /// Runs only these steps.
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    only: Vec<CheckStep>,
}

/// A step, in the order in which they run: the fast ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckStep {
    /// Formatting of the workspace.
    Format,
    /// Spelling of the documents.
    Spelling,
    /// Words of comments and documents.
    Prose,
    /// Order of modules.
    Rooms,
    /// Words of pages.
    Pages,
    /// Tables of pages, beside the figures that they are made of.
    Figures,
    /// Names of types.
    Names,
    /// Formatters of quantities.
    Units,
    /// Lints of the workspace.
    Lints,
    /// Unit tests of the library.
    Tests,
}

/// Words that codespell takes for mistakes.
const KNOWN_WORDS: &str = "crate,hart,ser,statics";
/// Documents that are spell-checked, as the shell expands them.
const DOCUMENTS: &str = "README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs book/src crates/*/README.md \
                         bindings/c/README.md";

impl CheckStep {
    fn command(self) -> Command {
        let cargo = |words: &str| {
            let mut command = Command::new("cargo");
            command.args(words.split(' '));
            command
        };
        let own = |name: &str| {
            let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "cargo-xtask".into()));
            command.arg(name);
            command
        };
        match self {
            CheckStep::Format => cargo("fmt --all --check"),
            CheckStep::Spelling => {
                let mut command = Command::new("sh");
                let line = format!(
                    "command -v codespell >/dev/null || {{ echo 'codespell is missing: install the package \
                     codespell, or leave this step out with --only' >&2; exit 1; }}; \
                     exec codespell --ignore-words-list {KNOWN_WORDS} {DOCUMENTS}"
                );
                command.args(["-c", &line]);
                command
            }
            CheckStep::Prose => own("prose"),
            CheckStep::Rooms => own("rooms"),
            CheckStep::Pages => own("pages"),
            CheckStep::Figures => {
                let mut command = own("figures");
                command.args(["--pages", "--check"]);
                command
            }
            CheckStep::Names => own("names"),
            CheckStep::Units => own("units"),
            CheckStep::Lints => cargo("clippy --workspace --all-targets --quiet -- -D warnings"),
            CheckStep::Tests => cargo("test -p ptarmigan --lib --quiet"),
        }
    }
}

/// Runs `cargo xtask check`: the steps in order, up to the first that fails.
pub fn run(args: &CheckArgs) -> ExitCode {
    let all = Instant::now();
    for &step in CheckStep::value_variants() {
        if !args.only.is_empty() && !args.only.contains(&step) {
            continue;
        }
        let name = step.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        let start = Instant::now();
        let passed = match step.command().status() {
            Ok(status) => status.success(),
            Err(err) => {
                eprintln!("cargo xtask check: {name}: {:?}: {err}", step.command().get_program());
                false
            }
        };
        let result = if passed { "passed" } else { "FAILED" };
        println!("{name:<10} {result} {:>7}", Time::from(start.elapsed()));
        if !passed {
            return ExitCode::FAILURE;
        }
    }
    println!("{:<10} passed {:>7}", "all", Time::from(all.elapsed()));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn documents_that_are_checked_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for document in DOCUMENTS.split_whitespace() {
            let fixed = document.split('*').next().unwrap_or(document);
            assert!(root.join(fixed).exists(), "{document}");
        }
    }
}
