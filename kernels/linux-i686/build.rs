//! Hands the link script to the linker.

include!("../base/image.rs");

fn main() {
    link("linux-i686/link.ld");
    println!("cargo:rerun-if-changed=../x86/src/check.s");
}
