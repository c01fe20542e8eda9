//! Table pages for page-table crates of other people: a space has the same results as the crate
//! alone, and every table comes back zero. The lists verify the content of each page that comes
//! back.
mod aarch64;
mod generic;
#[cfg(target_arch = "x86_64")]
mod multiarch;
mod pages;
mod rig;
#[cfg(target_arch = "x86_64")]
mod unwinding;
mod x64;
