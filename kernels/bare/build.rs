//! Hands the link scripts of the architecture to the linker, and builds the user program that the
//! image carries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

include!("../base/image.rs");

/// Bytes of a page: the user program is padded to whole pages.
const PAGE: usize = 4096;

fn main() {
    let target = env::var("TARGET").unwrap_or_default();
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    link_bin(
        "kernel-bare",
        match &*arch {
            "aarch64" => "base/src/aarch64/link.ld",
            "loongarch64" => "bare/src/loongarch64/link.ld",
            "powerpc" => "bare/src/ppc32/link.ld",
            "riscv64" => "base/src/riscv/link.ld",
            _ => "x86/src/bare/link.ld",
        },
    );
    match &*arch {
        "aarch64" | "riscv64" => user_program(&target, "pic"),
        "powerpc" => user_program(&target, "static"),
        "loongarch64" => {
            link_bin("user-bare", "bare/user/link.ld");
            println!("cargo:rustc-link-arg-bin=user-bare=--oformat=binary");
        }
        _ => {}
    }
}

/// Compiles the user program of the image to a flat binary of whole pages, `user.bin`, or ends the
/// build. `model` is where its code may be placed.
fn user_program(target: &str, model: &str) {
    println!("cargo:rerun-if-changed=user");
    println!("cargo:rerun-if-changed=../base/user");
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    if let Err(problem) = compile(&here.join("user"), &out.join("user.bin"), target, model) {
        println!("cargo:error=the user program: {problem}");
        std::process::exit(1);
    }
}

/// The linker is named: the compiler's own choice for a target may be a driver for C.
fn compile(source: &Path, binary: &Path, target: &str, model: &str) -> Result<(), String> {
    let compiler = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let sysroot = Command::new(&compiler)
        .args(["--print", "sysroot"])
        .output()
        .map_err(|e| format!("cannot run the compiler: {e}"))?;
    let sysroot = String::from_utf8(sysroot.stdout).map_err(|e| e.to_string())?;
    let host = env::var("HOST").unwrap_or_default();
    let linker = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin/rust-lld");
    let status = Command::new(compiler)
        .args(["--edition=2024", "--crate-name=user", "--crate-type=bin"])
        .args(["-Cpanic=abort", "-Copt-level=2", "-Clinker-flavor=ld.lld", "--target", target])
        .arg(format!("-Crelocation-model={model}"))
        .arg(format!("-Clinker={}", linker.display()))
        .args(["-Clink-args=-static --no-pie -nostdlib --gc-sections --oformat=binary"])
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
