//! Hands the link script to the linker, and builds the user program that the image carries.

include!("../base/image.rs");
include!("../base/program.rs");

fn main() {
    link("ppc32/link.ld");
    user_program("powerpc-unknown-linux-gnu", "static");
}
