//! Hands the target's link script to the linker.

include!("../../kernels/base/image.rs");

fn main() {
    let i686 = std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86");
    link(&format!("x86/src/{}/link.ld", if i686 { "i686" } else { "x86_64" }));
    println!("cargo:rerun-if-changed=../../kernels/x86/src/check.s");
}
