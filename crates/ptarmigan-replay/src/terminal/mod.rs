//! Commands meet their users here: bars, lines on standard output and standard error, output files,
//! names that were meant.
pub mod bar;
pub mod nearest;
pub mod output;
pub mod print;
pub mod words;
