//! Tests the `Mmu`s of `ptarmigan::arch`, made of recorders that tell the sanitizer the effect that
//! each instruction would have had.
//!
//! Random calls have no finding, and a machine that leaves one instruction out has some. Each test
//! lists the instructions whose lack the sanitizer does not see, with the reason.
mod aarch64;
#[path = "../driver/mod.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod driver;
mod leaves;
mod recorder;
mod riscv64;
mod stage2;
mod x86_64;
mod x86_guests;
