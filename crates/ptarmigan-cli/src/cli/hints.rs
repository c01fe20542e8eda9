//! Hints for command lines that lack a command, or name one of another program.
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ptarmigan_replay::MachineName;
use std::path::Path;

/// Benchmarks of papers, which another program has.
const PAPERS: [&str; 7] = ["flush", "hash", "holt", "imbalance", "kmap", "migration", "userpte"];

/// Adds a hint where a file or a program stands in place of a command.
pub(super) fn with_hint(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::InvalidValue && is_about_machine(&error) {
        if let Some(hint) = MachineName::hint() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
        }
        return error;
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return error;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let hints = hints(given, error.get(ContextKind::SuggestedSubcommand).is_some());
    if !hints.is_empty() {
        error.remove(ContextKind::SuggestedSubcommand);
        let hints = hints.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
    error
}

/// Returns whether the error is about the value of `--arch`.
fn is_about_machine(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with("--arch "))
}

/// Returns the command lines that may have been meant. `similar` says that a command has nearly
/// this name.
fn hints(given: &str, similar: bool) -> Vec<String> {
    if PAPERS.contains(&given) {
        return vec![format!("to run it: cargo run --release -p ptarmigan-papers -- {given}")];
    }
    let path = Path::new(given);
    if path.extension().is_some_and(|extension| extension == "ptrace") {
        return vec![
            format!("to count what the trace contains: ptarmigan inspect {given}"),
            format!("to write a page about it: ptarmigan report {given} -o report.html"),
        ];
    }
    let is_program = || {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        path.is_file() || std::env::split_paths(&paths).any(|directory| directory.join(path).is_file())
    };
    if !similar && is_program() {
        return vec![format!("to record the program: ptarmigan record {given}")];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_a_program_and_a_paper_have_commands() {
        assert!(hints("mp.ptrace", false)[0].ends_with("ptarmigan inspect mp.ptrace"));
        assert!(hints("mp.ptrace", true)[1].contains("ptarmigan report mp.ptrace -o "));
        assert_eq!(hints("sh", false), ["to record the program: ptarmigan record sh"]);
        assert_eq!(
            hints("userpte", false),
            ["to run it: cargo run --release -p ptarmigan-papers -- userpte"]
        );
        assert!(hints("sh", true).is_empty() && hints("no such program", false).is_empty());
    }
}
