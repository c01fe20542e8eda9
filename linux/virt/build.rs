//! Hands the target's link script to the linker.

include!("../../kernels/base/image.rs");

fn main() {
    let riscv = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "riscv64");
    link(if riscv { "../kernels/base/src/riscv/link.ld" } else { "../kernels/base/src/aarch64/link.ld" });
    println!("cargo:rerun-if-changed=../../kernels/base/src");
}
