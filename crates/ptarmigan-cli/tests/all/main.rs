//! Tests of the command in one executable: `cargo test -p ptarmigan-cli --test all replay::` runs
//! one module of them. Tests of recording, which fork and send signals, are beside it.
mod advise;
mod advise_blocks;
mod advise_causes;
mod advise_check;
mod advise_children;
mod advise_churn;
mod advise_forks;
mod advise_growth;
mod advise_huge;
mod advise_pin;
mod advise_shared;
mod advise_where;
mod attached;
mod bad_input;
mod baselines;
mod counters;
mod documents;
mod formats;
mod hashed;
mod high;
mod inspect;
mod models;
mod price;
mod price_advise;
mod price_own;
mod program;
mod replay;
mod report;
mod report_page;
mod report_short;
mod rules;
mod share;
mod tables;
mod terminal;
mod units;
mod usage;

/// The program that is tested.
const PROGRAM: &str = env!("CARGO_BIN_EXE_ptarmigan");
