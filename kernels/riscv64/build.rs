//! Hands the link script to the linker, and builds the user program that the image carries.

include!("../base/image.rs");
include!("../base/program.rs");

fn main() {
    link("base/src/riscv/link.ld");
    user_program("riscv64gc-unknown-none-elf", "pic");
}
