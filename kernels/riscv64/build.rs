//! Hands the link script to the linker, and builds the user program that the image carries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What a page of the user program is padded to.
const PAGE: usize = 4096;

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    for argument in ["-static", "--no-pie", "-nostdlib", "--gc-sections", "--build-id=none"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-T{}", here.join("../base/src/riscv/link.ld").display());
    for file in [
        "../base/src/riscv/link.ld",
        "src/boot.s",
        "src/trap.s",
        "src/abi.rs",
        "user/main.rs",
        "user/link.ld",
    ] {
        println!("cargo:rerun-if-changed={file}");
    }
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    if let Err(problem) = user_program(&here.join("user"), &out.join("user.bin")) {
        println!("cargo:error=the user program: {problem}");
        std::process::exit(1);
    }
}

/// Compiles the user program to a flat, position-independent binary of whole pages.
fn user_program(source: &Path, binary: &Path) -> Result<(), String> {
    let compiler = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let status = Command::new(compiler)
        .args(["--edition=2024", "--crate-name=user", "--crate-type=bin"])
        .args(["--target=riscv64gc-unknown-none-elf", "-Cpanic=abort", "-Copt-level=2"])
        .args(["-Crelocation-model=pic", "-Clink-args=-nostdlib --gc-sections --no-pie"])
        .arg("-Clink-arg=--oformat=binary")
        .arg(format!("-Clink-arg=-T{}", source.join("link.ld").display()))
        .arg("-o")
        .arg(binary)
        .arg(source.join("main.rs"))
        .status()
        .map_err(|e| format!("cannot run the compiler: {e}"))?;
    if !status.success() {
        return Err(format!("the compiler ended with {status}"));
    }
    let mut bytes = fs::read(binary).map_err(|e| e.to_string())?;
    bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
    fs::write(binary, bytes).map_err(|e| e.to_string())
}
