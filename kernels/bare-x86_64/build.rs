//! Hands the link script to the linker.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for argument in ["-static", "--no-pie", "-nostdlib", "--gc-sections", "--build-id=none"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-T{here}/../x86/src/bare/link.ld");
    println!("cargo:rerun-if-changed=../x86/src/bare/link.ld");
}
