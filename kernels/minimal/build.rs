//! Hands the link script of the architecture to the linker.

include!("../base/image.rs");

fn main() {
    let target = std::env::var("CARGO_CFG_TARGET_ARCH");
    let is_riscv = target.is_ok_and(|target| target == "riscv64");
    link(if is_riscv { "base/src/riscv/link.ld" } else { "x86/src/bare/link.ld" });
}
