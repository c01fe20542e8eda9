// Shared by the build scripts of images, which include it.

/// Hands a link script, by its path in the workspace, to the linker of each binary.
#[allow(dead_code, reason = "a package has one binary, or several")]
fn link(script: &str) {
    link_by("rustc-link-arg-bins=", script);
}

/// Hands a link script to the linker of one binary.
#[allow(dead_code, reason = "a package has one binary, or several")]
fn link_bin(binary: &str, script: &str) {
    link_by(&format!("rustc-link-arg-bin={binary}="), script);
}

fn link_by(instruction: &str, script: &str) {
    let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    for argument in ["-static", "--no-pie", "-nostdlib", "--gc-sections", "--build-id=none"] {
        println!("cargo:{instruction}{argument}");
    }
    println!("cargo:{instruction}-T{here}/../{script}");
    println!("cargo:rerun-if-changed=../{script}");
    println!("cargo:rerun-if-changed=src");
}
