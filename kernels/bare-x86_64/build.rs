//! Hands the link script to the linker.

include!("../base/image.rs");

fn main() {
    link("x86/src/bare/link.ld");
}
