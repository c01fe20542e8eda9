//! Records real commands with the built program. A test that cannot record on this machine says so
//! and passes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod alike;
mod attach;
mod attach_named;
mod attach_odd;
mod blocks;
mod callers;
mod commands;
mod common;
mod killed;
mod nested;
mod output;
mod programs;
mod refused;
mod runtimes;
mod settings;
mod times;
