//! Hands the link scripts of the image and of the user program to the linker.

include!("../base/image.rs");

fn main() {
    link_bin("kernel-loongarch64", "loongarch64/link.ld");
    link_bin("user-loongarch64", "loongarch64/user/link.ld");
    println!("cargo:rustc-link-arg-bin=user-loongarch64=--oformat=binary");
    println!("cargo:rerun-if-changed=user");
    println!("cargo:rerun-if-changed=../base/user");
}
