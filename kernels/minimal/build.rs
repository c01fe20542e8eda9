//! Hands the link script to the linker.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("riscv64") => "base/src/riscv/link.ld",
        _ => "x86/src/bare/link.ld",
    };
    for argument in ["-static", "--no-pie", "-nostdlib", "--gc-sections", "--build-id=none"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-T{here}/../{script}");
    println!("cargo:rerun-if-changed=../{script}");
    println!("cargo:rerun-if-changed=src/riscv64/boot.s");
    println!("cargo:rerun-if-changed=src/riscv64/trap.s");
}
