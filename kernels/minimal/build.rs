//! Hands the link script of the architecture to the linker.

include!("../base/image.rs");

fn main() {
    link(match std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("riscv64") => "base/src/riscv/link.ld",
        Ok("aarch64") => "base/src/aarch64/link.ld",
        _ => "x86/src/bare/link.ld",
    });
}
