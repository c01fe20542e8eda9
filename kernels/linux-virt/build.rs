//! Hands the target's link script to the linker.

include!("../base/image.rs");

fn main() {
    link("base/src/aarch64/link.ld");
    println!("cargo:rerun-if-changed=../base/src");
}
