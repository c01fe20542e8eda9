//! Hands the link script to the linker, and builds the user program that the image carries.

include!("../base/image.rs");
include!("../base/program.rs");

fn main() {
    link("base/src/aarch64/link.ld");
    user_program("aarch64-unknown-none", "pic");
}
