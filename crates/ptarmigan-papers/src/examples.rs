//! Lists the examples that help texts end with.
use ptarmigan_cli::cli::{Example, example};

const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "ptarmigan-papers",
        &[
            example("Keeps the figures.", "ptarmigan-papers hash --save before"),
            example("Compares with them later.", "ptarmigan-papers hash --compare before"),
        ],
    ),
    (
        "ptarmigan-papers flush",
        &[
            example("Prices flushes as in 2001.", "ptarmigan-papers flush"),
            example("Prices them as measured here.", "ptarmigan-papers flush --model host.json"),
        ],
    ),
    (
        "ptarmigan-papers hash",
        &[example("Counts evictions by size of the table.", "ptarmigan-papers hash --json")],
    ),
    (
        "ptarmigan-papers kmap",
        &[example("Counts sweeps on recordings only.", "ptarmigan-papers kmap --part traces")],
    ),
    (
        "ptarmigan-papers userpte",
        &[
            example("Measures what high tables cost.", "ptarmigan-papers userpte --part time --runs 7"),
            example(
                "Draws when they pay, with 512 MiB of low memory.",
                "ptarmigan-papers userpte --part memory --low 512M --svg userpte.svg",
            ),
        ],
    ),
    (
        "ptarmigan-papers holt",
        &[example("Runs the fork-and-touch program of 2004.", "ptarmigan-papers holt")],
    ),
    (
        "ptarmigan-papers imbalance",
        &[example("Counts with three historic lists.", "ptarmigan-papers imbalance --historic-lists 3")],
    ),
    (
        "ptarmigan-papers migration",
        &[example("Counts pages that stay on foreign nodes.", "ptarmigan-papers migration")],
    ),
];

/// Returns the examples of a command, which is named as on the command line.
pub(crate) fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_benchmark_has_examples_and_each_of_them_parses() {
        let papers = crate::Papers::command();
        let below = papers.get_subcommands().map(|one| format!("{} {}", crate::NAME, one.get_name()));
        for name in below.chain([crate::NAME.to_owned()]) {
            assert!(!super::of(&name).is_empty(), "{name} has no example");
            for example in super::of(&name) {
                assert!(example.line.starts_with(&name), "{name}: {}", example.line);
                if let Err(e) = crate::parse(example.line.split_whitespace()) {
                    panic!("{}: {e}", example.line);
                }
            }
        }
    }
}
