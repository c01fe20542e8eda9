//! The recordings that come with the command. They are part of the program, so it needs no file.
//! As statics they are in it once, not in each unit that the compiler makes.

/// The recording of a compile.
pub static COMPILE: &[u8] = include_bytes!("../../traces/compile.ptrace");

/// All recordings with their names, the compile first.
pub static SHIPPED: [(&str, &[u8]); 5] = [
    ("compile", COMPILE),
    ("configure", include_bytes!("../../traces/configure.ptrace")),
    ("rustc", include_bytes!("../../traces/rustc.ptrace")),
    ("linux-build", include_bytes!("../../traces/linux-build.ptrace")),
    ("fixture", include_bytes!("../../traces/fixture.ptrace")),
];
