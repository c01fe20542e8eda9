//! Tests of pools in one executable. Beside it are tests of forks, and of processes that end in a
//! fault or are refused calls.
#[path = "../child/mod.rs"]
mod child;
mod lent;
mod pages;
mod unwinding;
mod waiting;
