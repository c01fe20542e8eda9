// Shared by the build scripts of images, which include it.

/// Hands a link script, by its path in `kernels`, to the linker.
fn link(script: &str) {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for argument in ["-static", "--no-pie", "-nostdlib", "--gc-sections", "--build-id=none"] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-T{here}/../{script}");
    println!("cargo:rerun-if-changed=../{script}");
    println!("cargo:rerun-if-changed=src");
}
